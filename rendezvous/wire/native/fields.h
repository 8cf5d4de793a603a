// The fields of every message in wire order: one function per struct, used by the encoder and the decoder alike, so
// that the two cannot disagree. Private to field_codec.h (and to the table that PROTOCOL.md is checked against).
//
// A visitor V offers: number(x), flag(x), choice(x, last), bytes(text, max), name/sentence/path(text), text(text, max,
// keep), list(vector, max), numbers(vector, max) and optional(value). `M` is the struct, const when encoding.
#pragma once

#include <concepts>
#include <type_traits>

#include "rendezvous/base/step_buckets.h"
#include "rendezvous/wire/native/limits.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::native {

/// `M` is one of T, or const.
template <class M, class... T>
concept Is = (std::same_as<std::remove_const_t<M>, T> || ...);

/// Which part of a text that is too long survives.
enum class Keep { front, back };

// ---- the parts of messages ----

void fields(auto& v, Is<NodeIdentity> auto& m) {
    v.name(m.host);
    v.number(m.pid);
    v.number(m.incarnation);
}

void fields(auto& v, Is<VersionFact> auto& m) {
    v.name(m.component);
    v.name(m.version);
}

void fields(auto& v, Is<JobTerms> auto& m) {
    v.number(m.nodes_min);
    v.number(m.nodes_max);
    v.number(m.spares);
    v.number(m.restarts_max);
    v.flag(m.fixed_world);
    v.number(m.last_call_ms);
    v.number(m.lease_ms);
    v.number(m.lost_timeout_ms);
    v.number(m.stalled_restarts_max);
    v.number(m.restarts_window_ms);
    v.number(m.node_failures_max);
    v.number(m.node_failures_of);
    v.flag(m.restart_early_failures);
    v.flag(m.store_door);
}

void fields(auto& v, Is<Fault> auto& m) {
    v.choice(m.kind, FaultKind::out_of_memory);
    v.choice(m.target, FaultTarget::daemon);
    v.number(m.rank);
    v.number(m.for_ms);
    v.number(m.stopped_percent);
}

void fields(auto& v, Is<Exited> auto& m) {
    v.number(m.code);
}

void fields(auto& v, Is<Signaled> auto& m) {
    v.number(m.signal);
    v.flag(m.core_dumped);
}

void fields(auto& v, Is<NotStarted> auto& m) {
    v.number(m.error_number);
    v.text(m.stage, name_bytes_max, Keep::back);  // may hold a path, whose end says most
}

void fields(auto& v, Is<Failure> auto& m) {
    v.choice(m.kind, FailureKind::communication_error);
    v.name(m.host);
    v.name(m.role);
    v.number(m.group_rank);
    v.number(m.rank);
    v.number(m.local_rank);
    v.number(m.pid);
    v.either(m.end);
    v.text(m.message, failure_message_bytes_max, Keep::back);  // a traceback's last line says what happened
    v.text(m.stderr_tail, stderr_tail_bytes_max, Keep::back);
    v.path(m.error_file);
    v.path(m.log_directory);
    v.number(m.at_ns);
    v.number(m.uncertainty_ns);
    v.number(m.wall_time_s);
    v.choice(m.cause.kind, CauseKind::hung);
    v.text(m.cause.text, cause_bytes_max, Keep::front);
    v.path(m.cause.core_file);
    v.flag(m.early);
}

void fields(auto& v, Is<FailureGroup> auto& m) {
    v.choice(m.kind, FailureKind::communication_error);
    v.sentence(m.error);
    v.text(m.ranks, ranks_bytes_max, Keep::front);
    v.number(m.count);
}

void fields(auto& v, Is<WorkerActivity> auto& m) {
    v.number(m.rank);
    v.number(m.pid);
    v.number(m.idle_ms);
    v.text(m.state, activity_text_max, Keep::front);
    v.flag(m.inside);
    v.text(m.operation, activity_text_max, Keep::front);
    v.text(m.place, activity_place_max, Keep::front);
}

void fields(auto& v, Is<ActivityGroup> auto& m) {
    v.name(m.host);
    v.part(m.first);
    v.text(m.ranks, ranks_bytes_max, Keep::front);
    v.number(m.count);
}

void fields(auto& v, Is<Verdict> auto& m) {
    v.number(m.round);
    v.optional(m.first);
    v.number(m.other_failure_count);
    v.number(m.stopped_count);
    v.list(m.groups, groups_max);
    v.list(m.activities, groups_max);
}

