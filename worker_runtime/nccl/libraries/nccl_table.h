// The functions of NCCL that the plugin uses, with the version gate. No other part calls NCCL.
#pragma once

#include <nccl.h>

#include <string>
#include <string_view>

#include "rendezvous/base/error.h"
#include "worker_runtime/nccl/core/nccl_version.h"

namespace muster::runtime {

struct NcclTable {
    decltype(&::ncclGetUniqueId) unique_id = nullptr;
    decltype(&::ncclGetErrorString) error_string = nullptr;
    decltype(&::ncclGetLastError) last_error = nullptr;
    decltype(&::ncclCommInitRankConfig) init = nullptr;
    decltype(&::ncclCommFinalize) finalize = nullptr;
    decltype(&::ncclCommDestroy) destroy = nullptr;
    decltype(&::ncclCommAbort) abort = nullptr;
    decltype(&::ncclCommGetAsyncError) async_error = nullptr;
    decltype(&::ncclAllReduce) all_reduce = nullptr;
    decltype(&::ncclReduce) reduce = nullptr;
    decltype(&::ncclReduceScatter) reduce_scatter = nullptr;
    decltype(&::ncclAllGather) all_gather = nullptr;
    decltype(&::ncclBroadcast) broadcast = nullptr;
    decltype(&::ncclSend) send = nullptr;
    decltype(&::ncclRecv) receive = nullptr;
    decltype(&::ncclGroupStart) group_start = nullptr;
    decltype(&::ncclGroupEnd) group_end = nullptr;
    decltype(&::ncclRedOpCreatePreMulSum) weighted_sum = nullptr;
    decltype(&::ncclRedOpDestroy) forget_reduction = nullptr;

    // Set only if `features` has the feature.
    decltype(&::ncclCommInitRankScalable) init_scalable = nullptr;
    decltype(&::ncclCommSplit) split = nullptr;
    decltype(&::ncclMemAlloc) allocate = nullptr;
    decltype(&::ncclMemFree) free = nullptr;
    decltype(&::ncclCommRegister) enlist = nullptr;
    decltype(&::ncclCommDeregister) delist = nullptr;

    NcclFeatures features;
    std::string path;

    /// Loads the library `named`, else libnccl.so.2. unsupported names what is missing or too old.
    static Result<NcclTable> load(const std::string& named);

    /// Succeeds for success and for "in progress"; else the error is "`what`: <NCCL's texts>".
    [[nodiscard]] Result<void> check(ncclResult_t result, std::string_view what, ncclComm_t communicator) const;
};

}  // namespace muster::runtime
