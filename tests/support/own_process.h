// What the test's process holds, for tests that nothing is left behind.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace muster::test {

inline std::size_t open_descriptors() {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

inline std::size_t threads_alive() {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}));
}

/// Is memory that processes share still mapped? It is named nowhere, so there is nothing in a file system to count.
inline bool maps_shared_memory() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
        if (line.find("memfd:") != std::string::npos) return true;
    return false;
}

/// How often a test makes groups and kills them: `usual`, or MUSTER_TEST_CYCLES (1,000 is what is promised).
inline int cycles(int usual) {
    const char* const wish = std::getenv("MUSTER_TEST_CYCLES");
    return wish != nullptr ? std::atoi(wish) : usual;
}

}  // namespace muster::test
