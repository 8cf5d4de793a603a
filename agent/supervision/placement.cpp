// The rules are those of torch/numa/binding.py (PyTorch 2.13). A test has its answers for random machines.
#include "agent/supervision/placement.h"

#include <algorithm>
#include <map>
#include <set>

#include "rendezvous/base/check.h"
#include "rendezvous/base/text/number_ranges.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

using Numbers = std::vector<std::uint32_t>;

/// Whom a share of a NUMA node is for: each worker, and each GPU that no worker uses.
struct Seat {
    std::uint32_t node = 0;
    std::string why;  ///< The GPU that determined the node, for messages. Empty: none did.
};

/// The CPUs that are allowed, by what they share, in the order of the lowest of each group.
std::vector<Numbers> groups(const Topology& topology, std::uint32_t node, auto key) {
    std::map<std::uint32_t, Numbers> by_key;
    for (const auto& cpu : topology.cpus)
        if (cpu.is_allowed && cpu.node == node) by_key[key(cpu)].push_back(cpu.cpu);
    std::vector<Numbers> found;
    for (auto& [name, cpus] : by_key) {
        std::sort(cpus.begin(), cpus.end());
        found.push_back(std::move(cpus));
    }
    std::sort(found.begin(), found.end());
    return found;
}

Numbers flatten(const std::vector<Numbers>& groups) {
    Numbers all;
    for (const auto& group : groups) all.insert(all.end(), group.begin(), group.end());
    std::sort(all.begin(), all.end());
    return all;
}

class Placer {
  public:
    Placer(const Topology& topology, const std::vector<GpuFacts>& gpus, std::uint32_t worker_count)
        : topology_(topology) {
        std::set<std::uint32_t> homes;
        for (const auto& cpu : topology.cpus)
            if (cpu.is_allowed) homes.insert(cpu.node);
        homes_.assign(homes.begin(), homes.end());
        seat_all(gpus, std::max<std::size_t>(worker_count, gpus.size()));
    }

    Result<Placement> place(NumaBinding mode, std::uint32_t local_rank) const {
        const auto& seat = seats_[local_rank];
        auto cores = groups(topology_, seat.node, [](const auto& cpu) { return cpu.core; });
        if (cores.empty()) return nothing_allowed(seat);
        switch (mode) {
            case NumaBinding::node: return bound_to(flatten(cores), {seat.node});
            case NumaBinding::socket: return socket_of(seat.node);
            case NumaBinding::exclusive: return share_of(cores, local_rank);
            case NumaBinding::core_complex: return complex_of(local_rank);
        }
        MUSTER_CHECK(false, static_cast<int>(mode));
    }

  private:
    void seat_all(const std::vector<GpuFacts>& gpus, std::size_t seat_count) {
        std::size_t next_home = 0;
        for (std::size_t i = 0; i < seat_count && !homes_.empty(); ++i) {
            const auto* gpu = gpus.empty() ? nullptr : &gpus[i % gpus.size()];
            if (gpu != nullptr && gpu->node)
                seats_.push_back({*gpu->node, cat("its GPU ", gpu->name, " is on")});
            else
                seats_.push_back({homes_[next_home++ % homes_.size()], {}});
        }
    }

    Placement bound_to(Numbers cpus, const std::set<std::uint32_t>& nodes) const {
        Placement placement{.cpus = std::move(cpus), .memory_nodes = {}};
        for (const auto node : nodes)
            if (std::find(topology_.memory_nodes.begin(), topology_.memory_nodes.end(), node) !=
                topology_.memory_nodes.end())
                placement.memory_nodes.push_back(node);
        return placement;
    }

    Placement socket_of(std::uint32_t node) const {
        const auto lowest = groups(topology_, node, [](const auto& cpu) { return cpu.node; }).front().front();
        const auto first = std::find_if(topology_.cpus.begin(), topology_.cpus.end(),
                                        [&](const auto& cpu) { return cpu.cpu == lowest; });
        Numbers cpus;
        std::set<std::uint32_t> nodes;
        for (const auto& cpu : topology_.cpus) {
            if (!cpu.is_allowed || cpu.socket != first->socket) continue;
            cpus.push_back(cpu.cpu);
            nodes.insert(cpu.node);
        }
        std::sort(cpus.begin(), cpus.end());
        return bound_to(std::move(cpus), nodes);
    }

