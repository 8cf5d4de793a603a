// Launches a kernel on a GPU queue: launch(queue, Scale{...}).
#pragma once

#include <algorithm>

#include "worker_runtime/kernels/kernel_list.h"
#include "worker_runtime/transport/device_queue.h"

namespace muster::kernels {

/// Copies the arguments. The memory that they point to must stay valid until the kernel has run.
template <class Kernel>
Result<void> launch(runtime::KernelQueue& queue, const Kernel& kernel) {
    static_assert(number_of<Kernel> != KernelNumber::count, "it is missing in MUSTER_KERNELS");
    const std::uint64_t items = item_count(kernel);
    if (items == 0) return {};
    return queue.launch({.number = number_of<Kernel>,
                         .blocks = static_cast<std::uint32_t>(std::min<std::uint64_t>(items, blocks_max)),
                         .arguments = &kernel});
}

}  // namespace muster::kernels
