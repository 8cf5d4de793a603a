#include "worker_runtime/cpu/shared_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "rendezvous/base/text.h"
#include "worker_runtime/cpu/available_memory.h"

namespace muster::runtime {

namespace {

/// Left for everything else when a segment is taken.
constexpr std::size_t reserve_bytes = 16u << 20;

Error too_little(std::size_t size_bytes, const std::string& purpose, std::string_view why) {
    return {Errc::limit_exceeded,
            cat("cannot reserve ", size_bytes >> 10, " KiB of shared memory for ", purpose, ": ", why,
                "; give the job more memory, or use smaller buckets or fewer ranks on this host")};
}

Result<std::byte*> map_memory(int fd, std::size_t size_bytes) {
    void* const data = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (data == MAP_FAILED) return error_from_errno(errno, "map shared memory");
    ::madvise(data, size_bytes, MADV_DONTFORK);  // a data loader's child must neither keep nor write it
    return static_cast<std::byte*>(data);
}

}  // namespace

Result<SharedSegment> SharedSegment::create(std::size_t size_bytes, const std::string& purpose) {
    if (const auto left = available_memory_bytes(); left < size_bytes || left - size_bytes < reserve_bytes) {
        return too_little(size_bytes, purpose, cat("about ", left >> 10, " KiB are left"));
    }
    SharedSegment segment;
    segment.descriptor_ = FileDescriptor(::memfd_create("muster", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!segment.descriptor_.valid()) return error_from_errno(errno, "create shared memory");
    int failed = 0;
    do failed = ::posix_fallocate(segment.descriptor_.get(), 0, static_cast<off_t>(size_bytes));
    while (failed == EINTR);
    if (failed == ENOSPC || failed == ENOMEM || failed == EFBIG) {
        return too_little(size_bytes, purpose, error_from_errno(failed, "the system").context);
    }
    if (failed != 0) return error_from_errno(failed, cat("reserve shared memory for ", purpose));
    if (::fcntl(segment.descriptor_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        return error_from_errno(errno, "seal shared memory");
    }
    auto data = map_memory(segment.descriptor_.get(), size_bytes);
    if (!data) return data.error();
    segment.data_ = *data;
    segment.size_bytes_ = size_bytes;
    return segment;
}

Result<SharedSegment> SharedSegment::map(const FileDescriptor& memory, std::size_t size_bytes) {
    struct stat facts {};
    const int seals = ::fcntl(memory.get(), F_GET_SEALS);
    if (::fstat(memory.get(), &facts) != 0 || facts.st_size < static_cast<off_t>(size_bytes) || seals < 0 ||
        (seals & F_SEAL_SHRINK) == 0) {
        return Error{Errc::invalid_argument,
                     cat("a peer's shared memory is not the sealed ", size_bytes, " bytes that were agreed")};
    }
    auto data = map_memory(memory.get(), size_bytes);
    if (!data) return data.error();
    SharedSegment segment;
    segment.data_ = *data;
    segment.size_bytes_ = size_bytes;
    return segment;
}

SharedSegment::SharedSegment(SharedSegment&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      descriptor_(std::move(other.descriptor_)) {}

SharedSegment& SharedSegment::operator=(SharedSegment&& other) noexcept {
    if (this != &other) {
        if (data_ != nullptr) ::munmap(data_, size_bytes_);
        data_ = std::exchange(other.data_, nullptr);
        size_bytes_ = std::exchange(other.size_bytes_, 0);
        descriptor_ = std::move(other.descriptor_);
    }
    return *this;
}

SharedSegment::~SharedSegment() {
    if (data_ != nullptr) ::munmap(data_, size_bytes_);
}

}  // namespace muster::runtime
