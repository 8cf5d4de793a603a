// Translates an operation for NCCL: types, reductions, the sizes of its memory, and the call itself.
#pragma once

#include <cstddef>
#include <vector>

#include "muster/operation.h"
#include "worker_runtime/nccl/libraries/nccl_table.h"

namespace muster::runtime {

ncclDataType_t nccl_type(DataType type);

/// Returns NCCL's reduction, except for weighted averages and premul_sum, whose reduction must be created.
ncclRedOp_t nccl_reduction(ReduceOp reduce);

/// A rank of a communicator of NCCL, and how many it has.
struct NcclPlace {
    int rank = 0;
    int size = 1;
};

/// The number of elements that `operation` reads and writes there.
std::size_t input_count(const Operation& operation, const NcclPlace& place);
std::size_t output_count(const Operation& operation, const NcclPlace& place);

/// Encodes `value` as a scalar of the floating type `type`, as ncclRedOpCreatePreMulSum expects it.
std::vector<std::byte> scalar_of(DataType type, double value);

/// Makes the call of a collective, send or receive on device memory. A barrier reduces one element of
/// `operation.output`.
ncclResult_t enqueue(const NcclTable& nccl, const Operation& operation, ncclRedOp_t reduction, const NcclPlace& place,
                     ncclComm_t communicator, cudaStream_t stream);

}  // namespace muster::runtime
