#include "launcher/commands/job_events.h"

#include <nlohmann/json.hpp>

#include "rendezvous/base/text/percent.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/try.h"

namespace muster::launcher {

namespace {

std::string id_of_last(std::string_view lines) {
    lines = trim(lines);
    const auto event = nlohmann::json::parse(lines.substr(lines.rfind('\n') + 1), nullptr, false);
    return event.is_object() ? event.value("id", "") : std::string();
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

std::string events_text(std::string_view lines, std::string_view host) {
    constexpr std::size_t to_the_second = std::string_view("2026-11-23T18:02:11").size();
    std::string text;
    for (const auto line : split(trim(lines), '\n')) {
        const auto event = nlohmann::json::parse(line, nullptr, false);
        const auto& data = event.is_object() && event.contains("data") ? event["data"] : nlohmann::json();
        if (!data.is_object() || (!host.empty() && data.value("host", "") != host)) continue;
        text += cat(printable_line(event.value("time", "").substr(0, to_the_second)), "Z ",
                    printable_line(data.value("text", "")), '\n');
    }
    return text;
}

}  // namespace muster::launcher
