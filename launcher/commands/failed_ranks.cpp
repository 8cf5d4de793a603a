#include "launcher/commands/failed_ranks.h"

#include <nlohmann/json.hpp>

#include "agent/diagnosis/json_members.h"
#include "launcher/commands/log_query.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

using nlohmann::json;

void add(FailedRanks& failed, std::int64_t round, std::int64_t rank) {
    if (round < 0 || rank < 0 || rank > rank_max) return;
    failed.emplace(static_cast<std::uint64_t>(round), static_cast<std::uint32_t>(rank));
}

/// "0-3,8", which may end with " and 12 more".
void add_list(FailedRanks& failed, std::int64_t round, std::string_view list) {
    for (const auto piece : split(list.substr(0, list.find(' ')), ',')) {
        if (const auto ranks = read_ranks(piece))
            for (const auto rank : *ranks) add(failed, round, rank);
    }
}

void add_report(FailedRanks& failed, const json& report) {
    const auto round = agent::integer_or(report, "round");
    if (const auto first = report.find("first"); first != report.end())
        add(failed, round, agent::integer_or(*first, "rank"));
    for (const auto& group : report.value("groups", json())) add_list(failed, round, agent::text_of(group, "ranks"));
}

}  // namespace

Result<FailedRanks> read_failed_ranks(std::string_view text) {
    FailedRanks failed;
    if (const auto report = json::parse(text, nullptr, false); report.is_object() && report.contains("outcome")) {
        add_report(failed, report);
        return failed;
    }
    std::size_t event_count = 0;
    for (const auto line : split(text, '\n')) {
        const auto event = json::parse(line, nullptr, false);  // The last line may be torn.
        if (!event.is_object() || !event.contains("specversion")) continue;
        ++event_count;
        if (agent::text_of(event, "type") == "muster.worker.failed.v1" && event.contains("data"))
            add(failed, agent::integer_or(event["data"], "round"), agent::integer_or(event["data"], "rank"));
    }
    if (event_count > 0) return failed;
    return Error{Errc::invalid_argument,
                 "it cannot be read, or is neither a report (--report) nor a file of events (--events)"};
}

}  // namespace muster::launcher
