// The last sealed round of a job: running, or ended and not yet replaced.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/base/time.h"
#include "rendezvous/rounds/ledgers/activity_ledger.h"
#include "rendezvous/rounds/ledgers/failure_ledger.h"
#include "rendezvous/rounds/ledgers/round_secret.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::rendezvous {

/// A member of a round that is no more.
struct LostNode {
    std::string who;
    Incarnation incarnation = 0;  ///< 0 where only its own word had put it into the round.
};

/// What is known of a round from agents alone, where this daemon did not seal it.
struct TaughtRound {
    bool agreed = true;               ///< Most of its members have said the same of it, or this daemon sealed it.
    std::uint32_t claim_count = 0;    ///< Agents that said the same.
    std::uint32_t dissent_count = 0;  ///< Agents that named another round.
    std::uint32_t restarts_used = 0;  ///< As they said. It counts when they have agreed.
};

struct SealedRound {
    Round number = no_round;                 ///< no_round: none was sealed yet
    std::uint32_t node_count = 0;            ///< group world size
    std::uint32_t unfinished = 0;            ///< of them, nodes whose workers have not all exited 0
    std::vector<std::string> notes;          ///< part of every assignment, also of a repeated one
    std::map<std::uint32_t, LostNode> gone;  ///< group ranks whose nodes are no more, and who they were
    RoundSecret secret;
    TaughtRound taught;
    bool is_spread = false;           ///< This daemon sealed it, with nodes of at least two addresses.
    std::set<std::uint32_t> through;  ///< group ranks of the others: one that is given up and comes back counts once
    std::set<std::uint32_t> through_gone;  ///< of them, those whose members are gone: the others' places tell
    bool gave_up = false;  ///< one of its nodes is no more, by its silence alone: nobody said that its workers are gone
    Instant parted_at = Instant::min();  ///< one of its nodes went last, without having joined again, in another way
    bool ended = false;
    native::RoundEndReason reason = native::RoundEndReason::worker_failed;
    bool final = false;           ///< announced as the last one: its members wait for JobEnded
    std::string final_why;        ///< what is said of it then, as it was known at that moment
    bool left = false;            ///< one of its nodes left voluntarily: without other causes, the victims are its
    bool drained = false;         ///< one of its nodes was drained: the others may save and leave with it
    bool settled_budget = false;  ///< whether it costs a restart has been decided
    std::string why;
    Instant ended_at;
    FailureLedger failures;     ///< of workers and nodes, for the verdict
    ActivityLedger activities;  ///< of workers that did nothing at its end
    std::uint32_t stopped_count = 0;
    std::uint32_t stepping_count = 0;   ///< Nodes whose workers have all reported a step.
    Instant sealed_at{};                ///< Or learned, by this daemon.
    Instant progress_told_at{};         ///< When its next round_progress is due.
    std::int64_t gone_step = -1;        ///< The slowest rank's when a running node was lost. -1: none was.
    std::int64_t checkpoint_step = -1;  ///< the newest that its nodes told of at its end; -1: none

    [[nodiscard]] bool running() const { return number != no_round && !ended; }
};

}  // namespace muster::rendezvous
