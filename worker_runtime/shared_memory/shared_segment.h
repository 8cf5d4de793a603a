// Anonymous memory that several processes map: a memfd. It has no name that could clash, and vanishes with its last
// user.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"

namespace muster::runtime {

/// A mapping of a memfd, read and write. Unmapped with the object.
class SharedSegment {
  public:
    /// Zeroed memory, fully reserved now, so that no later write causes SIGBUS, and sealed against truncation.
    /// limit_exceeded: the host or this cgroup has too little; this is checked first, because a cgroup's limit would
    /// kill a process instead of failing the call.
    static Result<SharedSegment> create(std::size_t size_bytes, const std::string& purpose);

    /// A peer's memory. invalid_argument: it is shorter than `size_bytes`, or could be truncated.
    static Result<SharedSegment> map(const FileDescriptor& memory, std::size_t size_bytes);
    /// The same, whole, whatever its size.
    static Result<SharedSegment> map(const FileDescriptor& memory);

    SharedSegment() = default;
    SharedSegment(SharedSegment&& other) noexcept;
    SharedSegment& operator=(SharedSegment&& other) noexcept;
    ~SharedSegment();

    [[nodiscard]] std::byte* data() const { return data_; }
    [[nodiscard]] std::size_t size_bytes() const { return size_bytes_; }
    /// The descriptor for other processes; only memory from create() has one.
    [[nodiscard]] const FileDescriptor& descriptor() const { return descriptor_; }
    /// Closes the descriptor when every peer has it: the mappings keep the memory.
    void close_descriptor() { descriptor_.reset(); }

  private:
    std::byte* data_ = nullptr;
    std::size_t size_bytes_ = 0;
    FileDescriptor descriptor_;
};

}  // namespace muster::runtime
