// What viewers of the page have not seen yet, as messages of text/event-stream. Pure.
//
//   clock     {"now_ms"}                      once, the daemon's wall clock
//   daemon    GET /status without its jobs, and the daemon's version and host
//   jobs      rows by job id (ChangingRows): phase, counts of nodes and ranks, step, goodput
//   job       the job that is viewed, without its nodes; null: unknown
//   nodes     rows by incarnation, of that job
//   happened  one event of that job (EVENTS.md)
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/time.h"
#include "rendezvous/dialects/event_tap.h"
#include "rendezvous/page/changing_rows.h"
#include "rendezvous/rounds/job_summary.h"
#include "rendezvous/rounds/seen_nodes.h"

namespace muster::rendezvous {

class News {
  public:
    struct Sources {
        std::function<std::string(Instant now)> daemon;  ///< JSON.
        std::function<std::vector<JobSummary>(Instant now)> jobs;
        /// Of the nodes, those that changed since the last call with `seen`.
        std::function<JobPieces(const std::string& job, Instant now, SeenNodes& seen)> job;
        std::function<std::optional<EventStream::Page>(const std::string& job, const EventPosition& after,
                                                       std::size_t bytes_max)>
            events;
        std::function<std::int64_t()> wall_clock_ms;
    };

    /// What one viewer has.
    struct Seen {
        std::string job{};  ///< That it views. Empty: none.
        /// The last event that it has. Nothing: it gets the newest 1,000.
        std::optional<EventPosition> event{};
        bool clock = false;
        std::string daemon{};
        std::uint64_t jobs = 0;
        std::string detail{};
        std::uint64_t nodes = 0;
    };

    explicit News(Sources sources) : sources_(std::move(sources)) {}

    /// Looks at the daemon and its jobs.
    void look_at_jobs(Instant now);
    /// Looks at one job, until `forget`.
    void look_at(const std::string& job, Instant now);
    void forget(const std::string& job) { viewed_.erase(job); }

    /// The messages that bring a viewer up to the last look. At least a comment, because a silent daemon is news.
    std::string next(Seen& seen);

  private:
    struct Viewed {
        std::string detail;
        SeenNodes seen;
        ChangingRows nodes;
    };
    void add_job(std::string& out, Seen& seen);
    void add_events(std::string& out, Seen& seen);

    const Sources sources_;
    std::string daemon_;
    ChangingRows jobs_;
    std::map<std::string, Viewed> viewed_;
};

}  // namespace muster::rendezvous
