#include "worker_runtime/nccl/staging.h"

#include <algorithm>

namespace muster::runtime {

Staging::~Staging() {
    for (const auto* room : {&input_, &output_}) {
        for (void* const block : room->blocks) process_->free(block, MemoryUse::staging);
    }
}

bool Staging::on_host(const void* memory) const {
    // The lane's thread may not have used the GPU before: without this, CUDA would create a context on GPU 0.
    const auto used = process_->use_device();
    return !used || !process_->cuda().is_of_device(memory);
}

Result<void*> Staging::room(Room& room, std::size_t size_bytes) {
    if (room.size_bytes < size_bytes) {
        const std::size_t wanted = std::max({size_bytes, room.size_bytes * 2, std::size_t{64} << 10});
        auto block = process_->allocate(wanted, MemoryUse::staging);
        if (!block) return block;
        room.blocks.push_back(*block);
        room.size_bytes = wanted;
    }
    return room.blocks.back();
}

Result<Operation> Staging::bring(const Operation& operation, const NcclPlace& place, NcclQueue& stream) {
    Operation staged = operation;
    const std::size_t element = size_of(operation.type);
    const std::size_t input_bytes = input_count(operation, place) * element;
    const std::size_t output_bytes = output_count(operation, place) * element;
    if (input_bytes > 0 && on_host(operation.input)) {
        auto on_device = MUSTER_TRY(room(input_, input_bytes));
        MUSTER_TRY(stream.copy(on_device, operation.input, input_bytes));
        staged.input = on_device;
    }
    if (output_bytes > 0 && on_host(operation.output)) {
        auto on_device = MUSTER_TRY(room(output_, output_bytes));
        staged.output = on_device;
        // What lies between the parts comes back as it is.
        if (operation.kind == OperationKind::all_to_all_uneven)
            if (auto copied = stream.copy(on_device, operation.output, output_bytes); !copied) return copied.error();
    }
    return staged;
}

Result<void> Staging::take_back(const Operation& operation, const Operation& staged, const NcclPlace& place,
                                NcclQueue& stream) {
    if (staged.output == operation.output) return {};
    const std::size_t output_bytes = output_count(operation, place) * size_of(operation.type);
    return stream.copy(operation.output, staged.output, output_bytes);
}

}  // namespace muster::runtime
