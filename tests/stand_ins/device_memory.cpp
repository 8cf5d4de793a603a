#include "tests/stand_ins/device_memory.h"

#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "tests/stand_ins/current_device.h"

namespace {

struct Block {
    std::size_t size;
    char* reachable;  ///< where the same bytes lie for the stand-ins
};

std::mutex mutex;
/// By the address that the caller knows. Never destroyed: streams may outlive static objects.
std::map<char*, Block>& blocks = *new std::map<char*, Block>;

/// The block of an address; null where it is the host's. Under the mutex.
const std::pair<char* const, Block>* block_of(const void* memory) {
    auto above = blocks.upper_bound(static_cast<char*>(const_cast<void*>(memory)));
    if (above == blocks.begin()) return nullptr;
    --above;
    return memory < above->first + above->second.size ? &*above : nullptr;
}

bool hides_memory() {
    const char* const text = std::getenv("MUSTER_STANDIN_HIDDEN");
    return text != nullptr && *text == '1';
}

/// Whole pages, mapped twice where the caller must not reach them.
char* take_pages(std::size_t size, char*& reachable) {
    const int file = ::memfd_create("standin-gpu", MFD_CLOEXEC);
    if (file < 0 || ::ftruncate(file, static_cast<off_t>(size)) != 0) return nullptr;
    const auto map = [&](int protection) {
        void* const at = ::mmap(nullptr, size, protection, MAP_SHARED, file, 0);
        return at == MAP_FAILED ? nullptr : static_cast<char*>(at);
    };
    reachable = map(PROT_READ | PROT_WRITE);
    char* const known = hides_memory() ? map(PROT_NONE) : reachable;
    ::close(file);
    return reachable != nullptr ? known : nullptr;
}

std::size_t in_pages(std::size_t size) {
    return (size + 4095) / 4096 * 4096;
}

}  // namespace

namespace muster::stand_ins {

bool is_of_device(const void* memory) {
    const std::lock_guard lock(mutex);
    return block_of(memory) != nullptr;
}

void* reach_whole(const void* memory, std::size_t size) {
    const std::lock_guard lock(mutex);
    const auto* const block = block_of(memory);
    if (block == nullptr) return nullptr;
    const auto offset = static_cast<std::size_t>(static_cast<const char*>(memory) - block->first);
    return size <= block->second.size - offset ? block->second.reachable + offset : nullptr;
}

bool give_back(void* memory) {
    const std::lock_guard lock(mutex);
    const auto found = blocks.find(static_cast<char*>(memory));
    if (found == blocks.end()) return false;
    const auto [size, reachable] = found->second;
    ::munmap(reachable, in_pages(size));
    if (reachable != memory) ::munmap(memory, in_pages(size));
    blocks.erase(found);
    return true;
}

}  // namespace muster::stand_ins

extern "C" {

cudaError_t cudaMalloc(void** memory, std::size_t size) {
    char* reachable = nullptr;
    const bool fits = !muster::stand_ins::has_fault("no_memory");
    char* const made = fits ? take_pages(in_pages(size), reachable) : nullptr;
    muster::stand_ins::use_current_device();
    if (made == nullptr) return muster::stand_ins::keep(cudaErrorMemoryAllocation);
    std::memset(reachable, 0xa5, size);
    const std::lock_guard lock(mutex);
    blocks[made] = {.size = size, .reachable = reachable};
    *memory = made;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    muster::stand_ins::use_current_device();
    *free = *total = std::size_t{64} << 20;
    return cudaSuccess;
}

void* standin_reach(const void* memory) {
    const std::lock_guard lock(mutex);
    const auto* const block = block_of(memory);
    if (block == nullptr) return const_cast<void*>(memory);
    return block->second.reachable + (static_cast<const char*>(memory) - block->first);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* facts, const void* memory) {
    muster::stand_ins::use_current_device();
    const std::lock_guard lock(mutex);
    // As many as CUDA 13 writes; the struct of CUDA 12 has 24.
    std::memset(static_cast<void*>(facts), 0, 88);
    facts->type = block_of(memory) != nullptr ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
    return cudaSuccess;
}

}  // extern "C"
