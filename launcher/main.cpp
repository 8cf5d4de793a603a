// muster: the launcher. See wiring.h.
#include "launcher/wiring.h"

int main(int argc, char** argv) {
    return muster::launcher::run(argc, argv);
}
