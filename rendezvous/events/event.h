// What happens to a job, as a value: the sentence that a person reads, and the facts in it for programs.
//
// The cores make events where they make log lines; nothing else does. An event is written as one JSON line, a
// CloudEvent 1.0 in structured form (EVENTS.md has the types and the fields):
//
//   {"specversion":"1.0","id":"7f3a01c2/184","source":"muster:/job/train","type":"muster.round.sealed.v1",
//    "time":"2026-11-23T18:02:11.482113Z","subject":"round/3","sequence":"00000000184",
//    "datacontenttype":"application/json","data":{"job":"train","round":3,"nodes":16,"text":"..."}}
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "rendezvous/base/ids.h"
#include "rendezvous/base/section_times.h"
#include "rendezvous/base/time.h"

namespace muster {

/// 30 days: a longer queue is taken for a clock that is wrong.
inline constexpr std::int64_t queued_ms_max = 30LL * 24 * 3600 * 1000;

enum class EventKind : std::uint8_t {
    job_started,  ///< The first node has joined.
    job_waiting,  ///< What its nodes wait for has changed.
    job_note,     ///< A sentence about a job that has no type of its own.
    job_ended,
    round_sealed,
    round_assigned,  ///< A node was told its ranks in the sealed round.
    round_resumed,   ///< A restarted daemon learned the running round from its agents.
    round_stepping,  ///< All ranks have completed a step.
    round_progress,  ///< How far the round is, now and then.
    round_ended,
    round_drained,  ///< No worker of the ended round can run any more.
    node_joined,
    node_waiting,  ///< An agent is held back until it is clear whether it belongs to the job.
    node_refused,
    node_lost,
    node_left,
    node_gone,      ///< It is no member any more, without node_left: no worker of it can run.
    node_drained,   ///< It was told to leave.
    node_left_out,  ///< It takes part in no round for now, because it failed too often.
    node_taken_back,
    node_progress,  ///< A line that a launcher prints while it waits, starts and stops.
    worker_started,
    worker_succeeded,
    worker_stopped,  ///< By muster, or it saved its step and left.
    worker_failed,
    worker_late,           ///< Others wait for it, or it is a straggler.
    checkpoint_committed,  ///< All ranks' files are on disk.
    checkpoint_failed,
    checkpoint_persisted,  ///< An agent wrote a snapshot of its workers to disk.
    checkpoint_loading,    ///< Where a round that follows another one takes up the training.
    doctor_check,          ///< A finding of a preflight.
    doctor_verdict,        ///< A preflight is over.
    section_entered,       ///< A worker is in a section, now and then.
    section_left,
    hang_suspected,  ///< Ranks wait in an operation, and others do nothing or wait in another one.
    hang_over,       ///< That is no longer so.
    notice_given,    ///< The workers were told that the job will be stopped soon.
    fault_injected,
    daemon_started,
    daemon_leader,  ///< Which of several daemons leads from now on.
    daemon_stalled,
    daemon_note,     ///< A sentence of the daemon that concerns no job.
    events_dropped,  ///< Events that a full or slow target did not take, or that are no longer kept.
};

/// "muster.round.sealed.v1".
std::string type_name(EventKind kind);

/// What the sentence says, as values. A field that does not apply keeps its default, and is not written.
/// In the order of fact_names (event.cpp).
struct EventFacts {
    std::string host{};
    std::int32_t pid = 0;
    std::int32_t rank = -1;
    std::int32_t local_rank = -1;
    std::int32_t group_rank = -1;  ///< Of a node.
    std::int64_t node = -1;        ///< Its number in the job, by which `members` names it.
    std::int64_t slot_count = -1;  ///< Workers of a node.
    std::string role{};            ///< Of a node's workers.
    std::string expected_hosts{};  ///< The hosts of the job, as a node knows them from its scheduler.
    std::int32_t role_rank = -1;
    std::int32_t role_world_size = -1;
    std::string reason{};               ///< Of a round's end: "worker_failed", "node_lost" ...
    std::string kind{};                 ///< Of a failure: "killed", "worker_error" ...
    std::string cause{};                ///< Of a failure: "out_of_memory" ...
    std::string section{};              ///< That a worker entered or left.
    std::string check{};                ///< Of a finding: "shared-memory" ...
    std::string level{};                ///< Of a finding: "warning", "could not look", "critical".
    std::string outcome{};              ///< Of a job: "succeeded", "failed" ...
    std::string waiting_for{};          ///< Of job_waiting.
    std::int64_t nodes_min = -1;        ///< Of a job.
    std::int64_t nodes_max = -1;        ///< Of a job.
    std::int64_t restarts_max = -1;     ///< Of a job.
    std::string members{};              ///< Nodes of a sealed round by group rank: "1-7,12,9".
    std::int64_t node_count = -1;       ///< Nodes of a sealed round.
    std::int64_t rank_count = -1;       ///< Ranks of a sealed round.
    std::int64_t rank_count_max = -1;   ///< What they would be with the most nodes.
    std::int64_t restart_count = -1;    ///< Charged restarts so far.
    std::int64_t step = -1;             ///< Of the slowest rank.
    std::int64_t first_step = -1;       ///< The first one that a rank reported in the round.
    std::int64_t checkpoint_step = -1;  ///< The newest checkpoint.
    std::int64_t data_wait_ms = -1;     ///< In the round, of the rank that waited longest for its data.
    SectionTimes sections{};            ///< In the round, of the rank that was longest in each.
    std::int64_t detecting_ms = -1;     ///< From the first failure to the end of its round.
    std::int64_t hung_ms = -1;          ///< Of a suspected hang: since the last step, where that is unusually long.
    std::int64_t queued_ms = -1;        ///< Of a job: from its submission to its first node.
    std::int64_t dropped_count = -1;    ///< Of events_dropped.
    std::int64_t uncertainty_ms = -1;   ///< Error of the time, where clocks of two hosts are involved.
    friend bool operator==(const EventFacts&, const EventFacts&) = default;
};

/// Where else the sentence is said: in the log; there as a warning; to the person at the launcher, whatever the log's
/// level. stream_only: it is too frequent for the log.
enum class EventPlace : std::uint8_t { log_and_stream, warning_and_stream, notice_and_stream, stream_only };

struct Event {
    EventKind kind = EventKind::job_note;
    std::string text{};
    EventFacts facts{};
    EventPlace place = EventPlace::log_and_stream;
    std::string job{};       ///< Empty: it is about no job.
    Round round = no_round;  ///< Of that job. no_round: none was sealed.
    friend bool operator==(const Event&, const Event&) = default;
};

/// What a stream adds to its events.
struct EventStamp {
    std::string_view stream;     ///< Distinguishes the writers of events: random for each process.
    std::uint64_t sequence = 0;  ///< From 1. One more for each event of the stream and the job.
    Duration since_1970{};
    std::string_view node{};  ///< The host of a launcher. Empty: the daemon.
};

/// One line, ended by '\n'. Bytes that are not UTF-8 become U+FFFD.
std::string event_line(const Event& event, const EventStamp& stamp);

}  // namespace muster
