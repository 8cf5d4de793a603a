// muster: the launcher. See wiring.h.
#include "launcher/node/wiring.h"
#include "rendezvous/base/system/start_up_signals.h"

namespace {

constexpr muster::StartUpAnswer start_up_answer{
    .program = "muster",
    .sentence = "no worker was started. To run the job, start muster again.",
    .end = muster::StartUpEnd::exit_code,
};

[[gnu::constructor(101)]] void answer_first_signals() {
    muster::answer_start_up_signals(start_up_answer);
}

}  // namespace

int main(int argc, char** argv) {
    return muster::launcher::run(argc, argv);
}
