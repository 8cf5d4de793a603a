// Which CPUs and which memory each worker of this node gets: torchrun's four modes of --numa-binding. Pure; the facts
// about the machine come in. agent/probes/topology/PLACEMENT.md says more.
//
// Local rank n belongs to the n-th GPU that CUDA shows, as in torchrun; where workers outnumber GPUs, they take turns.
// Without GPUs, and for GPUs whose place the machine does not tell, the local ranks go round the NUMA nodes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster::agent {

enum class NumaBinding {
    node,          ///< all CPUs of the GPU's NUMA node
    socket,        ///< all CPUs of all NUMA nodes of that node's socket
    exclusive,     ///< the node's cores, divided among those whose GPUs are on it; the first ones get the remainder
    core_complex,  ///< one group of the node's cores that share a last-level cache, another one for each as long as
                   ///< there are some; the largest first
};

/// One CPU as the operating system numbers it. Equal numbers of `core`, `cache` (the last-level one) and `socket` mean
/// that two CPUs share it; they say nothing else.
struct CpuFacts {
    std::uint32_t cpu = 0;
    std::uint32_t core = 0;
    std::uint32_t cache = 0;
    std::uint32_t socket = 0;
    std::uint32_t node = 0;   ///< NUMA node, as the operating system numbers it
    bool is_allowed = false;  ///< by the process's mask and its cpuset, which Slurm and containers set
};

struct Topology {
    std::vector<CpuFacts> cpus;
    std::vector<std::uint32_t> memory_nodes;  ///< from which this process may have memory
    std::string policy_trouble;               ///< why no memory policy can be set; empty: it can
};

struct GpuFacts {
    std::string name;                   ///< its PCI address, for messages
    std::optional<std::uint32_t> node;  ///< nothing: the machine does not tell
};

/// What one worker gets, in ascending order.
struct Placement {
    std::vector<std::uint32_t> cpus;          ///< empty: it is not bound
    std::vector<std::uint32_t> memory_nodes;  ///< whose memory is preferred; empty: the kernel's choice
};

/// One for each local rank, `worker_count` >= 1; none without CPUs. `gpus` are those that CUDA shows, in its order. The
/// error is one line for the user, without the option's name: a worker's NUMA node has no CPU that is allowed, or too
/// few cores.
Result<std::vector<Placement>> place_workers(NumaBinding mode, const Topology& topology,
                                             const std::vector<GpuFacts>& gpus, std::uint32_t worker_count);

/// Threads for each worker: the cores among its CPUs, a core that several workers have counted as that part; at least
/// 1. `quota` is the CPUs that the control group gives to all of them; 0: no limit. An unbound worker has all CPUs that
/// are allowed.
std::vector<std::uint32_t> worker_threads(const Topology& topology, const std::vector<Placement>& placements,
                                          std::uint32_t quota);

/// "0-3,8": as the kernel writes a list of CPUs; `numbers` ascend.
std::string describe_ranges(const std::vector<std::uint32_t>& numbers);

}  // namespace muster::agent
