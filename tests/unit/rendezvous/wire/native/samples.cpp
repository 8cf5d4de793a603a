#include "tests/unit/rendezvous/wire/native/samples.h"

namespace muster::test {

using namespace native;

namespace {

Join join() {
    Join join;
    join.terms = {2, 4, 1, 3, false, 30'000, 5'000, 60'000, 2, 3'600'000, 2, 5, true};
    join.last_round = 6;
    join.slots = 8;
    join.role = "gpu";
    join.node_rank = 1;
    join.hosts_endpoint = true;
    join.addresses = {"n1", "10.0.0.1"};
    join.store_port = 4660;
    join.peer_port = 22136;
    join.sources = {"10.1.0.1"};
    join.entry = "a.py";
    join.arguments = "-x";
    join.arguments_hash = 0x0102030405060708;
    join.expected_hosts = "n[0-1]";
    join.unhealthy = "hot";
    join.queued_ms = 0x1112131415161718;
    return join;
}

Assigned assigned() {
    Assigned assigned;
    assigned.round = 7;
    assigned.group_rank = 1;
    assigned.group_world_size = 2;
    assigned.rank_base = 8;
    assigned.world_size = 16;
    assigned.role_rank_base = 8;
    assigned.role_world_size = 16;
    assigned.restart_count = 3;
    assigned.store_addresses = {"n0"};
    assigned.store_port = 4660;
    assigned.store_clients = {"n1"};
    assigned.notes = {"hm"};
    assigned.secret = "s";
    assigned.heartbeat_ms = 500;
    return assigned;
}

Failure failure() {
    Failure failure;
    failure.kind = FailureKind::killed;
    failure.host = "n1";
    failure.role = "gpu";
    failure.group_rank = 1;
    failure.rank = 9;
    failure.local_rank = 1;
    failure.pid = 4711;
    failure.end = Signaled{11, true};
    failure.message = "oh";
    failure.stderr_tail = "no\n";
    failure.error_file = "/e";
    failure.log_directory = "/l";
    failure.at_ns = 1'000'000;
    failure.uncertainty_ns = 5'000;
    failure.wall_time_s = 1'700'000'000;
    failure.cause = {CauseKind::memory_fault, "at", "/c"};
    failure.early = true;
    return failure;
}

WorkerActivity idle() {
    return {9, 4711, 12'000, "in", true, "b", "f"};
}

}  // namespace

std::vector<Message> samples() {
    Hello hello;
    hello.job = "j";
    hello.node = {"n1", 77, 0x1122334455667788};
    hello.connection = 2;
    hello.versions = {{"muster", "0.1"}};
    hello.challenge = "c";
    JobEnded ended;
    ended.outcome = JobOutcome::failed;
    ended.verdict = {7, failure(), 2, 5, {{FailureKind::killed, "s", "9", 3}}, {{"n1", idle(), "9", 1}}};
    ended.restart_count = 3;
    ended.why = "no";
    ended.goodput = "ok";
    return {hello,
            join(),
            Resume{7, true, join(), assigned(), 45'000},
            Ping{5, 1'000},
            WorkersFailed{7, {failure()}},
            WorkersSucceeded{7},
            RoundReport{7, {failure()}, 3, 120, {idle()}},
            Leave{"bye"},
            EndAcknowledged{},
            AgentDied{"killed"},
            Pong{5, 1'000, 9'000},
            Gathering{1, 2, 4, 29'000, "1 more node"},
            assigned(),
            Parked{1, "fails"},
            Peers{7, {17, 40}, {{1, "n1", 22136}, {0, "n0", 22137}}},
            RoundEnded{7, RoundEndReason::node_lost, true, "n1"},
            Drain{"maintenance"},
            ended,
            Refused{RefusalReason::terms_differ, "max"},
            PeerAsk{"j", 7, 1, 17, 40, true, 5, 1'000, 1, 2'000, "h:1", 2, "n", "p"},
            PeerAnswer{7, false, 3'000, "h:1", "n", "p"},
            Proof{"p"},
            Command{1, CommandVerb::drain_node, "n1", "fan"},
            FaultAnswer{1, true, "ok"},
            WorkersSeen{7,
                        {{idle(), WorkerPace::waiting, 40, 12, {3, 10, 11, 12, 13, 14, 15, 16, 2, 17}}},
                        {19, 20, 21, 22, 23},
                        {25, 26, 27, 28},
                        {{"c", 24}},
                        5,
                        {{2}},
                        {{29, 30}},
                        true},
            StandbysSeen{8, 0x10},
            Challenge{"n", "p"},
            NoticeGiven{"preempted"},
            CommandAnswer{1, true, "ok"},
            NotLeader{"n2:29400"},
            FaultOrdered{1, 7, {FaultKind::stop, FaultTarget::worker, 3, 10'000, 0}},
            JobSeen{7, WaitingWorker{"n1", 9, 4711, "b"}, {{3, "it"}}},
            StateStalled{"full", true}};
}

Sender sender_of(const Message& message) {
    if (message.index() >= Message(Challenge{}).index()) return Sender::daemon;
    if (message.index() >= Message(Proof{}).index()) return Sender::agent;
    if (message.index() < Message(Pong{}).index()) return Sender::agent;
    return message.index() < Message(PeerAsk{}).index() ? Sender::daemon : Sender::peer;
}

}  // namespace muster::test
