// Does a worker still do something? Pure: looks at /proc and at the flight records come in once a second, lines for the
// person at the launcher and orders to end a worker go out. FAILURES.md tells what is found, and what is left alone.
//
// Slow is never taken for hung. A worker is active where it used 2 % of a CPU, read or wrote something, or began an
// operation since the last look; whoever is active is waited for without end. What is not active is told of: a GPU, a
// peer's stage or a server may be at work for it unseen. Only what a signal has stopped is ended.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/time.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::agent {

struct HangConfig {
    std::string host{};            ///< of this node, for the lines; may be empty
    Duration stuck_after = 10s;    ///< stopped (T) or in uninterruptible sleep (D) for so long: told
    Duration silent_after = 120s;  ///< all workers of the node inactive for so long: told, with what each waits in
    /// A worker that others wait for is told of, and one that is stopped ended, when it has been inactive for this
    /// long, or for gap_factor times the longest pause between two of its operations so far, whichever is longer. Zero:
    /// neither.
    Duration deadline_min = 10s;
    std::int64_t gap_factor = 3;
    /// Over so long a rank is a straggler when the others of its node were inside operations for this share of the time
    /// more than it was: they wait for it. Told, and told again after ten times as long; never ended.
    Duration straggler_window = 60s;
    double straggler_share = 0.2;
    std::uint64_t operations_min = 16;  ///< fewer: it is still starting up, and its pauses are not known
    std::uint64_t heartbeats_min = 3;   ///< the same of pauses between heartbeats that were seen
    /// Inactive for so long (and for no longer than deadline_min): where it stands is worth a word if the round fails.
    /// Inside one operation for so long: others that are overdue are missing there, wherever they run.
    Duration worth_a_word = 5s;
};

/// The last operations of a worker, from its flight record.
struct OperationLook {
    std::uint64_t count = 0;  ///< ever begun
    bool inside = false;      ///< one is under way
    std::string name;         ///< "all_reduce 41 of world": the one under way, or else the last one
    Duration longest_gap{};   ///< between the end of one and the start of the next, as far as the record goes
    /// Of the time that the record's newest operations span, the part inside them: waiting for others, or moving data.
    double inside_share = 0;
};

/// One worker at one moment.
struct WorkerLook {
    std::uint32_t local_rank = 0;
    std::int32_t rank = 0;
    std::int32_t pid = 0;
    char state = '?';              ///< as in /proc/PID/stat
    Duration cpu{};                ///< used so far, all threads
    std::uint64_t io_bytes = 0;    ///< read and written so far, by system calls
    std::string where;             ///< kernel function it sleeps in; empty: not known
    std::string section;           ///< what the worker says that it is doing; exempt while it is not empty
    Duration section_limit{};      ///< its own limit for that; zero: none
    std::uint64_t heartbeats = 0;  ///< that it has sent so far
    std::optional<OperationLook> operation;
};

struct EndOrder {
    std::uint32_t local_rank = 0;
    std::string why;  ///< for the report
};

struct HangStep {
    std::vector<std::string> notices;
    /// Local ranks of the workers whose stacks explain them, each once until it does something again.
    std::vector<std::uint32_t> stacks;
    /// The same, to be given to stands_at() and told to nobody before the round has failed.
    std::vector<std::uint32_t> places;
    std::vector<EndOrder> ends;  ///< each worker once
};

class HangWatch {
  public:
    explicit HangWatch(HangConfig config) : config_(config) {}