void fields(auto& v, Is<TreePlace> auto& m) {
    v.number(m.position);
    v.number(m.size);
}

void fields(auto& v, Is<Peer> auto& m) {
    v.number(m.group_rank);
    v.name(m.address);
    v.number(m.port);
}

// ---- agent -> daemon ----

void fields(auto& v, Is<Hello> auto& m) {
    v.number(m.version);
    if (m.version != protocol_version) return v.skip_rest();  // enough to be refused with both versions
    v.name(m.job);
    v.part(m.node);
    v.number(m.connection);
    v.list(m.versions, versions_max);
    v.bytes(m.challenge, challenge_bytes_max);
}

void fields(auto& v, Is<Join> auto& m) {
    v.part(m.terms);
    v.number(m.last_round);
    v.number(m.slots);
    v.name(m.role);
    v.number(m.node_rank);
    v.flag(m.hosts_endpoint);
    v.names(m.addresses, addresses_max);
    v.names(m.sources, addresses_max);
    v.number(m.store_port);
    v.number(m.peer_port);
    v.line(m.entry);
    v.line(m.arguments, arguments_bytes_max);
    v.number(m.arguments_hash);
    v.sentence(m.expected_hosts);
    v.sentence(m.unhealthy);
    v.number(m.queued_ms);
}

void fields(auto& v, Is<Assigned> auto& m) {
    v.number(m.round);
    v.number(m.group_rank);
    v.number(m.group_world_size);
    v.number(m.rank_base);
    v.number(m.world_size);
    v.number(m.role_rank_base);
    v.number(m.role_world_size);
    v.number(m.restart_count);
    v.names(m.store_addresses, addresses_max);
    v.number(m.store_port);
    v.names(m.store_clients, store_clients_max);
    v.sentences(m.notes, notes_max);
    v.bytes(m.secret, challenge_bytes_max);
    v.number(m.heartbeat_ms);
}

void fields(auto& v, Is<Resume> auto& m) {
    v.number(m.round);
    v.flag(m.succeeded);
    v.part(m.as_joined);
    v.part(m.as_assigned);
    v.number(m.stop_grace_ms);
}

void fields(auto& v, Is<Ping> auto& m) {
    v.number(m.sequence);
    v.number(m.sent_ns);
}

void fields(auto& v, Is<WorkersFailed> auto& m) {
    v.number(m.round);
    v.list(m.failures, failures_max);
}

void fields(auto& v, Is<WorkersSucceeded> auto& m) {
    v.number(m.round);
}

void fields(auto& v, Is<RoundReport> auto& m) {
    v.number(m.round);
    v.list(m.failures, failures_max);
    v.number(m.stopped_count);
    v.number(m.checkpoint_step);
    v.list(m.activities, activities_max);
}

void fields(auto& v, Is<Leave> auto& m) {
    v.sentence(m.why);
}
void fields(auto&, Is<EndAcknowledged> auto&) {}
void fields(auto& v, Is<AgentDied> auto& m) {
    v.sentence(m.why);
}
void fields(auto& v, Is<Proof> auto& m) {
    v.bytes(m.proof, challenge_bytes_max);
}

void fields(auto& v, Is<Command> auto& m) {
    v.number(m.number);
    v.choice(m.verb, CommandVerb::inject_fault);
    v.name(m.node);
    v.sentence(m.why);
    v.part(m.fault);
}

void fields(auto& v, Is<FaultAnswer> auto& m) {
    v.number(m.number);
    v.flag(m.done);
    v.sentence(m.text);
}

void fields(auto& v, Is<StepTally> auto& m) {
    v.number(m.first_step);
    v.number(m.step_count);
    v.number(m.step_ns);
    v.number(m.measured_ns);
    v.number(m.data_wait_ns);
    v.number(m.exposed_ns);
    v.number(m.late_ns);
    v.number(m.sample_count);
    v.number(m.checkpoint_step);
    v.number(m.checkpoint_failure_count);
    v.number(m.checkpoint_blocked_ns);
}

void fields(auto& v, Is<StepTimeCount> auto& m) {
    v.number(m.count);
}

void fields(auto& v, Is<SeenWorker> auto& m) {
    v.part(m.at);
    v.choice(m.pace, WorkerPace::waiting);
    v.number(m.inside_percent);
    v.number(m.step);
    v.part(m.tally);
}

