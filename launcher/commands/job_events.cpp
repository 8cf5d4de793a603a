#include "launcher/commands/job_events.h"

#include <nlohmann/json.hpp>

#include "agent/diagnosis/json_members.h"
#include "launcher/commands/log_view.h"
#include "rendezvous/base/text/percent.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

using namespace std::chrono_literals;

std::string id_of_last(std::string_view lines) {
    lines = trim(lines);
    const auto event = nlohmann::json::parse(lines.substr(lines.rfind('\n') + 1), nullptr, false);
    return agent::text_of(event, "id");
}

nlohmann::json data_of(const nlohmann::json& event) {
    const auto found = event.find("data");
    return found == event.end() ? nlohmann::json() : *found;
}

}  // namespace

/// A daemon keeps 4 MiB of a job's events, and answers with 512 KiB at a time. Meanwhile others happen.
Result<std::string> job_events(const std::string& job, const GetPage& get) {
    constexpr int pages_max = 32;
    std::string lines, after;
    for (int i = 0; i < pages_max; ++i) {
        const auto page = MUSTER_TRY(get(cat("/api/v1/jobs/", percent_encoded(job), "/events",
                                             after.empty() ? std::string() : cat("?after=", percent_encoded(after)))));
        const auto last = id_of_last(page);
        if (last.empty() || last == after) break;
        lines += page;
        after = last;
    }
    return lines;
}

Result<std::string> job_events(const std::string& job, const StatusSource& source) {
    return job_events(job, [&](const std::string& target) { return source.ask(5s, target); });
}

std::string events_of_node(std::string_view lines, const std::string& node) {
    std::string text;
    for (const auto line : split(trim(lines), '\n'))
        if (is_of_nodes(agent::text_of(data_of(nlohmann::json::parse(line, nullptr, false)), "host"), {node}))
            text += cat(line, '\n');
    return text;
}

std::string events_text(std::string_view lines) {
    constexpr std::size_t to_the_second = std::string_view("2026-11-23T18:02:11").size();
    std::string text;
    for (const auto line : split(trim(lines), '\n')) {
        const auto event = nlohmann::json::parse(line, nullptr, false);
        if (const auto data = data_of(event); data.is_object())
            text += cat(printable_line(agent::text_of(event, "time").substr(0, to_the_second)), "Z ",
                        printable_line(agent::text_of(data, "text")), '\n');
    }
    return text;
}

}  // namespace muster::launcher
