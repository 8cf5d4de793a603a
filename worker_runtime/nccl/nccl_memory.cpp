// GPU memory for buckets: one allocation for all of them, registered once.
#include "rendezvous/base/text/text.h"
#include "worker_runtime/nccl/nccl_comm.h"
#include "worker_runtime/nccl/nccl_transport.h"

namespace muster::runtime {

namespace {

/// GPU memory with its clean-up. The communicator may be destroyed before it.
struct DeviceMemory {
    std::shared_ptr<NcclProcess> process;
    std::weak_ptr<NcclComm> communicator;
    std::span<std::byte> bytes;

    DeviceMemory(std::shared_ptr<NcclProcess> owner, void* memory, std::size_t size_bytes)
        : process(std::move(owner)), bytes(static_cast<std::byte*>(memory), size_bytes) {}
    ~DeviceMemory() {
        // Memory must not be in use when its registration ends, and NCCL's free unmaps memory at once: unlike CUDA's,
        // it does not wait for work on it. That work is the caller's.
        process->wait_until_idle();
        if (const auto alive = communicator.lock()) alive->forget(bytes.data());
        process->free(bytes.data(), MemoryUse::buckets);
    }
    DeviceMemory& operator=(DeviceMemory&&) = delete;
};

}  // namespace

Result<Memory> NcclTransport::allocate(std::size_t size_bytes, const RunTerms& terms) {
    auto memory = process_->allocate(size_bytes, MemoryUse::buckets);
    const OperationSignature signature{.act = OperationSignature::Act::allocate, .count = size_bytes};
    const auto number = board_->begin(signature);
    const std::string what = description_of(signature);
    const NcclWait wait = wait_for(cat(what, " (operation ", number, ")"), terms);
    const std::int32_t lacks = memory ? 0 : 1;
    std::vector<std::int32_t> all(static_cast<std::size_t>(group_.size));
    auto agreed = carry_out(all_gather({&lacks, 1, DataType::i32}, {all.data(), all.size(), DataType::i32}), wait);
    std::shared_ptr<DeviceMemory> held;
    if (memory) held = std::make_shared<DeviceMemory>(process_, *memory, size_bytes);
    if (!agreed) return end(agreed.error());
    for (int rank = 0; rank < group_.size; ++rank) {
        if (all[static_cast<std::size_t>(rank)] == 0) continue;
        return Error{Errc::limit_exceeded, cat("cannot take ", size_bytes >> 10, " KiB of GPU memory for communicator ",
                                               group_.id, ": ", board_->who(rank), " has too little GPU memory",
                                               memory ? "" : cat(" (", memory.error().context, ")"))};
    }
    auto done = communicator_->stream().fill_zero(held->bytes.data(), size_bytes);
    if (done && process_->nccl().features.registration && size_bytes > 0) {
        done = communicator_->enlist(held->bytes.data(), size_bytes, wait);
        held->communicator = communicator_;
    }
    if (done) done = communicator_->finish(what, wait);
    if (!done) return end(done.error());
    return Memory(std::shared_ptr<std::span<std::byte>>(held, &held->bytes));
}

}  // namespace muster::runtime
