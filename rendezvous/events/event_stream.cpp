#include "rendezvous/events/event_stream.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/text/text.h"

namespace muster {

EventStream::EventStream(std::string stream, std::string node, Limits limits)
    : stream_(std::move(stream)), node_(std::move(node)), limits_(limits) {}

std::string EventStream::add(const Event& event, Duration since_1970) {
    auto& kept = jobs_[event.job];
    by_turn_.erase(kept.turn);
    kept.turn = ++last_turn_;
    by_turn_.emplace(kept.turn, event.job);
    kept.last_at = since_1970;
    auto line = event_line(event, {stream_, ++kept.newest, since_1970, node_});
    kept.bytes += line.size();
    kept_bytes_ += line.size();
    kept.lines.push_back(line);
    while (kept.lines.size() > limits_.job_events_max || (kept.bytes > limits_.job_bytes_max && kept.lines.size() > 1))
        drop_oldest(kept);
    make_room();
    return line;
}

void EventStream::drop_oldest(Kept& kept) {
    kept.bytes -= kept.lines.front().size();
    kept_bytes_ -= kept.lines.front().size();
    kept.lines.pop_front();
}

/// A job's numbers go on as long as it is in the table: its readers then see what they missed.
void EventStream::make_room() {
    while (by_turn_.size() > 1 && (kept_bytes_ > limits_.bytes_max || jobs_.size() > limits_.jobs_max)) {
        const auto oldest = by_turn_.begin();
        const auto found = jobs_.find(oldest->second);
        kept_bytes_ -= found->second.bytes;
        jobs_.erase(found);
        by_turn_.erase(oldest);
    }
}

std::optional<EventStream::Page> EventStream::after(const std::string& job, std::uint64_t after,
                                                    std::size_t bytes_max) const {
    const auto found = jobs_.find(job);
    if (found == jobs_.end()) return std::nullopt;
    const auto& kept = found->second;
    Page page{.lines = {}, .last = after, .newest = kept.newest};
    // A number from another process's stream is beyond the newest one: the reader gets everything.
    if (after > kept.newest) after = page.last = 0;
    const auto first = kept.newest - kept.lines.size() + 1;
    auto next = after + 1;
    if (next < first) {
        Event dropped{.kind = EventKind::events_dropped,
                      .text = cat("events ", next, " to ", first - 1, " are no longer kept"),
                      .job = job};
        dropped.facts.dropped_count = static_cast<std::int64_t>(first - next);
        page.lines = event_line(dropped, {stream_, first - 1, kept.last_at, node_});
        next = first;
        page.last = first - 1;
    }
    for (; next <= kept.newest; ++next) {
        const auto& line = kept.lines[next - first];
        if (!page.lines.empty() && page.lines.size() + line.size() > bytes_max) break;
        page.lines += line;
        page.last = next;
    }
    return page;
}

}  // namespace muster