void fields(auto& v, Is<RankCounts> auto& m) {
    v.number(m.training);
    v.number(m.waiting);
    v.number(m.overdue);
    v.number(m.stopped);
    v.number(m.section);
}

void fields(auto& v, Is<TierSteps> auto& m) {
    v.number(m.memory);
    v.number(m.neighbour);
    v.number(m.local);
    v.number(m.shared);
}

void fields(auto& v, Is<WorkersSeen> auto& m) {
    v.number(m.round);
    v.list(m.workers, activities_max);
    v.part(m.counts);
    v.part(m.checkpoints);
    v.number(m.loading_ms);
    v.list(m.step_times, step_time_bucket_count);
    v.flag(m.final);
}

void fields(auto& v, Is<StandbysSeen> auto& m) {
    v.number(m.count);
    v.number(m.memory_bytes);
}

// ---- daemon -> agent ----

void fields(auto& v, Is<Pong> auto& m) {
    v.number(m.sequence);
    v.number(m.sent_ns);
    v.number(m.daemon_ns);
}

void fields(auto& v, Is<Gathering> auto& m) {
    v.number(m.joined);
    v.number(m.nodes_min);
    v.number(m.nodes_max);
    v.number(m.last_call_left_ms);
    v.sentence(m.waiting_for);
}

void fields(auto& v, Is<Parked> auto& m) {
    v.number(m.position);
    v.sentence(m.why);
}

void fields(auto& v, Is<Peers> auto& m) {
    v.number(m.round);
    v.part(m.place);
    v.list(m.above, peers_above_max);
}

void fields(auto& v, Is<RoundEnded> auto& m) {
    v.number(m.round);
    v.choice(m.reason, RoundEndReason::daemon_restarted);
    v.flag(m.final);
    v.sentence(m.why);
}

void fields(auto& v, Is<Drain> auto& m) {
    v.sentence(m.why);
}

void fields(auto& v, Is<JobEnded> auto& m) {
    v.choice(m.outcome, JobOutcome::crash_loop);
    v.part(m.verdict);
    v.number(m.restart_count);
    v.sentence(m.why);
    v.sentence(m.goodput);
}

void fields(auto& v, Is<Refused> auto& m) {
    v.choice(m.reason, RefusalReason::job_full);
    v.sentence(m.why);
}

void fields(auto& v, Is<Challenge> auto& m) {
    v.bytes(m.nonce, challenge_bytes_max);
    v.bytes(m.proof, challenge_bytes_max);
}

void fields(auto& v, Is<NoticeGiven> auto& m) {
    v.sentence(m.why);
}

void fields(auto& v, Is<CommandAnswer> auto& m) {
    v.number(m.number);
    v.flag(m.done);
    v.sentence(m.text);
}

void fields(auto& v, Is<NotLeader> auto& m) {
    v.sentence(m.leader);
}

void fields(auto& v, Is<FaultOrdered> auto& m) {
    v.number(m.number);
    v.number(m.round);
    v.part(m.fault);
}

void fields(auto& v, Is<WaitingWorker> auto& m) {
    v.name(m.host);
    v.number(m.rank);
    v.number(m.pid);
    v.text(m.operation, activity_text_max, Keep::front);
}

void fields(auto& v, Is<JobLine> auto& m) {
    v.number(m.rank);
    v.sentence(m.text);
}

void fields(auto& v, Is<JobSeen> auto& m) {
    v.number(m.round);
    v.optional(m.waiting);
    v.list(m.lines, groups_max);
}

void fields(auto& v, Is<StateStalled> auto& m) {
    v.sentence(m.why);
    v.flag(m.decided);
}

// ---- agent <-> agent ----

void fields(auto& v, Is<PeerAsk> auto& m) {
    v.name(m.job);
    v.number(m.round);
    v.number(m.group_rank);
    v.number(m.asker);
    v.number(m.tree_size);
    v.flag(m.lost);
    v.number(m.covered);
    v.number(m.age_ns);
    v.number(m.echo);
    v.number(m.held_ns);
    v.sentence(m.leader);
    v.number(m.number);
    v.bytes(m.nonce, challenge_bytes_max);
    v.bytes(m.proof, challenge_bytes_max);
}

void fields(auto& v, Is<PeerAnswer> auto& m) {
    v.number(m.round);
    v.flag(m.leader_lost);
    v.number(m.all_age_ns);
    v.sentence(m.leader);
    v.bytes(m.nonce, challenge_bytes_max);
    v.bytes(m.proof, challenge_bytes_max);
}

}  // namespace muster::native
