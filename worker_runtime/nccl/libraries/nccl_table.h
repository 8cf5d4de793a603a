// The functions of NCCL that the plugin uses, with the version gate. No other part calls NCCL.
#pragma once

#include <nccl.h>

#include <string>
#include <string_view>

#include "rendezvous/base/error.h"
#include "worker_runtime/nccl/core/nccl_version.h"

namespace muster::runtime {

/// By their names in the table; the last six are there only if `features` has the feature.
// clang-format off
#define MUSTER_NCCL_FUNCTIONS(x) \
    x(unique_id, ncclGetUniqueId) x(error_string, ncclGetErrorString) x(last_error, ncclGetLastError) \
    x(init, ncclCommInitRankConfig) x(finalize, ncclCommFinalize) x(destroy, ncclCommDestroy) \
    x(abort, ncclCommAbort) x(async_error, ncclCommGetAsyncError) x(all_reduce, ncclAllReduce) x(reduce, ncclReduce) \
    x(reduce_scatter, ncclReduceScatter) x(all_gather, ncclAllGather) x(broadcast, ncclBroadcast) x(send, ncclSend) \
    x(receive, ncclRecv) x(group_start, ncclGroupStart) x(group_end, ncclGroupEnd) \
    x(weighted_sum, ncclRedOpCreatePreMulSum) x(forget_reduction, ncclRedOpDestroy) \
    x(init_scalable, ncclCommInitRankScalable) x(split, ncclCommSplit) x(allocate, ncclMemAlloc) \
    x(free, ncclMemFree) x(enlist, ncclCommRegister) x(delist, ncclCommDeregister)
// clang-format on

struct NcclTable {
#define MUSTER_MEMBER(member, function) decltype(&::function) member = nullptr;
    MUSTER_NCCL_FUNCTIONS(MUSTER_MEMBER)
#undef MUSTER_MEMBER

    NcclFeatures features;
    std::string path;

    /// Loads the library `named`, else libnccl.so.2. unsupported names what is missing or too old.
    static Result<NcclTable> load(const std::string& named);

    /// Succeeds for success and for "in progress"; else the error is "`what`: <NCCL's texts>".
    [[nodiscard]] Result<void> check(ncclResult_t result, std::string_view what, ncclComm_t communicator) const;
};

}  // namespace muster::runtime
