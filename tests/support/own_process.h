// What the test's process holds, for tests that nothing is left behind.
#pragma once

#include <cstddef>
#include <filesystem>
#include <iterator>

namespace muster::test {

inline std::size_t open_descriptors() {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

inline std::size_t threads_alive() {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}));
}

}  // namespace muster::test
