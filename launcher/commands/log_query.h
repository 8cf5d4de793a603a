// What a viewer asks of an agent, as the target of a GET:
// "/logs?job=train&ranks=0-7,31&stream=err&round=3&since=600&follow=1". A viewer that has read before says where it
// goes on in each file: "&from=attempt_0/3/stdout.log:81963,...". Where these are too many, it asks by age for what it
// lacks, and drops the lines that it has (LogWireReader::drop_up_to).
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "launcher/commands/log_view.h"

namespace muster::launcher {

inline constexpr std::string_view logs_path = "/logs";

/// The largest rank that a list of ranks may name.
inline constexpr std::uint32_t rank_max = 1'000'000;

/// "0-7,31". Nothing for another text, or for more ranks than a job can have: an agent reads it on its loop.
std::optional<std::set<std::uint32_t>> read_ranks(std::string_view text);

/// The parts of the request that an agent decides. --failed, --failed-in, --node, --include and --exclude are the
/// viewer's.
std::string log_target(const LogRequest& request);
/// An agent's HTTP head may have 8 KiB.
inline constexpr std::size_t log_target_bytes_max = 7'000;
/// Whether it says where the viewer goes on in each file.
bool has_positions(std::string_view target);
/// Nothing for a target that log_target() does not make.
std::optional<LogRequest> read_log_target(std::string_view target);

}  // namespace muster::launcher
