#include "rendezvous/net/action_gate.h"

#include "tests/support/catch.h"

using namespace muster;
using namespace muster::rendezvous;

namespace {

ActionGate::Actions forget(const std::string& job) {
    return {JobForgotten{.job = job}};
}

ActionGate::Actions pong() {
    return {SendTo{.connections = {1}, .message = native::Pong{}}};
}

std::string jobs(const ActionGate::Actions& actions) {
    std::string out;
    for (const auto& action : actions) {
        if (const auto* forgotten = std::get_if<JobForgotten>(&action))
            out += forgotten->job;
        else
            out += "?";
    }
    return out;
}

}  // namespace

TEST_CASE("a step without records passes an empty gate at once") {
    ActionGate gate;
    const auto entered = gate.enter(forget("a"), false);
    CHECK(entered.sequence == 0);
    CHECK(jobs(entered.released) == "a");
}

TEST_CASE("a step with records waits until they are persisted") {
    ActionGate gate;
    const auto entered = gate.enter(forget("a"), true);
    CHECK(entered.sequence == 1);
    CHECK(entered.released.empty());
    CHECK(gate.waiting_count() == 1);
    CHECK(jobs(gate.persisted(1)) == "a");
    CHECK(gate.waiting_count() == 0);
}

TEST_CASE("a step without records keeps its place behind those that wait, for it may tell what they decided") {
    ActionGate gate;
    (void)gate.enter(forget("a"), true);
    CHECK(gate.enter(forget("b"), false).released.empty());
    CHECK(gate.enter(forget("c"), true).sequence == 2);
    CHECK(jobs(gate.persisted(1)) == "ab");
    CHECK(jobs(gate.persisted(2)) == "c");
}

TEST_CASE("one transaction may persist several steps") {
    ActionGate gate;
    (void)gate.enter(forget("a"), true);
    (void)gate.enter(forget("b"), true);
    (void)gate.enter(forget("c"), false);
    CHECK(jobs(gate.persisted(2)) == "abc");
}

TEST_CASE("an answer to a ping never waits for the disk") {
    ActionGate gate;
    (void)gate.enter(forget("a"), true);
    CHECK(gate.enter(pong(), false).released.size() == 1);
    CHECK(gate.waiting_count() == 1);
}

TEST_CASE("nor does the proof of a secret, which each agent that comes back hears before anything else") {
    ActionGate gate;
    (void)gate.enter(forget("a"), true);
    CHECK(gate.enter({SendTo{.connections = {1}, .message = native::Challenge{}}}, false).released.size() == 1);
}

TEST_CASE("a pong together with something else waits") {
    ActionGate gate;
    (void)gate.enter(forget("a"), true);
    auto mixed = pong();
    mixed.push_back(JobForgotten{.job = "b"});
    CHECK(gate.enter(std::move(mixed), false).released.empty());
}

TEST_CASE("the gate knows for whom a decision waits, and that news of a round is none") {
    ActionGate gate;
    (void)gate.enter({SendTo{.connections = {1, 2}, .message = native::RoundEnded{}}}, true);
    (void)gate.enter({SendTo{.connections = {3}, .message = native::JobSeen{}},
                      SendTo{.connections = {4}, .message = native::Peers{}},
                      SendTo{.connections = {5}, .message = native::CommandAnswer{}}},
                     false);
    CHECK(gate.undecided() == std::set<ConnectionId>{1, 2});
    (void)gate.persisted(1);
    CHECK(gate.undecided().empty());
}

TEST_CASE("waiting steps are weighed with their records and messages") {
    ActionGate gate;
    native::JobEnded ended;
    ended.why = std::string(4'000, 'w');
    gate.enter({SendTo{.connections = {1}, .message = ended}}, true, 10'000);
    CHECK(gate.waiting_bytes() > 14'000);
    const auto before = gate.waiting_bytes();
    gate.enter(forget("a"), false);  // behind it
    CHECK(gate.waiting_bytes() > before);
    gate.persisted(1);
    CHECK(gate.waiting_bytes() == 0);
}
