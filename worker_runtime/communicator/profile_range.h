// Ranges on the time line of NVIDIA's profilers (NVTX). MUSTER_NVTX_LIBRARY names the library, else the loader searches
// for libnvtx3interop.so.1 and libnvToolsExt.so.1. Without the library a range costs one branch.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace muster::runtime {

/// The two functions of NVTX in use. A range may end in another thread than it began.
struct ProfilerLibrary {
    std::uint64_t (*start)(const char* name);
    void (*end)(std::uint64_t range);
};

/// Null if the library is missing. Searched once, at the first call.
const ProfilerLibrary* profiler_library();

/// A range until end() or the destructor.
class ProfileRange {
  public:
    ProfileRange() = default;
    /// `name()` returns the name as a std::string; called only if a profiler is active.
    explicit ProfileRange(auto&& name) {
        if (const auto* const library = profiler_library()) [[unlikely]] {
            number_ = library->start(std::string(name()).c_str());
            library_ = library;
        }
    }
    ~ProfileRange() { end(); }
    ProfileRange(ProfileRange&& other) noexcept
        : library_(std::exchange(other.library_, nullptr)), number_(other.number_) {}
    ProfileRange& operator=(ProfileRange&& other) noexcept {
        end();
        library_ = std::exchange(other.library_, nullptr);
        number_ = other.number_;
        return *this;
    }

    void end() {
        if (library_ != nullptr) std::exchange(library_, nullptr)->end(number_);
    }

  private:
    const ProfilerLibrary* library_ = nullptr;
    std::uint64_t number_ = 0;
};

}  // namespace muster::runtime
