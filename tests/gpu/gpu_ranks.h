// Ranks on real GPUs, through the plugin as a trainer meets it, for tests and benchmarks. The libraries are the
// system's, or those that MUSTER_CUDA_LIBRARY and MUSTER_NCCL_LIBRARY name.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "muster/communicator.h"
#include "rendezvous/base/error.h"
#include "worker_runtime/nccl/libraries/cuda_table.h"
#include "worker_runtime/nccl/plugin.h"
#include "worker_runtime/transport/meeting_place.h"

namespace muster::test {

/// A rank's end of a group over NCCL, on GPU `device`.
Result<Communicator> join_gpu_group(runtime::GroupTerms group, int device, Duration timeout = 60s);

/// Lets two ranks share one GPU, which NCCL refuses on one host: by different host ids it takes them for two hosts, and
/// sockets carry the data. Before anything of NCCL is called in this process.
void pretend_to_be_host(int number);

/// Runs `body` as each rank, in processes that share GPU 0; what was wrong, which the ranks also print.
std::string on_one_gpu(int size, const std::function<std::string(Communicator&, int rank)>& body);

/// A stream of this process's own, to look at device memory and to fill it.
class GpuMemoryAccess {
  public:
    static Result<std::unique_ptr<GpuMemoryAccess>> open(int device);
    Result<void> write(void* device_memory, const void* from, std::size_t size_bytes);
    Result<void> read(void* to, const void* device_memory, std::size_t size_bytes);
    /// Fills memory without waiting; the event behind that is for Operation::after.
    Result<void*> begin_fill(void* device_memory, int byte, std::size_t size_bytes);
    /// The same between two places of device memory.
    Result<void*> begin_copy(void* to, const void* from, std::size_t size_bytes);

  private:
    Result<void> finish();
    runtime::CudaTable cuda_;
    cudaStream_t stream_ = nullptr;
    cudaEvent_t done_ = nullptr;
};

/// How many GPUs CUDA sees, in a process of its own: CUDA does not survive a fork. 0, with the reason in `why`.
int gpu_count(std::string& why);

}  // namespace muster::test
