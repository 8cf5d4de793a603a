#include "worker_runtime/shared_memory/host_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "worker_runtime/shared_memory/shared_segment.h"

namespace muster::runtime {

namespace {

constexpr std::size_t granule_bytes = 256;
/// A new region is at least this large, and as large as all before it: few regions, little that nobody asked for.
constexpr std::size_t region_bytes_min = std::size_t{4} << 20;
constexpr std::size_t region_bytes_usual_max = std::size_t{256} << 20;

std::size_t round_up(std::size_t value, std::size_t unit) {
    return (value + unit - 1) / unit * unit;
}

/// Larger than any host's memory: sizes are rounded up, which overflows without a limit.
constexpr std::size_t size_bytes_max = std::size_t{1} << 56;

}  // namespace

struct HostMemory::Region {
    SharedSegment segment;
    std::uint32_t number = 0;
    bool is_retired = false;
    std::size_t blocks_in_use = 0;
    std::map<std::size_t, std::size_t> free{};  ///< size by offset; neighbours are always joined

    std::optional<std::size_t> take(std::size_t size_bytes) {
        const auto fits =
            std::find_if(free.begin(), free.end(), [&](const auto& one) { return one.second >= size_bytes; });
        if (is_retired || fits == free.end()) return std::nullopt;
        const auto [offset, size] = *fits;
        free.erase(fits);
        if (size > size_bytes) free.emplace(offset + size_bytes, size - size_bytes);
        ++blocks_in_use;
        return offset;
    }

    void give_back(std::size_t offset, std::size_t size_bytes) {
        --blocks_in_use;
        auto next = free.lower_bound(offset);
        if (next != free.end() && next->first == offset + size_bytes) {
            size_bytes += next->second;
            next = free.erase(next);
        }
        if (next != free.begin()) {
            const auto before = std::prev(next);
            if (before->first + before->second == offset) {
                before->second += size_bytes;
                return;
            }
        }
        free.emplace(offset, size_bytes);
    }
};

HostMemory::HostMemory() = default;
HostMemory::~HostMemory() = default;

HostMemory& HostMemory::of_process() {
    // Never destroyed: threads may release memory until the process ends.
    static HostMemory* pool = [] {
        ::pthread_atfork(nullptr, nullptr, [] { pool = new HostMemory; });
        return new HostMemory;
    }();
    return *pool;
}

Result<std::byte*> HostMemory::allocate(std::size_t size_bytes) {
    if (size_bytes > size_bytes_max)
        return Error{Errc::limit_exceeded, "no host has as much memory (a negative size?)"};
    const std::size_t wanted = round_up(std::max<std::size_t>(size_bytes, 1), granule_bytes);
    std::size_t usual = 0;
    {
        const std::lock_guard lock(mutex_);
        if (auto* const data = lend(wanted)) return data;
        usual = std::clamp(total_bytes_, region_bytes_min, region_bytes_usual_max);
    }
    // Without the lock: it takes seconds for gigabytes, and all operations of the process look into the pool.
    auto segment = SharedSegment::create(round_up(std::max(wanted, usual), 4096), "tensors that ranks share");
    if (!segment && segment.error().code == Errc::limit_exceeded && wanted < usual)
        segment = SharedSegment::create(round_up(wanted, 4096), "tensors that ranks share");
    if (!segment) return segment.error();
    const std::lock_guard lock(mutex_);
    auto region = std::make_unique<Region>(Region{.segment = std::move(*segment), .number = region_bit | ++newest_});
    region->free.emplace(0, region->segment.size_bytes());
    total_bytes_ += region->segment.size_bytes();
    regions_.insert(regions_.begin(), std::move(region));  // first, so that nobody else has taken it
    return lend(wanted);
}

/// Null if no region has a free block of this size.
std::byte* HostMemory::lend(std::size_t size_bytes) {
    for (const auto& region : regions_) {
        const auto offset = region->take(size_bytes);
        if (!offset) continue;
        std::byte* const data = region->segment.data() + *offset;
        in_use_[data] = {.region = region.get(), .offset = *offset, .size_bytes = size_bytes};
        return data;
    }
    return nullptr;
}

bool HostMemory::release(const void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = in_use_.find(data);
    if (found == in_use_.end()) return false;
    Region* const region = found->second.region;
    region->give_back(found->second.offset, found->second.size_bytes);
    in_use_.erase(found);
    if (region->is_retired && region->blocks_in_use == 0) {
        total_bytes_ -= region->segment.size_bytes();
        std::erase_if(regions_, [&](const auto& one) { return one.get() == region; });
    }
    return true;
}

HostMemory::Place HostMemory::find(const void* data) const {
    const std::lock_guard lock(mutex_);
    for (const auto& region : regions_) {
        const auto offset = static_cast<const std::byte*>(data) - region->segment.data();
        if (offset < 0 || offset >= static_cast<std::ptrdiff_t>(region->segment.size_bytes())) continue;
        if (region->is_retired) break;
        return {.region = region->number, .offset = static_cast<std::uint64_t>(offset)};
    }
    return {};
}

Result<FileDescriptor> HostMemory::descriptor(std::uint32_t region) const {
    const std::lock_guard lock(mutex_);
    for (const auto& one : regions_) {
        if (one->number != region) continue;
        FileDescriptor copy(::fcntl(one->segment.descriptor().get(), F_DUPFD_CLOEXEC, 0));
        if (!copy.valid()) return error_from_errno(errno, "copy the descriptor of shared memory");
        return copy;
    }
    return Error{Errc::invalid_argument, "the memory of an operation was freed while the operation ran"};
}

void HostMemory::retire(std::uint32_t region) {
    const std::lock_guard lock(mutex_);
    const auto found =
        std::find_if(regions_.begin(), regions_.end(), [&](const auto& one) { return one->number == region; });
    if (found == regions_.end()) return;
    (*found)->is_retired = true;
    if ((*found)->blocks_in_use > 0) return;
    total_bytes_ -= (*found)->segment.size_bytes();
    regions_.erase(found);
}

}  // namespace muster::runtime
