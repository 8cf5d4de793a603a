// Keeps the last bytes of a stream for the failure report. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace muster::agent {

/// Keeps at least the last `size_max` bytes, in at most twice that memory: bytes are appended, and the front half goes
/// when the string is full, so that the cost per byte is constant.
class TailBuffer {
  public:
    explicit TailBuffer(std::size_t size_max = 64 << 10) : size_max_(size_max) {}

    void add(std::string_view bytes);
    /// The last size_max bytes, or all if there were fewer. When something is missing in front it begins with a whole
    /// line, if it has one.
    [[nodiscard]] std::string take();

  private:
    std::size_t size_max_;
    std::string kept_;
    bool cut_ = false;
};

}  // namespace muster::agent
