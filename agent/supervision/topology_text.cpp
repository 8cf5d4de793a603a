#include "agent/supervision/topology_text.h"

#include <array>
#include <charconv>

#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

constexpr std::uint32_t number_max = 1U << 20;  // more CPUs than Linux has numbers for

/// The numbers of a line behind its first word; false unless there are exactly so many.
template <std::size_t Count>
bool read_numbers(std::string_view line, std::array<std::uint32_t, Count>& numbers) {
    const auto words = split(line, ' ');
    if (words.size() != Count + 1) return false;
    for (std::size_t i = 0; i < Count; ++i) {
        const auto word = words[i + 1];
        const auto read = std::from_chars(word.data(), word.data() + word.size(), numbers[i]);
        if (read.ec != std::errc{} || read.ptr != word.data() + word.size() || numbers[i] > number_max) return false;
    }
    return true;
}

bool read_line(std::string_view line, Topology& topology) {
    constexpr std::string_view policy = "policy ";
    if (line.starts_with(policy)) {
        topology.policy_trouble = line.substr(policy.size());
        return true;
    }
    std::array<std::uint32_t, 1> memory{};
    if (line.starts_with("memory ") && read_numbers(line, memory)) {
        topology.memory_nodes.push_back(memory[0]);
        return true;
    }
    std::array<std::uint32_t, 6> cpu{};
    if (!line.starts_with("cpu ") || !read_numbers(line, cpu) || cpu[5] > 1) return false;
    topology.cpus.push_back(
        {.cpu = cpu[0], .core = cpu[1], .cache = cpu[2], .socket = cpu[3], .node = cpu[4], .is_allowed = cpu[5] == 1});
    return true;
}

}  // namespace

Result<Topology> read_topology(std::string_view text) {
    Topology topology;
    constexpr std::string_view last_line = "end\n";
    if (text.ends_with(last_line))
        text.remove_suffix(last_line.size());
    else if (!text.starts_with("note "))
        return Error{Errc::invalid_argument, "muster-topology did not finish"};
    for (const auto line : split(text, '\n'))
        if (!line.empty() && !read_line(line, topology))
            return Error{Errc::invalid_argument, cat("muster-topology printed an unknown line '", line, "'")};
    if (topology.cpus.empty()) return Error{Errc::invalid_argument, "muster-topology reported no CPUs"};
    return topology;
}

}  // namespace muster::agent
