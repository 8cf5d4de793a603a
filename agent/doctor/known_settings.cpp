#include "agent/doctor/known_settings.h"

namespace muster::agent {

std::span<const KnownSetting> known_settings() {
    static constexpr KnownSetting settings[] = {
        {"CUDA_DEVICE_MAX_CONNECTIONS", "Hardware queues of a GPU. Megatron's tensor parallelism wants 1."},
        {"CUDA_LAUNCH_BLOCKING", "1 waits for each kernel. For debugging only: it removes all overlap."},
        {"CUDA_VISIBLE_DEVICES", "The GPUs that a process sees, by index or UUID."},
        {"GLOO_SOCKET_IFNAME", "The interface of gloo, by its exact name. muster sets it if it is not set."},
        {"NCCL_ALGO", "Restricts NCCL's algorithms. Its own choice is nearly always faster."},
        {"NCCL_ASYNC_ERROR_HANDLING", "Old name of TORCH_NCCL_ASYNC_ERROR_HANDLING."},
        {"NCCL_BLOCKING_WAIT", "Old name of TORCH_NCCL_BLOCKING_WAIT."},
        {"NCCL_BUFFSIZE", "Bytes of NCCL's buffer for each channel. Default: 4 MiB."},
        {"NCCL_CROSS_NIC", "1 lets rings cross between rails, 0 forbids it, 2 lets NCCL choose."},
        {"NCCL_DEBUG", "NCCL's log: VERSION, WARN, INFO or TRACE. TRACE slows a job down."},
        {"NCCL_DEBUG_FILE", "The file of NCCL's log; %h is the host and %p the pid."},
        {"NCCL_DEBUG_SUBSYS", "The parts of NCCL that log, e.g. INIT,NET."},
        {"NCCL_IB_DISABLE", "1 forbids InfiniBand and RoCE: NCCL uses TCP, which is many times slower."},
        {"NCCL_IB_GID_INDEX", "The address of a RoCE port. NCCL >= 2.21 finds it; a copied number may be wrong here."},
        {"NCCL_IB_HCA", "The InfiniBand or RoCE devices, e.g. =mlx5_0:1,mlx5_1. ^ excludes, = matches exactly."},
        {"NCCL_IB_RETRY_CNT", "Retries of an InfiniBand message before an error. Default: 7."},
        {"NCCL_IB_SL", "The service level of InfiniBand. The fabric's operator defines it."},
        {"NCCL_IB_TC", "The traffic class of RoCE. The fabric's operator defines it."},
        {"NCCL_IB_TIMEOUT", "The timeout of an InfiniBand message: 4.096 us * 2^N. Default: 20."},
        {"NCCL_LAUNCH_MODE", "Obsolete: leave it unset."},
        {"NCCL_MAX_NCHANNELS", "The most channels of NCCL, each a block of a GPU."},
        {"NCCL_MIN_NCHANNELS", "The least channels of NCCL."},
        {"NCCL_NET", "The network plugin by name. Unset: NCCL chooses."},
        {"NCCL_NET_GDR_LEVEL", "How far a NIC may be from a GPU for GPUDirect RDMA: LOC, PIX, PXB, PHB, SYS."},
        {"NCCL_NTHREADS", "Threads of a NCCL block. Leave it unset."},
        {"NCCL_NVLS_ENABLE", "0 switches NVLink SHARP off."},
        {"NCCL_P2P_DISABLE",
         "1 forbids direct copies between GPUs, NVLink included. A workaround for broken machines."},
        {"NCCL_P2P_LEVEL", "How far apart two GPUs may be for direct copies: LOC, NVL, PIX, PXB, PHB, SYS."},
        {"NCCL_PROTO", "Restricts NCCL's protocols. A wrong value may corrupt data: leave it unset."},
        {"NCCL_SHM_DISABLE", "1 forbids shared memory: processes of one host then use the network."},
        {"NCCL_SOCKET_FAMILY", "AF_INET or AF_INET6: the address family of NCCL's bootstrap."},
        {"NCCL_SOCKET_IFNAME",
         "The interfaces of NCCL's bootstrap and TCP: prefixes, e.g. eth,ib. ^ excludes, = matches exactly."},
        {"NCCL_TOPO_FILE", "A description of the machine in place of what NCCL finds."},
        {"OMP_NUM_THREADS", "Threads of OpenMP in each worker. muster sets 1 if several workers run."},
        {"TORCH_DISTRIBUTED_DEBUG", "INFO or DETAIL: checks of collectives. DETAIL is slow."},
        {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "How PyTorch ends a process after a NCCL error. Default: 3."},
        {"TORCH_NCCL_BLOCKING_WAIT", "1 makes wait() block the CPU until the collective ends."},
        {"TORCH_NCCL_DUMP_ON_TIMEOUT", "1 writes the flight recorder when a collective times out."},
        {"TORCH_NCCL_ENABLE_MONITORING", "1 ends a process whose watchdog thread is stuck."},
        {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "The time after which a stuck watchdog ends the process."},
        {"TORCH_NCCL_TRACE_BUFFER_SIZE", "Entries of PyTorch's flight recorder. 0: off."},
        {"UCX_NET_DEVICES", "The network devices of UCX."},
        {"UCX_TLS", "The transports of UCX."},
    };
    return settings;
}

}  // namespace muster::agent
