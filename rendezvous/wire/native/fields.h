// The fields of every message in wire order, for the encoder and the decoder alike, so that the two cannot disagree. A
// struct whose members need no limit has them on the wire in the order of their declaration; one function describes
// each of the others. Private to field_codec.h (and to the table that PROTOCOL.md is checked against).
//
// A visitor offers v(x, y, ...) for what its type says how to write (numbers, flags, sentences, structs, optionals and
// variants of structs), and for what it does not: choice(x, last), bytes(text, max), name/path/line(text), text(text,
// max, keep), list(vector, max) and names(vector, max). `M` is the struct, const when encoding.
#pragma once

#include <boost/pfr/core.hpp>
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

/// Of a struct that has no function of its own.
void fields(auto& v, auto& m) {
    static_assert(std::is_aggregate_v<std::remove_reference_t<decltype(m)>>);
    boost::pfr::for_each_field(m, [&v](auto& field) { v(field); });
}

// ---- the parts of messages ----

void fields(auto& v, Is<NodeIdentity> auto& m) {
    v.name(m.host);
    v(m.pid, m.incarnation);
}

void fields(auto& v, Is<VersionFact> auto& m) {
    v.name(m.component);
    v.name(m.version);
}

void fields(auto& v, Is<Fault> auto& m) {
    v.choice(m.kind, FaultKind::out_of_memory);
    v.choice(m.target, FaultTarget::daemon);
    v(m.rank, m.for_ms, m.stopped_percent);
}

void fields(auto& v, Is<NotStarted> auto& m) {
    v(m.error_number);
    v.text(m.stage, name_bytes_max, Keep::back);  // may hold a path, whose end says most
}

void fields(auto& v, Is<Failure> auto& m) {
    v.choice(m.kind, FailureKind::communication_error);
    v.name(m.host);
    v.name(m.role);
    v(m.group_rank, m.rank, m.local_rank, m.pid, m.end);
    v.text(m.message, failure_message_bytes_max, Keep::back);  // a traceback's last line says what happened
    v.text(m.stderr_tail, stderr_tail_bytes_max, Keep::back);
    v.path(m.error_file);
    v.path(m.log_directory);
    v(m.at_ns, m.uncertainty_ns, m.wall_time_s);
    v.choice(m.cause.kind, CauseKind::hung);
    v.text(m.cause.text, cause_bytes_max, Keep::front);
    v.path(m.cause.core_file);
    v(m.early);
}

void fields(auto& v, Is<FailureGroup> auto& m) {
    v.choice(m.kind, FailureKind::communication_error);
    v(m.error);
    v.text(m.ranks, ranks_bytes_max, Keep::front);
    v(m.count);
}

void fields(auto& v, Is<WorkerActivity> auto& m) {
    v(m.rank, m.pid, m.idle_ms);
    v.text(m.state, activity_text_max, Keep::front);
    v(m.inside);
    v.text(m.operation, activity_text_max, Keep::front);
    v.text(m.place, activity_place_max, Keep::front);
}

void fields(auto& v, Is<ActivityGroup> auto& m) {
    v.name(m.host);
    v(m.first);
    v.text(m.ranks, ranks_bytes_max, Keep::front);
    v(m.count);
}

void fields(auto& v, Is<Verdict> auto& m) {
    v(m.round, m.first, m.other_failure_count, m.stopped_count);
    v.list(m.groups, groups_max);
    v.list(m.activities, groups_max);
}

void fields(auto& v, Is<TreePlace> auto& m) {
    v(m.position, m.size);
}

void fields(auto& v, Is<Peer> auto& m) {
    v(m.group_rank);
    v.name(m.address);
    v(m.port);
}

// ---- agent -> daemon ----

void fields(auto& v, Is<Hello> auto& m) {
    v(m.version);
    if (m.version != protocol_version) return v.skip_rest();  // enough to be refused with both versions
    v.name(m.job);
    v(m.node, m.connection);
    v.list(m.versions, versions_max);
    v.bytes(m.challenge, challenge_bytes_max);
}

