// One of our kernels, run on the host: every thread of every block, one after another.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>

#include "worker_runtime/kernels/kernel_list.h"

namespace muster::stand_ins {

/// `blocks` as they were launched. What one thread does must not depend on others in the same phase, nor on the blocks
/// before: both are taken from the last, and threads from the first in every second item, so that it shows if it does.
template <class Kernel>
void run_kernel(const Kernel& kernel, std::uint32_t blocks) {
    using namespace muster::kernels;
    const std::uint64_t items = item_count(kernel);
    auto shared = std::make_unique<typename Kernel::Form::Shared>();
    for (std::uint32_t block = blocks; block-- > 0;) {
        std::memset(static_cast<void*>(shared.get()), 0xa5, sizeof *shared);
        for (std::uint64_t item = block; item < items; item += blocks) {
            for (std::uint32_t phase = 0; phase < count_phases(kernel); ++phase) {
                for (std::uint32_t i = 0; i < threads; ++i) {
                    run_phase(kernel, phase, item, item % 2 == 0 ? threads - 1 - i : i, *shared);
                }
            }
        }
    }
}

/// Launched as kernels::launch() does, or with fewer blocks, which then take several items each.
template <class Kernel>
void launch_here(const Kernel& kernel, std::uint64_t blocks_max = kernels::blocks_max) {
    run_kernel(kernel, static_cast<std::uint32_t>(std::min<std::uint64_t>(kernels::item_count(kernel), blocks_max)));
}

}  // namespace muster::stand_ins
