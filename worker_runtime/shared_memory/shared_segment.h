// Anonymous memory that several processes map: a memfd, so it has no name that could clash and goes with its last user,
// however that ends.
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
    /// Zeroed memory, all of it taken now, so that no later write can end in SIGBUS; sealed against being cut short.
    /// limit_exceeded where the host or this cgroup has too little, which is looked at first: a cgroup's limit would
    /// otherwise end a process instead of failing the call.
    static Result<SharedSegment> create(std::size_t size_bytes, const std::string& purpose);

    /// A peer's. invalid_argument when it is shorter than `size_bytes`, or could become so.
    static Result<SharedSegment> map(const FileDescriptor& memory, std::size_t size_bytes);

    SharedSegment() = default;
    SharedSegment(SharedSegment&& other) noexcept;
    SharedSegment& operator=(SharedSegment&& other) noexcept;
    ~SharedSegment();

    [[nodiscard]] std::byte* data() const { return data_; }
    [[nodiscard]] std::size_t size_bytes() const { return size_bytes_; }
    /// For passing on; only what create() made has one.
    [[nodiscard]] const FileDescriptor& descriptor() const { return descriptor_; }
    /// Once every peer has it, the descriptor is of no more use: the mappings keep the memory.
    void close_descriptor() { descriptor_.reset(); }

  private:
    std::byte* data_ = nullptr;
    std::size_t size_bytes_ = 0;
    FileDescriptor descriptor_;
};

}  // namespace muster::runtime
