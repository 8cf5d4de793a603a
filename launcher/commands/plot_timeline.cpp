#include "launcher/commands/plot_timeline.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "launcher/status/http_get.h"
#include "launcher/status/timeline.h"
#include "launcher/status/timeline_svg.h"
#include "rendezvous/base/system/replace_file.h"
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

/// A daemon keeps 4 MiB of a job's events, and answers with 512 KiB at a time. Meanwhile others happen.
Result<std::string> all_events(const std::string& job, const GetPage& get) {
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

}  // namespace

Result<void> plot_timeline(const std::string& job, const std::string& goodput, const std::string& file,
                           const GetPage& get) {
    const auto lines = MUSTER_TRY(all_events(job, get));
    const auto timeline = MUSTER_TRY(read_timeline(lines, std::chrono::system_clock::now().time_since_epoch()));
    return replace_file(file, timeline_svg(timeline, printable_line(job), goodput), FileMode::as_umask_says);
}

}  // namespace muster::launcher
