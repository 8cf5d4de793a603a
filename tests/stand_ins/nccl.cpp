// A stand-in for NCCL over host memory: the part of it that the plugin uses, loaded in its place beside the stand-in
// for CUDA. It keeps NCCL's rules, and hangs or fails where NCCL would:
//   - every communicator is non-blocking; after a call that gives ncclInProgress any other but ncclCommGetAsyncError is
//     an error until that has said ncclSuccess
//   - memory must be of the device; operations run on their stream, in order
//   - ncclMemFree takes memory away at once, whatever is at work on it
//   - ranks that do different things, and ranks whose peer has gone, wait for ever
//   - an abort with memory that is still registered, or beside a free that waits, does not return, nor does one of a
//   communicator alone while
//     another's operation is stuck
//
// MUSTER_STANDIN_NCCL_VERSION  what ncclGetVersion says
// MUSTER_STANDIN_FAULT         one fault of this process: init_fails, init_hangs, split_fails, register_fails,
//                              no_memory, abort_hangs, finalize_hangs, destroy_hangs, split_ends_late (a child's
//                              handle is written while its parent is aborted), dies_in_split:STAGE (0: before the
//                              ranks' choices are exchanged, 1: after it, 2: when a child is there), or with a number
//                              of operations
//                              that go well before: async_error:N, stuck:N, or ends_badly:N, which is over on the
//                              GPU while the communicator has failed
// standin_calls() says how many operations have been put on streams by this process, standin_communicators() how many
// communicators it has that were neither destroyed nor aborted.
// Compiled with STANDIN_OLD it is 2.18, which has nothing of what came later.
#include <nccl.h>

#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "tests/stand_ins/nccl_comm.h"

using namespace muster::stand_ins;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
    const char* const text = std::getenv("MUSTER_STANDIN_NCCL_VERSION");
    *version = text != nullptr ? std::atoi(text) : own_version;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    const std::string name = muster::stand_ins::open_hub();
    *id = {};
    std::memcpy(id->internal, name.data(), name.size());
    return name.empty() ? ncclSystemError : ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
    switch (result) {
        case ncclSuccess: return "no error";
        case ncclUnhandledCudaError: return "unhandled cuda error";
        case ncclSystemError: return "unhandled system error";
        case ncclInvalidArgument: return "invalid argument";
        case ncclInvalidUsage: return "invalid usage";
        case ncclRemoteError: return "remote process exited or there was a network error";
        case ncclInProgress: return "NCCL operation in progress";
        default: return "internal error";
    }
}

const char* ncclGetLastError(ncclComm_t /*comm*/) {
    return last_error.c_str();
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
    return init(comm, size, rank, id, config);
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
    const auto comm = find(handle);
    if (const auto good = usable(comm); good != ncclSuccess) return good;
    in_progress(comm);
    const std::lock_guard lock(comm->mutex);
    comm->connecting = fault() == "finalize_hangs";
    return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
    const auto comm = find(handle);
    if (const auto good = usable(comm); good != ncclSuccess) return good;
    if (fault() == "destroy_hangs") hang();
    comm->link.end();
    forget(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
    const auto comm = find(handle);
    if (!comm) return ncclInvalidArgument;
    if (group.depth > 0 && own_version >= 22200) {
        group.aborts.push_back(comm);
    } else {
        abort_together({comm});
    }
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* state) {
    const auto comm = find(handle);
    if (!comm) return ncclInvalidArgument;
    const std::lock_guard lock(comm->mutex);
    if (comm->state == ncclInProgress && !comm->connecting && --comm->polls <= 0) comm->state = ncclSuccess;
    *state = comm->state;
    return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
    ++group.depth;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
    if (--group.depth > 0) return ncclSuccess;
    auto said = std::move(group);
    group = {};
    if (!said.aborts.empty()) abort_together(said.aborts);
    return said.transfers.empty() ? ncclSuccess : move(std::move(said.transfers));
}

ncclResult_t ncclCommSplit(ncclComm_t handle, int color, int key, ncclComm_t* made, ncclConfig_t* config) {
    const auto parent = find(handle);
    if (!is_good(config)) return ncclInvalidArgument;
    if (const auto good = usable(parent); good != ncclSuccess) return good;
    if (fault() == "split_fails") return refuse(ncclInternalError, "no memory for a child");
    in_progress(parent);
    if (parent->connector.joinable()) parent->connector.join();
    parent->connecting = true;
    parent->connector = std::thread([raw = parent.get(), color, key, made] { split(*raw, color, key, made); });
    return ncclInProgress;
}

#ifndef STANDIN_OLD

ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int size, int rank, int count, ncclUniqueId* ids,
                                      ncclConfig_t* config) {
    return count < 1 || count > size ? ncclInvalidArgument : init(comm, size, rank, ids[count - 1], config);
}

ncclResult_t ncclMemAlloc(void** memory, std::size_t size) {
    if (fault() == "no_memory") return refuse(ncclUnhandledCudaError, "Cuda failure 2 'out of memory'");
    return cudaMalloc(memory, size) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void* memory) {
    return give_back(memory) ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclCommRegister(const ncclComm_t handle, void* memory, std::size_t /*size*/, void** registration) {
    const auto comm = find(handle);
    if (const auto good = usable(comm); good != ncclSuccess) return good;
    if (fault() == "register_fails") return refuse(ncclInternalError, "this memory cannot be registered");
    comm->registered.insert(memory);
    *registration = memory;
    return in_progress(comm);
}

ncclResult_t ncclCommDeregister(const ncclComm_t handle, void* registration) {
    const auto comm = find(handle);
    return comm && comm->registered.erase(registration) == 1 ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclCommShrink(ncclComm_t /*comm*/, int* /*excluded*/, int /*count*/, ncclComm_t* /*made*/,
                            ncclConfig_t* /*config*/, int /*flags*/) {
    return refuse(ncclInvalidUsage, "the stand-in does not shrink");
}

#endif

}  // extern "C"
