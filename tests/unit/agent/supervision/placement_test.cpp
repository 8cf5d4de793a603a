// Workers' CPUs and memory on machines that are described here; the real one is asked by tests/integration/placement.
#include "agent/supervision/placement.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <sstream>

#include "agent/supervision/topology_text.h"
#include "rendezvous/base/text/number_ranges.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::agent;

namespace {

/// Sockets of nodes of caches of cores of two threads: CPU n and CPU n + half are one core.
Topology machine(std::uint32_t sockets, std::uint32_t nodes, std::uint32_t caches, std::uint32_t cores) {
    Topology made;
    const auto half = sockets * nodes * caches * cores;
    for (std::uint32_t cpu = 0; cpu < 2 * half; ++cpu) {
        const auto core = cpu % half, cache = core / cores, node = cache / caches;
        made.cpus.push_back(
            {.cpu = cpu, .core = core, .cache = cache, .socket = node / nodes, .node = node, .is_allowed = true});
    }
    for (std::uint32_t node = 0; node < sockets * nodes; ++node) made.memory_nodes.push_back(node);
    return made;
}

Topology only(Topology topology, const std::vector<std::uint32_t>& cpus) {
    for (auto& cpu : topology.cpus) cpu.is_allowed = std::find(cpus.begin(), cpus.end(), cpu.cpu) != cpus.end();
    return topology;
}

std::vector<GpuFacts> gpus_on(const std::vector<std::uint32_t>& nodes) {
    std::vector<GpuFacts> gpus;
    for (const auto node : nodes) gpus.push_back({cat("0000:0", gpus.size(), ":00.0"), node});
    return gpus;
}

/// "CPUS @ MEMORY" for each worker, or the complaint.
std::string placed(NumaBinding mode, const Topology& topology, const std::vector<GpuFacts>& gpus,
                   std::uint32_t worker_count) {
    const auto placements = place_workers(mode, topology, gpus, worker_count);
    if (!placements) return placements.error().context;
    std::string text;
    for (const auto& placement : *placements)
        text += cat(text.empty() ? "" : "  ", describe_ranges(placement.cpus), " @ ",
                    describe_ranges(placement.memory_nodes));
    return text;
}

std::string numbers(const std::vector<std::uint32_t>& list) {
    std::string text;
    for (const auto number : list) text += cat(text.empty() ? "" : ",", number);
    return text;
}

}  // namespace

TEST_CASE("two sockets and eight GPUs: each worker has the CPUs and the memory beside its own GPU") {
    const auto two = machine(2, 1, 1, 4);
    const auto gpus = gpus_on({0, 0, 0, 0, 1, 1, 1, 1});
    CHECK(placed(NumaBinding::node, two, gpus, 8) ==
          "0-3,8-11 @ 0  0-3,8-11 @ 0  0-3,8-11 @ 0  0-3,8-11 @ 0  "
          "4-7,12-15 @ 1  4-7,12-15 @ 1  4-7,12-15 @ 1  4-7,12-15 @ 1");
    CHECK(placed(NumaBinding::exclusive, two, gpus, 8) ==
          "0,8 @ 0  1,9 @ 0  2,10 @ 0  3,11 @ 0  4,12 @ 1  5,13 @ 1  6,14 @ 1  7,15 @ 1");
    // GPUs that no worker uses keep their share, as in torchrun: another job may have them.
    CHECK(placed(NumaBinding::exclusive, two, gpus, 2) == "0,8 @ 0  1,9 @ 0");
}

TEST_CASE("sub-NUMA clusters: a node is a part of a socket, and socket takes all of its nodes") {
    const auto clusters = machine(2, 2, 1, 2);
    CHECK(placed(NumaBinding::node, clusters, gpus_on({1, 2}), 2) == "2-3,10-11 @ 1  4-5,12-13 @ 2");
    CHECK(placed(NumaBinding::socket, clusters, gpus_on({1, 2}), 2) == "0-3,8-11 @ 0-1  4-7,12-15 @ 2-3");
}

TEST_CASE("core complexes: another one for each worker while there are some, the largest first") {
    const auto chiplets = machine(1, 1, 3, 2);
    CHECK(placed(NumaBinding::core_complex, chiplets, gpus_on({0, 0, 0, 0}), 4) ==
          "0-1,6-7 @ 0  2-3,8-9 @ 0  4-5,10-11 @ 0  0-1,6-7 @ 0");
    CHECK(placed(NumaBinding::core_complex, only(chiplets, {0, 2, 3, 8, 9}), gpus_on({0, 0}), 2) ==
          "2-3,8-9 @ 0  0 @ 0");
}

TEST_CASE("without GPUs the local ranks go round the NUMA nodes that they may use") {
    const auto two = machine(2, 1, 1, 2);
    CHECK(placed(NumaBinding::node, two, {}, 3) == "0-1,4-5 @ 0  2-3,6-7 @ 1  0-1,4-5 @ 0");
    CHECK(placed(NumaBinding::exclusive, two, {}, 3) == "0,4 @ 0  2-3,6-7 @ 1  1,5 @ 0");
    CHECK(placed(NumaBinding::node, only(two, {2, 3}), {}, 2) == "2-3 @ 1  2-3 @ 1");
    auto hidden = gpus_on({0, 0});
    hidden[0].node = hidden[1].node = std::nullopt;  // a virtual machine that tells nothing
    CHECK(placed(NumaBinding::node, two, hidden, 2) == "0-1,4-5 @ 0  2-3,6-7 @ 1");
}

