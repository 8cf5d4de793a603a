// Assigns CPUs and memory to each worker of this node: torchrun's four modes of --numa-binding. Pure; the facts about
// the machine are the input. agent/probes/topology/PLACEMENT.md has the details.
//
// Local rank n belongs to the n-th GPU that CUDA shows, as in torchrun; if there are more workers than GPUs, the
// assignment wraps around. Without GPUs, and for GPUs with an unknown NUMA node, local ranks are distributed
// round-robin over the NUMA nodes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster::agent {

enum class NumaBinding {
    node,          ///< All CPUs of the GPU's NUMA node.
    socket,        ///< All CPUs of all NUMA nodes of that node's socket.
    exclusive,     ///< The node's cores, divided among the workers of its GPUs. The first ones get the remainder.
    core_complex,  ///< Cores of the node with a common last-level cache. A different group for each worker while there
                   ///< are enough; the largest first.
};

/// One CPU as the operating system numbers it. Equal numbers of `core`, `cache` (the last-level one) and `socket` mean
/// that two CPUs share it; they say nothing else.
struct CpuFacts {
    std::uint32_t cpu = 0;
    std::uint32_t core = 0;
    std::uint32_t cache = 0;
    std::uint32_t socket = 0;
    std::uint32_t node = 0;   ///< NUMA node, numbered by the operating system.
    bool is_allowed = false;  ///< True if the process's mask and its cpuset allow it. Slurm and containers set them.
};

struct Topology {
    std::vector<CpuFacts> cpus;
    std::vector<std::uint32_t> memory_nodes;  ///< Nodes from which this process may allocate memory.
    std::string policy_trouble;               ///< Why no memory policy can be set. Empty: it can.
};

struct GpuFacts {
    std::string name;                   ///< PCI address, for messages.
    std::optional<std::uint32_t> node;  ///< Empty: the machine does not report it.
};

/// What one worker gets, in ascending order.
struct Placement {
    std::vector<std::uint32_t> cpus;          ///< Empty: the worker is not bound.
    std::vector<std::uint32_t> memory_nodes;  ///< Nodes whose memory is preferred. Empty: the kernel's default.
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

}  // namespace muster::agent
