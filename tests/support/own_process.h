// What the test's process holds, for tests that nothing is left behind.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

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

/// What this process held when the object was made, for what it holds beyond that later.
class Holdings {
  public:
    Holdings() : descriptors_(open_descriptors()), threads_(threads_alive()) {}

    /// "" once nothing is left over, else what is at `limit`: a thread that was joined may still be on the kernel's
    /// list.
    [[nodiscard]] std::string left_over_by(std::chrono::steady_clock::time_point limit) const {
        while (!left_over().empty() && std::chrono::steady_clock::now() < limit)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return left_over();
    }

  private:
    [[nodiscard]] std::string left_over() const {
        std::string text;
        const auto compare = [&text](const char* what, std::size_t now, std::size_t before) {
            if (now > before) text += std::to_string(now) + what + std::to_string(before) + " before; ";
        };
        compare(" descriptors, ", open_descriptors(), descriptors_);
        compare(" threads, ", threads_alive(), threads_);
        return text + (maps_shared_memory() ? "shared memory is mapped" : "");
    }

    std::size_t descriptors_;
    std::size_t threads_;
};

/// How often a test makes groups and kills them: `usual`, or MUSTER_TEST_CYCLES (1,000 is what is promised).
inline int cycles(int usual) {
    const char* const wish = std::getenv("MUSTER_TEST_CYCLES");
    return wish != nullptr ? std::atoi(wish) : usual;
}

}  // namespace muster::test