    Result<Placement> share_of(const std::vector<Numbers>& cores, std::uint32_t local_rank) const {
        const auto node = seats_[local_rank].node;
        const auto place = place_on_node(local_rank), sharers = sharers_of(node);
        if (cores.size() < sharers)
            return Error{Errc::invalid_argument,
                         cat("NUMA node ", node, " has ", cores.size(), cores.size() == 1 ? " core" : " cores",
                             " that this process may use, but ", sharers,
                             " GPUs or workers share them; write --numa-binding=node, or request more cores")};
        const auto each = cores.size() / sharers, remainder = cores.size() % sharers;
        const auto first = place * each + std::min(place, remainder);
        const auto count = each + (place < remainder ? 1 : 0);
        const auto begin = cores.begin() + static_cast<std::ptrdiff_t>(first);
        return bound_to(flatten({begin, begin + static_cast<std::ptrdiff_t>(count)}), {node});
    }

    Placement complex_of(std::uint32_t local_rank) const {
        const auto node = seats_[local_rank].node;
        auto caches = groups(topology_, node, [](const auto& cpu) { return cpu.cache; });
        std::stable_sort(caches.begin(), caches.end(),
                         [](const auto& one, const auto& other) { return one.size() > other.size(); });
        return bound_to(caches[place_on_node(local_rank) % caches.size()], {node});
    }

    std::size_t sharers_of(std::uint32_t node) const { return sharers_before(node, seats_.size()); }
    std::size_t place_on_node(std::uint32_t local_rank) const {
        return sharers_before(seats_[local_rank].node, local_rank);
    }
    std::size_t sharers_before(std::uint32_t node, std::size_t end) const {
        return static_cast<std::size_t>(std::count_if(seats_.begin(), seats_.begin() + static_cast<std::ptrdiff_t>(end),
                                                      [&](const auto& seat) { return seat.node == node; }));
    }

    Error nothing_allowed(const Seat& seat) const {
        Numbers allowed;
        for (const auto& cpu : topology_.cpus)
            if (cpu.is_allowed) allowed.push_back(cpu.cpu);
        std::sort(allowed.begin(), allowed.end());
        return {Errc::invalid_argument,
                cat(seat.why, " NUMA node ", seat.node,
                    ", but this process may use none of that node's CPUs (allowed: ", describe_ranges(allowed),
                    "); request CPUs near the GPUs (Slurm: --gres-flags=enforce-binding), or remove the option")};
    }

    const Topology& topology_;
    Numbers homes_;  // NUMA nodes with CPUs that are allowed
    std::vector<Seat> seats_;
};

}  // namespace

Result<std::vector<Placement>> place_workers(NumaBinding mode, const Topology& topology,
                                             const std::vector<GpuFacts>& gpus, std::uint32_t worker_count) {
    if (std::none_of(topology.cpus.begin(), topology.cpus.end(), [](const auto& cpu) { return cpu.is_allowed; }))
        return Error{Errc::invalid_argument, "no CPU is known that this process may use; is its affinity mask empty?"};
    const Placer placer(topology, gpus, worker_count);
    std::vector<Placement> placements;
    for (std::uint32_t local_rank = 0; local_rank < worker_count; ++local_rank) {
        auto placement = placer.place(mode, local_rank);
        if (!placement)
            return Error{Errc::invalid_argument, cat("local rank ", local_rank, ": ", placement.error().context)};
        placements.push_back(std::move(*placement));
    }
    return placements;
}

std::vector<std::uint32_t> worker_threads(const Topology& topology, const std::vector<Placement>& placements,
                                          std::uint32_t quota) {
    std::map<std::uint32_t, std::uint32_t> core_of;
    for (const auto& cpu : topology.cpus)
        if (cpu.is_allowed) core_of[cpu.cpu] = cpu.core;
    std::vector<std::set<std::uint32_t>> cores(placements.size());
    std::map<std::uint32_t, std::uint32_t> users;
    for (std::size_t i = 0; i < placements.size(); ++i) {
        const auto& bound = placements[i].cpus;
        for (const auto& [cpu, core] : core_of)
            if (bound.empty() || std::binary_search(bound.begin(), bound.end(), cpu)) cores[i].insert(core);
        for (const auto core : cores[i]) ++users[core];
    }
    std::vector<std::uint32_t> threads;
    for (const auto& own : cores) {
        double sum = 1e-9;  // a third of a core three times is a core
        for (const auto core : own) sum += 1.0 / users[core];
        auto count = static_cast<std::uint32_t>(sum);
        if (quota != 0) count = std::min(count, quota / static_cast<std::uint32_t>(placements.size()));
        threads.push_back(std::max(count, 1U));
    }
    return threads;
}

}  // namespace muster::agent
