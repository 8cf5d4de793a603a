#include "rendezvous/events/event_stream.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/text/text.h"

namespace muster {

EventStream::EventStream(std::string stream, std::string node, Limits limits)
    : stream_(std::move(stream)), node_(std::move(node)), limits_(limits) {}

std::string EventStream::add(const Event& event, Duration since_1970) {
    const auto [at, is_new] = jobs_.try_emplace(event.job);
    auto& kept = at->second;
    if (is_new) kept.newest = forgotten_newest_;
    // The newest job has the last place already, and is never among the empty ones.
    if (is_new || kept.turn != last_turn_) {
        by_turn_.erase(kept.turn);
        empty_.erase(kept.turn);
        kept.turn = ++last_turn_;
        by_turn_.emplace(kept.turn, event.job);
    }
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
    while (by_turn_.size() > 1 && kept_bytes_ > limits_.bytes_max) {
        const auto oldest = by_turn_.begin();
        auto& kept = jobs_.at(oldest->second);
        kept_bytes_ -= std::exchange(kept.bytes, 0);
        kept.lines.clear();
        empty_.insert(by_turn_.extract(oldest));
    }
    while (jobs_.size() > limits_.jobs_max) {
        auto& from = empty_.empty() ? by_turn_ : empty_;
        const auto found = jobs_.find(from.begin()->second);
        forgotten_newest_ = std::max(forgotten_newest_, found->second.newest);
        kept_bytes_ -= found->second.bytes;
        jobs_.erase(found);
        from.erase(from.begin());
    }
}

/// Its id names where the reader stood, because two readers may miss different events before the same one.
std::string EventStream::gap_line(const std::string& job, const Kept& kept, const Cursor& after) const {
    const auto last = kept.newest - kept.lines.size();
    Event dropped{.kind = EventKind::events_dropped, .text = {}, .job = job};
    if (after.stream.empty() || after.stream == stream_) {
        dropped.text = cat("events ", after.sequence + 1, " to ", last, " are no longer kept");
        dropped.facts.dropped_count = static_cast<std::int64_t>(last - after.sequence);
    } else {
        dropped.text = cat("events after ", after.stream, "/", after.sequence,
                           " are of another daemon or start, and are not kept here");
    }
    return event_line(dropped, {cat(stream_, "-after-", after.stream, after.stream.empty() ? "" : "/", after.sequence),
                                last, kept.last_at, node_});
}

std::optional<EventStream::Page> EventStream::after(const std::string& job, Cursor after, std::size_t bytes_max) const {
    const auto found = jobs_.find(job);
    if (found == jobs_.end()) return std::nullopt;
    const auto& kept = found->second;
    const bool is_foreign = !after.stream.empty() && after.stream != stream_;
    // A number without a stream that is beyond the newest one is of another stream: the reader gets everything.
    if (!is_foreign && after.sequence > kept.newest) after.sequence = 0;
    Page page{.lines = {}, .last = is_foreign ? 0 : after.sequence, .newest = kept.newest};
    const auto first = kept.newest - kept.lines.size() + 1;
    auto next = page.last + 1;
    if (is_foreign || next < first) {
        page.lines = gap_line(job, kept, after);
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
