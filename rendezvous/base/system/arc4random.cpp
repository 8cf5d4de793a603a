// In portable programs alone: the static libstdc++ of Debian 12 asks the C library for this function, which came with
// glibc 2.36, and for nothing else that is newer than 2.35. With it in the C library's place they also start on Ubuntu
// 22.04, where many machines with GPUs are.
#include <sys/random.h>

#include <cstdint>
#include <cstdlib>

extern "C" __attribute__((visibility("hidden"))) std::uint32_t arc4random() {
    std::uint32_t value = 0;
    // So few bytes come whole, and without a wait but early at the boot.
    if (::getrandom(&value, sizeof value, 0) != sizeof value) std::abort();
    return value;
}
