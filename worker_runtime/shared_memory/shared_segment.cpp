#include "worker_runtime/shared_memory/shared_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "rendezvous/base/kernel/available_memory.h"
#include "rendezvous/base/reserve_space.h"
#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

/// Left for everything else when a segment is taken.
constexpr std::size_t reserve_bytes = 16u << 20;
/// Between two looks at what is left.
constexpr std::size_t look_bytes = 64u << 20;
constexpr std::size_t huge_page_bytes = 2u << 20;
#ifndef MADV_COLLAPSE
constexpr int MADV_COLLAPSE = 25;  // Linux 6.1
#endif

Error too_little(std::size_t size_bytes, const std::string& purpose, std::string_view why) {
    return {Errc::limit_exceeded,
            cat("cannot reserve ", size_bytes >> 10, " KiB of shared memory for ", purpose, ": ", why,
                "; give the job more memory, or use smaller buckets or fewer ranks on this host")};
}

/// An address with room for `size_bytes`, at which huge pages can be mapped as such. Another thread may take the room:
/// it is only where the caller would like its memory to be.
void* huge_page_address(std::size_t size_bytes) {
    if (size_bytes < huge_page_bytes) return nullptr;
    const std::size_t room_bytes = size_bytes + huge_page_bytes;
    void* const room = ::mmap(nullptr, room_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return nullptr;
    ::munmap(room, room_bytes);
    return static_cast<std::byte*>(room) + -reinterpret_cast<std::uintptr_t>(room) % huge_page_bytes;
}

Result<std::byte*> map_memory(int fd, std::size_t size_bytes, int populate = MAP_POPULATE) {
    void* const data =
        ::mmap(huge_page_address(size_bytes), size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | populate, fd, 0);
    if (data == MAP_FAILED) return error_from_errno(errno, "map shared memory");
    ::madvise(data, size_bytes, MADV_DONTFORK);  // a data loader's child must neither keep nor write it
    return static_cast<std::byte*>(data);
}

Result<void> look_for(std::size_t missing_bytes, std::size_t size_bytes, const std::string& purpose) {
    const auto left = available_memory_bytes();
    if (left >= missing_bytes && left - missing_bytes >= reserve_bytes) return {};
    return too_little(size_bytes, purpose, cat("about ", left >> 10, " KiB are left"));
}

/// Takes huge pages where the kernel has some: a sum of 25 MiB reads and writes 12,800 small pages, and waits for their
/// translations. The kernel makes a huge page of a small one and the nothing behind it, also where the host gives
/// none unasked (shmem_enabled: never). Where it cannot, small pages follow.
void take_huge_pages(std::byte* data, std::size_t size_bytes) {
    size_bytes -= size_bytes % huge_page_bytes;
    for (std::size_t at = 0; at < size_bytes; at += huge_page_bytes)
        if (::madvise(data + at, 1, MADV_POPULATE_WRITE) != 0) return;  // no SIGBUS, as a write might cause
    ::madvise(data, size_bytes, MADV_COLLAPSE);
}

/// What the system's refusal, an errno or 0, means.
Result<void> granted(int failed, std::size_t size_bytes, const std::string& purpose) {
    if (failed == ENOSPC || failed == ENOMEM || failed == EFBIG) {
        return too_little(size_bytes, purpose, error_from_errno(failed, "the system").context);
    }
    if (failed != 0) return error_from_errno(failed, cat("reserve shared memory for ", purpose));
    return {};
}

/// Looks again and again: the other processes of this host may be taking theirs at the same time, each of which alone
/// would have found enough.
Result<void> take_pages(int file, std::byte* data, std::size_t size_bytes, const std::string& purpose) {
    for (std::size_t at = 0; at < size_bytes; at += look_bytes) {
        if (auto enough = look_for(size_bytes - at, size_bytes, purpose); !enough) return enough;
        const auto count = std::min(look_bytes, size_bytes - at);
        take_huge_pages(data + at, count);
        if (auto taken = granted(reserve_space(file, at, count), size_bytes, purpose); !taken) return taken;
    }
    return {};
}

}  // namespace

Result<SharedSegment> SharedSegment::create(std::size_t size_bytes, const std::string& purpose) {
    if (auto enough = look_for(size_bytes, size_bytes, purpose); !enough) return enough.error();
    SharedSegment segment;
    segment.descriptor_ = FileDescriptor(::memfd_create("muster", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!segment.descriptor_.valid()) return error_from_errno(errno, "create shared memory");
    const int file = segment.descriptor_.get();
    const int failed = ::ftruncate(file, static_cast<off_t>(size_bytes)) != 0 ? errno : 0;
    if (auto sized = granted(failed, size_bytes, purpose); !sized) return sized.error();
    segment.data_ = MUSTER_TRY(map_memory(file, size_bytes, 0));
    segment.size_bytes_ = size_bytes;
    if (auto taken = take_pages(file, segment.data_, size_bytes, purpose); !taken) return taken.error();
    ::madvise(segment.data_, size_bytes, MADV_POPULATE_WRITE);  // before Linux 5.14 the first writes do it
    if (::fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        return error_from_errno(errno, "seal shared memory");
    }
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
    SharedSegment segment;
    segment.data_ = MUSTER_TRY(map_memory(memory.get(), size_bytes));
    segment.size_bytes_ = size_bytes;
    return segment;
}

Result<SharedSegment> SharedSegment::map(const FileDescriptor& memory) {
    struct stat facts {};
    if (::fstat(memory.get(), &facts) != 0) return error_from_errno(errno, "look at a peer's shared memory");
    return map(memory, static_cast<std::size_t>(facts.st_size));
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
