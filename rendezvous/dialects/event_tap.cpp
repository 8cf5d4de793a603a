#include "rendezvous/dialects/event_tap.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "rendezvous/base/journal.h"
#include "rendezvous/base/text/percent.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/events/files/said_event.h"

namespace muster::rendezvous {

namespace {

/// A reader with more to read asks again with the last sequence number.
constexpr std::size_t page_bytes_max = std::size_t{512} << 10;

std::string journal_fields_of(const Event& event) {
    if (event.job.empty()) return {};
    const auto fields = journal_field("MUSTER_JOB", event.job);
    return event.round == no_round ? fields : fields + journal_field("MUSTER_ROUND", cat(event.round));
}

/// It comes back in the id of a record.
bool is_stream_name(std::string_view text) {
    constexpr std::size_t size_max = 64;
    return text.size() <= size_max && std::ranges::all_of(text, [](char letter) {
               return letter == '-' || (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z');
           });
}

HttpPage bad_request(std::string_view why) {
    return {.status = 400,
            .body = cat(why, ": write /api/v1/jobs/JOB/events?after=ID, with the id of the last line that you have\n")};
}

}  // namespace

std::optional<EventPosition> event_position(std::string_view encoded_id) {
    const auto id = percent_decoded(encoded_id).value_or(std::string());
    const auto slash = id.rfind('/');
    EventPosition position;
    // A reader continues with the id of a record of dropped events as well.
    position.stream = slash == id.npos ? std::string() : id.substr(0, std::min(slash, id.find("-after-")));
    if (!parse_number(std::string_view(id).substr(slash == id.npos ? 0 : slash + 1), position.sequence) ||
        !is_stream_name(position.stream))
        return std::nullopt;
    return position;
}

EventTap::EventTap(EventSink sink) : sink_(std::move(sink)), stream_(cat(std::random_device{}())) {}

void EventTap::take(const std::vector<Event>& events, Instant at) {
    if (events.empty()) return;
    const auto ago = std::chrono::steady_clock::now() - at;
    const auto since_1970 = std::chrono::system_clock::now().time_since_epoch() - ago;
    for (const auto& event : events) {
        {
            const JournalScope about(journal_fields_of(event));
            say(event);
        }
        const auto line = stream_.add(event, since_1970);
        if (sink_) sink_(line);
    }
}

std::optional<HttpPage> EventTap::page(std::string_view target) const {
    const auto encoded = job_in_target(target, "/events");
    if (!encoded) return std::nullopt;
    const auto job = percent_decoded(*encoded);
    if (!job) return bad_request("a percent sign needs two hexadecimal digits");
    EventPosition after;
    if (const auto id = query_value(target, "after")) {
        const auto read = event_position(*id);
        if (!read) return bad_request(cat("after is no id or number: '", printable_line(*id), "'"));
        after = *read;
    }
    auto page = since(*job, after, page_bytes_max);
    if (!page)
        return HttpPage{
            .status = 404,
            .body = cat("This daemon has no events of a job '", printable_line(*job), "'. /status lists its jobs.\n")};
    return HttpPage{.type = "application/x-ndjson", .body = std::move(page->lines)};
}

}  // namespace muster::rendezvous
