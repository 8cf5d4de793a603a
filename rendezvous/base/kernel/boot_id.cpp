#include "rendezvous/base/kernel/boot_id.h"

#include "rendezvous/base/kernel/first_line.h"

namespace muster {

std::string boot_id() {
    const auto id = first_line("/proc/sys/kernel/random/boot_id");
    return id.empty() ? "unknown" : id;
}

}  // namespace muster
