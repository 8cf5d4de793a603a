#include "worker_runtime/core/flight_record.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "rendezvous/base/text/text.h"
#include "rendezvous/base/time.h"

namespace muster::runtime {

namespace {

/// Each rank without a record is a line of the report.
constexpr std::int32_t group_size_max = 1'000'000;

std::string text_of(const char* field, std::size_t size) {
    return {field, ::strnlen(field, size)};
}

std::string describe_entry(const FlightEntry& entry) {
    if (takes_memory(entry)) return cat("allocate ", entry.count, " bytes");
    return describe(Operation{
        .kind = entry.kind, .type = entry.type, .reduce = entry.reduce, .count = entry.count, .peer = entry.peer});
}

/// All that same_operation() compares.
std::string describe_signature(const FlightEntry& entry) {
    return cat(describe_entry(entry), entry.tag != 0 ? cat(" tagged ", entry.tag) : std::string());
}

bool same_operation(const FlightEntry& a, const FlightEntry& b) {
    return a.kind == b.kind && a.type == b.type && a.reduce == b.reduce && a.count == b.count && a.peer == b.peer &&
           a.tag == b.tag;
}

/// The names of a ring's communicators, by index. One that is made again under the same name, as after PyTorch's
/// destroy_process_group(), counts its operations anew. All ranks make it as often.
std::vector<std::string> names_of(const FlightHeader& header) {
    std::vector<std::string> names;
    std::map<std::string, int> made;
    for (std::uint32_t i = 0; i < header.group_count; ++i) {
        auto name = text_of(header.groups[i], flight_name_bytes);
        const int count = ++made[name];
        names.push_back(count == 1 ? std::move(name) : cat(name, " #", count));
    }
    return names;
}

/// One rank's place in one group, and its newest collective there.
struct Place {
    const FlightRing* ring = nullptr;
    std::uint32_t index = 0;  ///< Of the group in the ring.
    const FlightEntry* last = nullptr;
    std::map<std::uint64_t, const FlightEntry*> by_number;
};

struct Group {
    int size = 0;
    bool is_shared = false;      ///< Some rank has entries of other communicators here, too.
    std::map<int, Place> ranks;  ///< Keyed by rank in the group.
};

std::string who(int rank, const Place& place) {
    return cat("rank ", rank, " (pid ", place.ring->header.pid, " on ",
               text_of(place.ring->header.host, sizeof place.ring->header.host), ")");
}

/// The newest time in any ring of this host: "now" for its clock, as far as the records know.
std::int64_t newest_time(const std::vector<FlightRing>& rings, const FlightHeader& host) {
    std::int64_t newest = 0;
    for (const auto& ring : rings) {
        if (std::memcmp(ring.header.host, host.host, sizeof host.host) != 0) continue;
        for (const auto& entry : ring.entries) newest = std::max({newest, entry.started_ns, entry.ended_ns});
    }
    return newest;
}

std::map<std::string, Group> groups_of(const std::vector<FlightRing>& rings) {
    std::map<std::string, Group> groups;
    for (const auto& ring : rings) {
        const auto names = names_of(ring.header);
        for (std::uint32_t i = 0; i < names.size(); ++i) {
            Group& group = groups[names[i]];
            group.size = std::max(group.size, static_cast<int>(ring.header.group_sizes[i]));
            if (ring.header.last_is_shared != 0 && i + 1 == names.size()) group.is_shared = true;
            Place& place = group.ranks[ring.header.group_ranks[i]];
            place.ring = &ring;
            place.index = i;
            for (const auto& entry : ring.entries) {
                if (entry.group != i || is_paired(entry.kind)) continue;
                place.by_number[entry.number] = &entry;
                if (place.last == nullptr || entry.number > place.last->number) place.last = &entry;
            }
        }
    }
    return groups;
}

/// The first operation that ranks disagree about.
void report_difference(const Group& group, std::vector<std::string>& lines) {
    for (auto first = group.ranks.begin(); first != group.ranks.end(); ++first) {
        for (auto second = std::next(first); second != group.ranks.end(); ++second) {
            for (const auto& [number, entry] : first->second.by_number) {
                const auto theirs = second->second.by_number.find(number);
                if (theirs == second->second.by_number.end() || same_operation(*entry, *theirs->second)) continue;
                lines.push_back(cat("  they differ in operation ", number, ": ", who(first->first, first->second),
                                    " ran ", describe_signature(*entry), ", ", who(second->first, second->second),
                                    " ran ", describe_signature(*theirs->second)));
                return;
            }
        }
    }
}

/// The pairs of send and receive that have not ended.
void report_pairs(const Place& place, int rank, std::int64_t now, std::vector<std::string>& lines) {
    for (const auto& entry : place.ring->entries) {
        if (entry.group != place.index || !is_paired(entry.kind) || entry.state != FlightState::started) continue;
        lines.push_back(cat("  rank ", rank, " waits in ", describe_entry(entry), " (number ", entry.number,
                            " of its kind there) for ", describe(Duration(now - entry.started_ns))));
    }
}

/// "18:31:02 UTC", by the clock of the ring's host.
std::string time_of_day(const FlightRing& ring, std::int64_t monotonic_ns) {
    const auto seconds = (monotonic_ns + ring.header.wall_minus_monotonic_ns) / 1'000'000'000;
    const auto two_digits = [](std::int64_t number) { return cat(number < 10 ? "0" : "", number); };
    return cat(two_digits(seconds / 3600 % 24), ":", two_digits(seconds / 60 % 60), ":", two_digits(seconds % 60),
               " UTC");
}

/// What became of the last operation of a rank that is behind.
std::string last_of(const Place& place, std::int64_t now) {
    if (place.last == nullptr) return "it has run no operation";
    const auto what = cat(place.last->number, " (", describe_entry(*place.last), ")");
    if (place.last->state == FlightState::started) return cat("it is still in ", what);
    return cat("its last, ", what, place.last->state == FlightState::failed ? ", failed " : ", ended ",
               describe(Duration(now - place.last->ended_ns)), " before the newest entry of its host");
}

/// The ranks that have come to the newest operation: who waits there, and for whom it failed.
void report_present(const Group& group, const FlightEntry& newest, std::vector<std::string>& lines) {
    std::vector<std::string> waiting;
    std::vector<std::string> failed;
    std::string since;
    std::int64_t earliest = 0;
    std::int64_t longest = 0;
    for (const auto& [rank, place] : group.ranks) {
        if (place.last == nullptr || place.last->number != newest.number) continue;
        const auto wall = place.last->started_ns + place.ring->header.wall_minus_monotonic_ns;
        if (place.last->state == FlightState::started) {
            if (waiting.empty() || wall < earliest) {
                earliest = wall;
                since = time_of_day(*place.ring, place.last->started_ns);
            }
            waiting.push_back(cat(rank));
        } else if (place.last->state == FlightState::failed) {
            longest = std::max(longest, place.last->ended_ns - place.last->started_ns);
            failed.push_back(cat(rank));
        }
    }
    const auto what = cat("operation ", newest.number, " (", describe_entry(newest), ")");
    if (!waiting.empty())
        lines.push_back(cat("  rank ", join(waiting, ", "), waiting.size() == 1 ? " waits in " : " wait in ", what,
                            waiting.size() == 1 ? ", since " : ", the first since ", since));
    if (!failed.empty())
        lines.push_back(cat("  rank ", join(failed, ", "), ": ", what, " failed after ", describe(Duration(longest)),
                            failed.size() == 1 ? "" : " at most"));
}

void report_missing(const Group& group, const std::vector<FlightRing>& rings, std::vector<std::string>& lines) {
    const FlightEntry* newest = nullptr;
    for (const auto& [rank, place] : group.ranks) {
        if (place.last != nullptr && (newest == nullptr || place.last->number > newest->number)) newest = place.last;
    }
    if (newest == nullptr) {
        lines.push_back("  no operation");
        return;
    }
    bool all_done = true;
    for (const auto& [rank, place] : group.ranks) {
        const bool is_missing = place.last == nullptr || place.last->number < newest->number;
        all_done = all_done && !is_missing && place.last->state == FlightState::done;
        if (is_missing)
            lines.push_back(cat("  ", who(rank, place), " is missing from operation ", newest->number, " (",
                                describe_entry(*newest),
                                "): ", last_of(place, newest_time(rings, place.ring->header))));
    }
    for (int rank = 0; rank < group.size; ++rank) {
        if (!group.ranks.contains(rank)) lines.push_back(cat("  rank ", rank, " has no record"));
    }
    report_present(group, *newest, lines);
    if (all_done)
        lines.push_back(cat("  all ", group.ranks.size(), " ranks have ended operation ", newest->number, " (",
                            describe_entry(*newest), ")"));
}

}  // namespace

Result<FlightRing> read_flight_ring(std::string_view bytes) {
    FlightRing ring;
    if (bytes.size() < sizeof(FlightHeader)) return Error{Errc::bad_frame, "too short for a flight record"};
    std::memcpy(&ring.header, bytes.data(), sizeof ring.header);
    const auto& header = ring.header;
    if (header.magic != flight_magic) return Error{Errc::bad_frame, "not a flight record"};
    const std::size_t room = (bytes.size() - sizeof(FlightHeader)) / sizeof(FlightEntry);
    if (header.entry_count == 0 || header.entry_count > room || header.group_count > flight_group_count_max) {
        return Error{Errc::bad_frame, cat("a damaged flight record: ", header.entry_count, " entries in room for ",
                                          room, ", ", header.group_count, " groups")};
    }
    for (std::uint32_t i = 0; i < header.group_count; ++i) {
        if (header.group_sizes[i] < 1 || header.group_sizes[i] > group_size_max || header.group_ranks[i] < 0 ||
            header.group_ranks[i] >= header.group_sizes[i])
            return Error{Errc::bad_frame, cat("a damaged flight record: rank ", header.group_ranks[i], " of ",
                                              header.group_sizes[i], " in a communicator")};
    }
    const std::uint64_t count = std::min<std::uint64_t>(header.next, header.entry_count);
    for (std::uint64_t number = header.next - count; number < header.next; ++number) {
        FlightEntry entry;
        const std::size_t index = number % header.entry_count;
        std::memcpy(&entry, bytes.data() + sizeof(FlightHeader) + index * sizeof entry, sizeof entry);
        const bool known = is_known(entry.kind, entry.type, entry.reduce) && entry.group < header.group_count &&
                           entry.number > 0 && entry.state >= FlightState::started &&
                           entry.state <= FlightState::failed;
        if (known) ring.entries.push_back(entry);
    }
    return ring;
}

std::string flight_report(const std::vector<FlightRing>& all) {
    std::int64_t round = 0;
    for (const auto& ring : all) round = std::max(round, ring.header.round);
    std::vector<FlightRing> rings;
    for (const auto& ring : all) {
        if (ring.header.round == round) rings.push_back(ring);
    }
    std::vector<std::string> lines{cat("round ", round, ": records of ", rings.size(), " ranks")};
    for (const auto& [name, group] : groups_of(rings)) {
        lines.push_back(cat("communicator ", name, " (", group.size, " ranks)"));
        if (group.is_shared) {
            lines.push_back(cat("  not compared: a rank has made more than ", flight_group_count_max,
                                " communicators, and its record mixes the operations of the last ones"));
        } else {
            report_difference(group, lines);
            report_missing(group, rings, lines);
        }
        for (const auto& [rank, place] : group.ranks)
            report_pairs(place, rank, newest_time(rings, place.ring->header), lines);
    }
    std::map<std::string, std::vector<std::string>> failures;
    for (const auto& ring : rings) {
        const auto failure = text_of(ring.header.failure, sizeof ring.header.failure);
        if (!failure.empty()) failures[failure].push_back(cat(ring.header.rank));
    }
    for (const auto& [failure, ranks] : failures) lines.push_back(cat("rank ", join(ranks, ", "), ": ", failure));
    return join(lines, "\n") + "\n";
}

}  // namespace muster::runtime
