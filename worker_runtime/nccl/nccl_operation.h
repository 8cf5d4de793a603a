// Translates an operation for NCCL: types, reductions, the sizes of its memory, and the call itself.
#pragma once

#include <cstddef>
#include <vector>

#include "muster/operation.h"
#include "worker_runtime/nccl/libraries/nccl_table.h"

namespace muster::runtime {

ncclDataType_t nccl_type(DataType type);

/// For all but averages with weights, whose reduction has to be made.
ncclRedOp_t nccl_reduction(ReduceOp reduce);

/// Elements that `operation` reads and writes on one of `size` ranks.
std::size_t input_count(const Operation& operation, int size);
std::size_t output_count(const Operation& operation, int size);

/// `value` in the format of a `type`, which is a floating one: what ncclRedOpCreatePreMulSum wants to be pointed to.
std::vector<std::byte> scalar_of(DataType type, double value);

/// Makes the call of a collective, send or receive on device memory. A barrier reduces one element of
/// `operation.output`.
ncclResult_t enqueue(const NcclTable& nccl, const Operation& operation, ncclRedOp_t reduction, int size,
                     ncclComm_t communicator, cudaStream_t stream);

}  // namespace muster::runtime
