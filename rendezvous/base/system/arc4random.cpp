// In portable programs only. Debian 12's static libstdc++ needs this function, which glibc has since 2.36, and nothing
// else that is newer than 2.35. With this replacement the programs also start on Ubuntu 22.04, which many machines with
// GPUs run.
#include <sys/random.h>

#include <cstdint>
#include <cstdlib>

extern "C" __attribute__((visibility("hidden"))) std::uint32_t arc4random() {
    std::uint32_t value = 0;
    // So few bytes come whole, and without a wait but early at the boot.
    if (::getrandom(&value, sizeof value, 0) != sizeof value) std::abort();
    return value;
}
