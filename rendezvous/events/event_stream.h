// The events of one process: numbers them for each job, and keeps the newest ones of each job for readers that come
// later. Pure: the caller gives the time and writes the lines out.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/events/event.h"

namespace muster {

class EventStream {
  public:
    struct Limits {
        std::size_t job_events_max = 4'000;
        std::size_t job_bytes_max = std::size_t{4} << 20;
        /// Of all jobs. Beyond it the job that was written to least recently loses its events, and keeps its number.
        std::size_t bytes_max = std::size_t{64} << 20;
        std::size_t jobs_max = 10'000;  ///< As many as a daemon serves. Beyond it a job loses its number, too.
    };

    /// `stream` is random for each process; `node` is the host of a launcher.
    explicit EventStream(std::string stream, std::string node = {})
        : EventStream(std::move(stream), std::move(node), Limits{}) {}
    EventStream(std::string stream, std::string node, Limits limits);

    /// Returns the event's line.
    std::string add(const Event& event, Duration since_1970);

    struct Page {
        std::string lines;
        std::uint64_t last = 0;  ///< Sequence number of the last event in `lines`. `after`, if there is none.
        std::uint64_t newest = 0;
    };
    /// The last event that a reader has.
    struct Cursor {
        std::uint64_t sequence = 0;
        std::string_view stream{};  ///< As in the event's id. Empty: the reader did not keep it.
    };
    /// The kept events of a job beyond the cursor: whole lines, at most `bytes_max` of them and at least one. If events
    /// between are no longer kept, or the cursor is of another stream, the first line is an events_dropped record with
    /// an id of its own. Nothing: the job is unknown.
    [[nodiscard]] std::optional<Page> after(const std::string& job, Cursor after, std::size_t bytes_max) const;

    [[nodiscard]] std::size_t kept_bytes() const { return kept_bytes_; }

  private:
    struct Kept {
        std::deque<std::string> lines;  ///< The last one has the number `newest`.
        std::size_t bytes = 0;
        std::uint64_t newest = 0;
        std::uint64_t turn = 0;  ///< Its place in by_turn_.
        Duration last_at{};
    };
    void drop_oldest(Kept& kept);
    void make_room();
    [[nodiscard]] std::string gap_line(const std::string& job, const Kept& kept, const Cursor& after) const;

    const std::string stream_;
    const std::string node_;
    const Limits limits_;
    std::map<std::string, Kept> jobs_;
    std::map<std::uint64_t, std::string> by_turn_;  ///< The jobs with events, by the time of their last one.
    std::map<std::uint64_t, std::string> empty_;    ///< The others, likewise.
    std::uint64_t forgotten_newest_ = 0;  ///< No job that is not in `jobs_` had a higher number: none is used again.
    std::uint64_t last_turn_ = 0;
    std::size_t kept_bytes_ = 0;
};

}  // namespace muster
