// The steps of the test of one GPU. Each prints a record when it is complete; a wrong result is a record, and an error
// means that the GPU, its driver or its memory did not do what was asked.
#pragma once

#include <cstdint>

#include "rendezvous/base/error.h"
#include "worker_runtime/gpu_test/test_device.h"

namespace muster::runtime {

/// Multiplies random matrices again and again, for half a second each in f16 and in f32, and compares the checksums.
Result<void> test_products(TestDevice& device, std::uint64_t seed);

/// Copies from and to locked host memory, and within the GPU, and compares what arrived.
Result<void> test_copies(TestDevice& device, std::uint64_t seed);

/// Writes a pattern and its complement to an eighth of the free memory, at most 1 GiB, and reads them.
Result<void> test_memory(TestDevice& device, std::uint64_t seed);

}  // namespace muster::runtime
