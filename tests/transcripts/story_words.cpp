// The daemon's messages as the right side of a transcript.
#include <type_traits>

#include "rendezvous/base/text/text.h"
#include "rendezvous/wire/native/codec.h"
#include "tests/transcripts/story.h"

namespace muster::test {

namespace {

std::string_view word(native::RoundEndReason reason) {
    switch (reason) {
        case native::RoundEndReason::worker_failed: return "worker_failed";
        case native::RoundEndReason::node_lost: return "node_lost";
        case native::RoundEndReason::node_left: return "node_left";
        case native::RoundEndReason::node_joined: return "node_joined";
        case native::RoundEndReason::daemon_restarted: return "daemon_restarted";
    }
    return "?";
}

std::string_view word(native::RefusalReason reason) {
    switch (reason) {
        case native::RefusalReason::version: return "version";
        case native::RefusalReason::terms_differ: return "terms_differ";
        case native::RefusalReason::duplicate: return "duplicate";
        case native::RefusalReason::job_in_use: return "job_in_use";
        case native::RefusalReason::limit: return "limit";
        case native::RefusalReason::malformed: return "malformed";
        case native::RefusalReason::secret: return "secret";
        case native::RefusalReason::job_full: return "job_full";
    }
    return "?";
}

struct Words {
    std::string operator()(const native::Assigned& m) const {
        auto text = cat(" round ", m.round, ": group rank ", m.group_rank, " of ", m.group_world_size, ", rank ",
                        m.rank_base, " of ", m.world_size, ", role rank ", m.role_rank_base, " of ", m.role_world_size,
                        ", restarts ", m.restart_count, ", store ",
                        m.store_addresses.empty() ? "none" : m.store_addresses.front(), ":", m.store_port);
        for (const auto& note : m.notes) text += cat(" [", note, "]");
        constexpr std::uint32_t usual_ms = 250;  // of a small round with the usual lease
        return m.heartbeat_ms == usual_ms ? text : cat(text, ", heartbeat ", m.heartbeat_ms, " ms");
    }
    std::string operator()(const native::Gathering& m) const {
        return cat(" ", m.joined, " of ", m.nodes_min, "..", m.nodes_max,
                   m.last_call_left_ms < 0 ? std::string{} : cat(", last call ", m.last_call_left_ms, " ms"),
                   "; waiting for ", m.waiting_for);
    }
    std::string operator()(const native::Parked& m) const {
        return cat(" ", m.position, m.why.empty() ? "" : ": ", m.why);
    }
    std::string operator()(const native::RoundEnded& m) const {
        return cat(" ", m.round, " ", word(m.reason), m.final ? " final" : "", ": ", m.why);
    }
    std::string operator()(const native::JobEnded& m) const {
        const auto first = m.verdict.first
                               ? cat("; first: ", blame(*m.verdict.first), ", ", m.verdict.other_failure_count,
                                     " others, ", m.verdict.stopped_count, " stopped")
                               : std::string{};
        return cat(m.outcome == native::JobOutcome::succeeded ? " succeeded" : " failed", " after ", m.restart_count,
                   " restarts: ", m.why, first);
    }
    std::string operator()(const native::Refused& m) const { return cat(" ", word(m.reason), ": ", m.why); }
    std::string operator()(const native::NotLeader& m) const { return cat(" ", m.leader); }
    std::string operator()(const native::Peers& m) const {
        auto text =
            cat(" round ", m.round, ": ", m.place.position, " of ", m.place.size, m.above.empty() ? "" : " asks");
        for (const auto& peer : m.above) text += cat(" ", peer.group_rank, "=", peer.address, ":", peer.port);
        return text;
    }
    std::string operator()(const native::NoticeGiven& m) const { return cat(": ", m.why); }
    std::string operator()(const native::Drain& m) const { return cat(": ", m.why); }
    std::string operator()(const native::CommandAnswer& m) const {
        return cat(" ", m.number, m.done ? " done: " : " not done: ", m.text);
    }
    std::string operator()(const native::FaultOrdered& m) const {
        return cat(" ", m.number, " round ", m.round, ": ", native::describe(m.fault));
    }
    std::string operator()(const native::StateStalled& m) const { return cat(m.decided ? " decided: " : ": ", m.why); }
    std::string operator()(const native::JobSeen& m) const {
        auto text = cat(" ", m.round, ":");
        for (const auto& line : m.lines) text += cat(" [", line.text, "]");
        return text;
    }
    std::string operator()(const auto&) const { return {}; }

    static std::string blame(const Failure& failure) {
        if (failure.kind == FailureKind::node_lost) return cat(failure.host, " lost");
        return cat("rank ", failure.rank, " on ", failure.host, ": ", muster::describe(failure.end));
    }
};

}  // namespace

std::string describe(const native::Message& message) {
    return cat(native::name(message), std::visit(Words{}, message));
}

}  // namespace muster::test