    /// Other workers run from now on.
    void begin_round();
    /// All workers of this node that have not ended. After a pause of the agent itself (no look for five seconds) all
    /// waiting begins anew: the machine may have been asleep.
    HangStep look(const std::vector<WorkerLook>& looks, Instant now);
    /// The round is over, and not well: a line for each worker that did nothing and was in no operation meanwhile.
    /// Where the ranks that waited for it are on other nodes, these are the ones that they name.
    [[nodiscard]] std::vector<std::string> round_failed(Instant now) const;
    /// What was asked for in HangStep::places. For as long as the worker does nothing.
    void stands_at(std::uint32_t local_rank, std::string place);
    void worker_ended(std::uint32_t local_rank, Instant now);
    /// Those of this round's workers that have done nothing for long, or had until just now (they gave up waiting, and
    /// may have ended for it); the missing and the longest idle first, at most native::whereabouts_max.
    [[nodiscard]] std::vector<Whereabouts> whereabouts(Instant now) const;
    /// Those that run, as they were at the last look, at most native::whereabouts_max, the suspicious first: what
    /// others are to know of them should this node be lost, and what shows beside theirs who does not come.
    [[nodiscard]] std::vector<native::SeenWorker> seen(Instant now) const;
    /// What showed: a worker of this node that is overdue is missing from what another node's worker waits in, as if
    /// that one were beside it.
    HangStep job_seen(const native::JobSeen& seen, Instant now);

  private:
    struct Known {
        WorkerLook last;
        Instant active_at;                   ///< it was seen to do something
        std::optional<Instant> stuck_since;  ///< in state T or D at each look since, and not active
        bool stuck_told = false;
        Duration longest_gap{};
        bool told_missing = false;  ///< since it was active, as the next ones
        bool end_ordered = false;
        bool stacks_told = false;  ///< since it was active
        bool place_asked = false;  ///< since it was active
        std::string place;
        Instant operation_since{};                           ///< it has been in this one, or outside of any after it
        std::optional<native::WaitingWorker> waited_for_by;  ///< on another node, since it was active
        std::optional<Whereabouts> last_rest;  ///< where it stood until rest_over_at, if it was idle for long
        Instant rest_over_at{};
        Instant section_since{};  ///< it has been in this section
        bool section_told = false;
        Instant heartbeat_at{};  ///< of the last one
        Duration longest_heartbeat_pause{};
        std::uint64_t heartbeat_pauses = 0;
        bool heartbeat_told = false;
        double share_sum = 0;  ///< of inside_share, over the looks of this straggler_window
        std::uint64_t share_count = 0;
    };

    static Known first_seen(const WorkerLook& look, Instant now);
    void note(Known& known, const WorkerLook& look, Instant now);
    void note_words(Known& known, const WorkerLook& look, Instant now) const;
    void tell_stuck(Known& known, Instant now, HangStep& step) const;
    void tell_section(Known& known, Instant now, HangStep& step) const;
    void tell_heartbeats(Known& known, Instant now, HangStep& step);
    void tell_silent(Instant now, HangStep& step);
    void tell_straggler(Instant now, HangStep& step);
    void ask_places(Instant now, HangStep& step);
    [[nodiscard]] bool is_worth_a_word(const Known& known, Instant now) const;
    [[nodiscard]] std::optional<Whereabouts> where_was(const Known& known, Instant now) const;
    [[nodiscard]] static Whereabouts where_is(const Known& known, Instant now);
    void order_ends(Instant now, HangStep& step);
    void want_all_stacks(Known& first, HangStep& step);
    [[nodiscard]] std::string named(const WorkerLook& look) const;
    [[nodiscard]] std::optional<std::string> why_hung(const Known& known, Instant now) const;
    [[nodiscard]] bool is_overdue(const Known& known, Instant now) const;
    [[nodiscard]] native::WorkerPace pace_of(const Known& known, Instant now) const;
    [[nodiscard]] const Known* waiting_beside(const Known& known) const;
    [[nodiscard]] std::optional<native::WaitingWorker> waiting_for(const Known& known) const;

    HangConfig config_;
    std::map<std::uint32_t, Known> workers_;  ///< by local rank
    std::vector<Whereabouts> ended_;          ///< of workers that are no more
    std::optional<Instant> last_look_;
    bool silence_told_ = false;
    std::optional<Instant> shares_since_;
    std::optional<Instant> straggler_told_at_;
};

/// "rank 3 (pid 42): stopped, inside all_reduce 41 of world".
std::string describe(const WorkerLook& look);

}  // namespace muster::agent
