// Copies between the GPUs of one node: `muster-gpu-test --between`, a process that sees all of them.
#pragma once

#include <cstdint>

#include "rendezvous/base/error.h"

namespace muster::runtime {

/// Copies 32 MiB from each visible GPU to each other one, and compares what arrived. Prints a record "between" for each
/// pair, with the GPUs as CUDA_VISIBLE_DEVICES names them. Where PCIe's access control or an IOMMU redirects such
/// copies, they may arrive wrong without an error.
Result<void> copy_between_gpus(std::uint64_t seed);

}  // namespace muster::runtime
