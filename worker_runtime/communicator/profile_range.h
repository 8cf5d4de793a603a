// Ranges on the time line of NVIDIA's profilers (NVTX), where their library is: MUSTER_NVTX_LIBRARY names its file,
// else libnvtx3interop.so.1 or libnvToolsExt.so.1 as the loader finds them. Where it is not, a range costs one branch.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace muster::runtime {

/// The two functions of that library which matter here; a range may end in another thread than it began.
struct ProfilerLibrary {
    std::uint64_t (*start)(const char* name);
    void (*end)(std::uint64_t range);
};

/// Null where there is none. Looked for once, at the first call.
const ProfilerLibrary* profiler_library();

/// Lasts until end(), or as long as the object.
class ProfileRange {
  public:
    ProfileRange() = default;
    /// `name()` gives its name as a std::string; called only where somebody looks.
    template <class Name>
    explicit ProfileRange(Name&& name) {
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