TEST_CASE("more workers than GPUs take turns, and share what exclusive divides") {
    CHECK(placed(NumaBinding::exclusive, machine(2, 1, 1, 2), gpus_on({0, 1}), 4) ==
          "0,4 @ 0  2,6 @ 1  1,5 @ 0  3,7 @ 1");
}

TEST_CASE("within a mask of Slurm's or a cpuset, only what is allowed") {
    auto masked = only(machine(2, 1, 1, 4), {1, 2, 9, 10, 4});
    CHECK(placed(NumaBinding::node, masked, gpus_on({0, 1}), 2) == "1-2,9-10 @ 0  4 @ 1");
    masked.memory_nodes = {0};
    CHECK(placed(NumaBinding::socket, masked, gpus_on({0, 1}), 2) == "1-2,9-10 @ 0  4 @ none");
}

TEST_CASE("a GPU beside whose node no CPU is allowed, and cores that do not suffice, are one line each") {
    const auto masked = only(machine(2, 1, 1, 4), {0, 1, 8});
    CHECK(placed(NumaBinding::node, masked, gpus_on({0, 1}), 2) ==
          "local rank 1: its GPU 0000:01:00.0 is on NUMA node 1, but this process may use none of that node's CPUs "
          "(allowed: 0-1,8); request CPUs near the GPUs (Slurm: --gres-flags=enforce-binding), or remove the option");
    CHECK(placed(NumaBinding::exclusive, masked, gpus_on({0, 0, 0}), 3) ==
          "local rank 0: NUMA node 0 has 2 cores that this process may use, but 3 GPUs or workers share them; write "
          "--numa-binding=node, or request more cores");
    CHECK(placed(NumaBinding::node, only(masked, {}), {}, 1) ==
          "no CPU is known that this process may use; is its affinity mask empty?");
}

TEST_CASE("threads are the cores that a worker has got, shared ones in parts, within the group's quota") {
    const auto two = machine(2, 1, 1, 4);
    const auto threads = [&](NumaBinding mode, std::uint32_t workers, std::uint32_t quota = 0) {
        return worker_threads(two, place_workers(mode, two, {}, workers).value(), quota);
    };
    using Counts = std::vector<std::uint32_t>;
    CHECK(threads(NumaBinding::node, 2) == Counts{4, 4});
    CHECK(threads(NumaBinding::node, 3) == Counts{2, 4, 2});
    CHECK(threads(NumaBinding::exclusive, 3) == Counts{2, 4, 2});
    CHECK(threads(NumaBinding::node, 2, 6) == Counts{3, 3});
    CHECK(threads(NumaBinding::node, 20) == Counts(20, 1));
    CHECK(worker_threads(two, std::vector<Placement>(3), 0) == Counts{2, 2, 2});
    CHECK(worker_threads(only(two, {0, 8, 1}), std::vector<Placement>(1), 0) == Counts{2});
}

TEST_CASE("what muster-topology says is read, and nothing else") {
    const auto topology = read_topology("cpu 3 1 0 0 2 1\nmemory 2\npolicy set_mempolicy: refused\nend\n");
    REQUIRE(topology.has_value());
    REQUIRE(topology->cpus.size() == 1);
    CHECK(topology->cpus[0].cpu == 3);
    CHECK(topology->cpus[0].node == 2);
    CHECK(topology->cpus[0].is_allowed);
    CHECK(topology->memory_nodes == std::vector<std::uint32_t>{2});
    CHECK(topology->policy_trouble == "set_mempolicy: refused");
    for (const auto* text :
         {"", "note start muster-topology: No such file", "cpu 1 2 3 4 5", "cpu 1 2 3 4 5 2", "cpu 1 2 3 4 5 1 6",
          "cpu 1 2 x 4 5 1", "cpu 1 2 3 4 -5 1", "cpu 99999999 2 3 4 5 1", "memory 1\n"}) {
        INFO(text);
        CHECK_FALSE(read_topology(cat(text, "\nend\n")).has_value());
    }
    CHECK_FALSE(read_topology("cpu 3 1 0 0 2 1\nmemory 2\n").has_value());  // cut off
}

// numa_golden.txt says how it was made.
TEST_CASE("on machines of any shape, workers get the CPUs that torchrun would give them") {
    std::ifstream file(NUMA_GOLDEN_FILE);
    const std::map<std::string, NumaBinding> modes{{"node", NumaBinding::node},
                                                   {"socket", NumaBinding::socket},
                                                   {"exclusive", NumaBinding::exclusive},
                                                   {"core-complex", NumaBinding::core_complex}};
    std::string lines;
    std::vector<std::uint32_t> nodes;
    int compared = 0;
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string mode;
        words >> mode;
        if (mode == "cpu") lines = std::regex_replace(line, std::regex("; "), "\n");
        if (mode == "gpus") nodes.assign(std::istream_iterator<std::uint32_t>(words), {});
        if (!modes.contains(mode)) continue;
        const std::vector<std::string> expected(std::istream_iterator<std::string>(words), {});
        const auto topology = read_topology(lines + "\nend\n").value();
        const auto count = static_cast<std::uint32_t>(nodes.size());
        const auto placements = place_workers(modes.at(mode), topology, gpus_on(nodes), count);
        INFO(lines << "\n" << line);
        // torch refuses in each worker for itself, we for all at once.
        const bool refused = std::find(expected.begin(), expected.end(), "refused") != expected.end();
        REQUIRE(placements.has_value() != refused);
        for (std::uint32_t gpu = 0; !refused && gpu < count; ++gpu, ++compared)
            CHECK(numbers((*placements)[gpu].cpus) == expected[gpu]);
    }
    CHECK(compared > 400);
}