void fields(auto& v, Is<Join> auto& m) {
    v(m.terms, m.last_round, m.slots);
    v.name(m.role);
    v(m.node_rank, m.hosts_endpoint);
    v.names(m.addresses, addresses_max);
    v.names(m.sources, addresses_max);
    v(m.store_port, m.peer_port);
    v.line(m.entry);
    v.line(m.arguments, arguments_bytes_max);
    v(m.arguments_hash, m.expected_hosts, m.unhealthy, m.queued_ms);
}

void fields(auto& v, Is<Assigned> auto& m) {
    v(m.round, m.group_rank, m.group_world_size, m.rank_base, m.world_size, m.role_rank_base, m.role_world_size,
      m.restart_count);
    v.names(m.store_addresses, addresses_max);
    v(m.store_port);
    v.names(m.store_clients, store_clients_max);
    v.list(m.notes, notes_max);
    v.bytes(m.secret, challenge_bytes_max);
    v(m.heartbeat_ms);
}

void fields(auto& v, Is<WorkersFailed> auto& m) {
    v(m.round);
    v.list(m.failures, failures_max);
}

void fields(auto& v, Is<RoundReport> auto& m) {
    v(m.round);
    v.list(m.failures, failures_max);
    v(m.stopped_count, m.checkpoint_step);
    v.list(m.activities, activities_max);
}

void fields(auto& v, Is<Proof> auto& m) {
    v.bytes(m.proof, challenge_bytes_max);
}

void fields(auto& v, Is<Command> auto& m) {
    v(m.number);
    v.choice(m.verb, CommandVerb::inject_fault);
    v.name(m.node);
    v(m.why, m.fault);
}

void fields(auto& v, Is<SeenWorker> auto& m) {
    v(m.at);
    v.choice(m.pace, WorkerPace::waiting);
    v(m.inside_percent, m.step, m.tally);
}

void fields(auto& v, Is<SectionTime> auto& m) {
    v.line(m.name, section_name_bytes_max);
    v(m.time_ns);
}

void fields(auto& v, Is<WorkersSeen> auto& m) {
    v(m.round);
    v.list(m.workers, activities_max);
    v(m.counts, m.checkpoints);
    v.list(m.sections, sections_max);
    v(m.since_step_ns);
    v.list(m.step_times, step_time_bucket_count);
    v.list(m.gpus, gpus_max);
    v(m.final);
}

// ---- daemon -> agent ----

void fields(auto& v, Is<Peers> auto& m) {
    v(m.round, m.place);
    v.list(m.above, peers_above_max);
}

void fields(auto& v, Is<RoundEnded> auto& m) {
    v(m.round);
    v.choice(m.reason, RoundEndReason::daemon_restarted);
    v(m.final, m.why);
}

void fields(auto& v, Is<JobEnded> auto& m) {
    v.choice(m.outcome, JobOutcome::crash_loop);
    v(m.verdict, m.restart_count, m.why, m.goodput);
}

void fields(auto& v, Is<Refused> auto& m) {
    v.choice(m.reason, RefusalReason::job_full);
    v(m.why);
}

void fields(auto& v, Is<Challenge> auto& m) {
    v.bytes(m.nonce, challenge_bytes_max);
    v.bytes(m.proof, challenge_bytes_max);
}

void fields(auto& v, Is<WaitingWorker> auto& m) {
    v.name(m.host);
    v(m.rank, m.pid);
    v.text(m.operation, activity_text_max, Keep::front);
}

void fields(auto& v, Is<JobSeen> auto& m) {
    v(m.round, m.waiting);
    v.list(m.lines, groups_max);
}

// ---- agent <-> agent ----

void fields(auto& v, Is<PeerAsk> auto& m) {
    v.name(m.job);
    v(m.round, m.group_rank, m.asker, m.tree_size, m.lost, m.covered, m.age_ns, m.echo, m.held_ns, m.leader, m.number);
    v.bytes(m.nonce, challenge_bytes_max);
    v.bytes(m.proof, challenge_bytes_max);
}

void fields(auto& v, Is<PeerAnswer> auto& m) {
    v(m.round, m.leader_lost, m.all_age_ns, m.leader);
    v.bytes(m.nonce, challenge_bytes_max);
    v.bytes(m.proof, challenge_bytes_max);
}

}  // namespace muster::native
