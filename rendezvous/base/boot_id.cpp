#include "rendezvous/base/boot_id.h"

#include <fstream>

namespace muster {

std::string boot_id() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string id;
    file >> id;
    return id.empty() ? "unknown" : id;
}

}  // namespace muster
