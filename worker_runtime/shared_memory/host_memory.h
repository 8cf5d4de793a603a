// Memory of this process that the other ranks of its host use in place: a pool for all groups of the process.
//
// Nothing here is a collective. Each rank allocates when it likes and as much as it likes. An operation's signature
// names the region and the offset of the rank's data. A region that a group has not seen yet is new to all its ranks in
// the same operation, because all see all signatures. So they pass its descriptor in that operation, and map it
// (SharedGroup::map_new_regions). Regions keep their memory for later allocations until the process ends. The pool
// may hold about twice what was in use at once: regions grow with it, and small blocks split large free ones.
//
// After a failure a late rank may still write to the memory of the operation that failed. That region is retired:
// it serves no later allocation, and no later operation in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"

namespace muster::runtime {

class HostMemory {
  public:
    /// A region's number has this bit; numbers of SharedGroup::allocate() do not.
    static constexpr std::uint32_t region_bit = 1u << 31;

    struct Place {
        std::uint32_t region = 0;  ///< 0: not in the pool
        std::uint64_t offset = 0;
    };

    /// A forked child gets an empty pool, because its parent's memory is not mapped there.
    static HostMemory& of_process();

    /// Memory with any content, at an address that is a multiple of 256. limit_exceeded: there is too little.
    Result<std::byte*> allocate(std::size_t size_bytes);
    /// Returns false if `data` is not the start of memory in use from allocate().
    bool release(const void* data);

    [[nodiscard]] Place find(const void* data) const;
    /// A copy of the region's descriptor, for other processes.
    [[nodiscard]] Result<FileDescriptor> descriptor(std::uint32_t region) const;
    /// Excludes the region from later use. Its memory is freed with the last of its allocations.
    void retire(std::uint32_t region);

  private:
    struct Region;
    struct Block {
        Region* region;
        std::size_t offset;
        std::size_t size_bytes;
    };
    HostMemory();
    ~HostMemory();
    [[nodiscard]] std::byte* lend(std::size_t size_bytes);

    mutable std::mutex mutex_;
    std::vector<std::unique_ptr<Region>> regions_;
    std::map<const void*, Block> in_use_;
    std::size_t total_bytes_ = 0;
    std::uint32_t newest_ = 0;
};

}  // namespace muster::runtime
