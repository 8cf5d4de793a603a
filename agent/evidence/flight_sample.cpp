#include "agent/evidence/flight_sample.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/core/flight_record.h"

namespace muster::agent {

namespace {

using runtime::flight_entry_count;
using runtime::FlightEntry;
using runtime::FlightHeader;
using runtime::FlightState;

/// The newest ones: those of a step or a few.
constexpr std::uint64_t entries_max = 64;

bool is_record(const FlightHeader& header) {
    return header.magic == runtime::flight_magic && header.entry_count == flight_entry_count;
}

bool read_all(int memory, void* into, std::size_t size_bytes, std::size_t at) {
    return ::pread(memory, into, size_bytes, static_cast<off_t>(at)) == static_cast<ssize_t>(size_bytes);
}

/// Oldest first; the ring begins anew at index 0.
std::vector<FlightEntry> newest_entries(int memory, std::uint64_t next) {
    const auto count = std::min(next, entries_max);
    std::vector<FlightEntry> entries(count);
    for (std::uint64_t read = 0; read < count;) {
        const auto index = (next - count + read) % flight_entry_count;
        const auto run = std::min(count - read, flight_entry_count - index);
        const auto at = sizeof(FlightHeader) + index * sizeof(FlightEntry);
        if (!read_all(memory, entries.data() + read, run * sizeof(FlightEntry), at)) return {};
        read += run;
    }
    return entries;
}

/// A worker wrote it: nothing in it is trusted.
std::string name_of(const FlightEntry& entry, const FlightHeader& header) {
    const bool known = entry.kind <= last_operation_kind && entry.group < runtime::flight_group_count_max;
    if (!known) return "an operation";
    const char* const group = header.groups[entry.group];
    return cat(runtime::takes_memory(entry) ? "allocate" : name(entry.kind), ' ', entry.number, " of ",
               std::string_view(group, ::strnlen(group, runtime::flight_name_bytes)));
}

Duration longest_gap(const std::vector<FlightEntry>& entries) {
    std::int64_t longest = 0;
    std::int64_t ended = 0;
    for (const auto& entry : entries) {
        if (ended > 0 && entry.started_ns > ended) longest = std::max(longest, entry.started_ns - ended);
        if (entry.state != FlightState::started) ended = std::max(ended, entry.ended_ns);
    }
    return Duration(longest);
}

/// Operations may overlap: what is covered counts once. One that is under way has no end yet.
double inside_share(const std::vector<FlightEntry>& entries) {
    std::int64_t inside = 0;
    std::int64_t covered_to = entries.front().started_ns;
    for (const auto& entry : entries) {
        if (entry.state == FlightState::started || entry.ended_ns <= covered_to) continue;
        inside += entry.ended_ns - std::max(entry.started_ns, covered_to);
        covered_to = entry.ended_ns;
    }
    const auto span = covered_to - entries.front().started_ns;
    return span > 0 ? std::clamp(static_cast<double>(inside) / static_cast<double>(span), 0.0, 1.0) : 0.0;
}

}  // namespace

std::optional<OperationSample> sample_flight_record(int memory) {
    FlightHeader header;
    if (!read_all(memory, &header, sizeof header, 0)) return std::nullopt;
    if (!is_record(header)) return std::nullopt;
    const auto entries = newest_entries(memory, header.next);
    if (entries.empty()) return std::nullopt;
    const auto under_way = std::ranges::find(entries, FlightState::started, &FlightEntry::state);
    const bool inside = under_way != entries.end();
    return OperationSample{.count = header.next,
                           .inside = inside,
                           .name = name_of(inside ? *under_way : entries.back(), header),
                           .longest_gap = longest_gap(entries),
                           .inside_share = inside_share(entries),
                           .newest_at = Instant(Duration(entries.back().started_ns))};
}

std::string flight_failure(int memory) {
    FlightHeader header;
    if (!read_all(memory, &header, sizeof header, 0) || !is_record(header)) return {};
    return {header.failure, ::strnlen(header.failure, sizeof header.failure)};
}

}  // namespace muster::agent
