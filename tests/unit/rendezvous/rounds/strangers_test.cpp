// Dialogues with strangers: what somebody who was in no round of this daemon cannot do, whatever it says of itself.
#include <algorithm>

#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/server.h"
#include "tests/support/catch.h"
#include "tests/transcripts/story.h"

namespace muster::test {

namespace {

using namespace rendezvous;

/// A daemon of few jobs, and agents that join one each.
class FewJobs {
  public:
    explicit FewJobs(std::uint32_t jobs_max) : server_(config(jobs_max), now_) {}

    /// Returns its connection. Alone it makes a round; else the job waits for a second node.
    ConnectionId join(const std::string& job, bool alone) {
        const auto connection = connect(job, 1001 + last_);
        native::Join join;
        join.terms.nodes_min = join.terms.nodes_max = alone ? 1 : 2;
        step(Received{connection, join});
        return connection;
    }
    /// Its guardian says that its agent is dead.
    void died(ConnectionId agent, const std::string& job) {
        const auto connection = connect(job, 1000 + agent);
        step(Received{connection, native::AgentDied{"killed by signal 9"}});
    }
    /// Closed by the last step, without a refusal: it may try again.
    [[nodiscard]] bool gave_way(ConnectionId connection) const {
        bool closed = false;
        for (const auto& action : last_step_.actions) {
            const auto* send = std::get_if<SendTo>(&action);
            if (send != nullptr && std::holds_alternative<native::Refused>(send->message)) return false;
            const auto* close = std::get_if<CloseConnection>(&action);
            closed = closed || (close != nullptr && close->connection == connection);
        }
        return closed;
    }
    [[nodiscard]] bool has(const std::string& job) const { return says(server_.status_json(now_), cat('"', job, '"')); }

  private:
    /// A connection that has introduced itself.
    ConnectionId connect(const std::string& job, std::uint64_t incarnation) {
        const auto connection = ++last_;
        step(ConnectionAccepted{connection, "10.0.0.1"});
        native::Hello hello;
        hello.job = job;
        hello.node = {job, 1, incarnation};
        step(Received{connection, hello});
        return connection;
    }
    static ServerConfig config(std::uint32_t jobs_max) {
        ServerConfig config;
        config.jobs_max = jobs_max;
        return config;
    }
    void step(const ServerEvent& event) { last_step_ = server_.step(event, now_); }

    const Instant now_ = Instant(1000s);
    Server server_;
    ServerStep last_step_;
    ConnectionId last_ = 0;
};

}  // namespace

TEST_CASE("in a full daemon the oldest job without a round gives way, then one without agents, and none that runs") {
    FewJobs daemon(3);
    daemon.join("runs", true);
    const auto gone = daemon.join("gone", true);
    const auto first = daemon.join("first", false);
    const auto second = daemon.join("second", false);
    CHECK(daemon.gave_way(first));
    CHECK_FALSE(daemon.has("first"));
    CHECK(daemon.has("gone"));
    daemon.join("third", false);
    CHECK(daemon.gave_way(second));
    daemon.join("another", true);
    CHECK_FALSE(daemon.has("third"));
    daemon.died(gone, "gone");
    CHECK(daemon.has("gone"));
    daemon.join("late", true);
    CHECK_FALSE(daemon.has("gone"));
    CHECK(daemon.has("late"));
    CHECK(daemon.has("runs"));
    CHECK(daemon.has("another"));
}

TEST_CASE("a refused join does not move the numbers of the rounds") {
    Story story("min=2 max=2 restarts=3");
    story.answers("join n0\njoin n1");
    CHECK(says(story.answers("join s restarts=9 last_round=1000000"), "s <- Refused terms_differ"));
    CHECK(says(story.answers("join t last_round=4611686018427387905"), "t <- Refused malformed"));
    CHECK(says(story.answers("fail n0\nrejoin n0\nrejoin n1"), "round 1 sealed with 2 nodes"));
}

TEST_CASE("whatever number a stranger names, no number is given twice, also after the daemon has lost its state") {
    for (const auto* claim : {"join s last_round=2305843009213693952", "join s last_round=4611686018427387904",
                              "resume s round=2305843009213693952 of=2", "resume s round=4611686018427387904 of=2",
                              "join s restarts=5 last_round=4611686018427387904"}) {
        INFO(claim);
        Story story("min=1 max=2 restarts=9 last_call=1s lease=5s quiet_always");
        story.answers("join n0\nadvance 9s");
        story.answers(claim);
        story.answers("advance 200s");
        for (const auto* round : {"1", "2", "3"})
            CHECK(says(story.answers("fail n0\nrejoin n0\nadvance 20s"), cat("n0 <- Assigned round ", round, ':')));
        CHECK_FALSE(says(story.answers("restart\nresume n0\nadvance 20s"), "RoundEnded"));
        CHECK(says(story.answers("fail n0\nrejoin n0\nadvance 20s"), "n0 <- Assigned round 4:"));
    }
}

TEST_CASE("a number just above those of the job counts, and one far above is refused with what to do") {
    Story story("min=1 max=2 restarts=9 last_call=1s");
    story.answers("join n0\nadvance 2s");
    const auto refused = story.answers("join s last_round=2000000");
    CHECK(says(refused, "s <- Refused limit"));
    CHECK(says(refused, "s (pid 102) names 2000000 as its last round, and job 'job' is at round 0"));
    CHECK(says(refused, "start this agent again"));
    story.answers("join t last_round=1000000\nleave t");
    CHECK(says(story.answers("fail n0\nrejoin n0\nadvance 20s"), "n0 <- Assigned round 1000001:"));
}

TEST_CASE("an agent that has proved the secret is believed whatever number it names") {
    for (const bool is_proven : {false, true}) {
        const auto now = Instant(1000s);
        Server server({}, now);
        const auto join = [&](ConnectionId connection, Round last_round) {
            server.step(ConnectionAccepted{connection, "10.0.0.1", is_proven ? "job" : ""}, now);
            native::Hello hello;
            hello.job = "job";
            hello.node = {"n", 1, connection};
            server.step(Received{connection, hello}, now);
            native::Join said;
            said.terms = {.nodes_min = 1, .nodes_max = 1};
            said.last_round = last_round;
            return server.step(Received{connection, said}, now);
        };
        join(1, no_round);
        const auto step = join(2, Round{1} << 40);
        const bool is_refused = std::ranges::any_of(step.actions, [](const auto& action) {
            const auto* send = std::get_if<SendTo>(&action);
            return send != nullptr && std::holds_alternative<native::Refused>(send->message);
        });
        CHECK(is_refused != is_proven);
    }
}

TEST_CASE("where the first agent of a job named the largest number, its nodes are refused after a loss of the state") {
    Story story("min=2 max=2 quiet_always lease=5s");
    story.answers("join n0\njoin s last_round=2305843009213693952\nleave s");
    CHECK(says(story.answers("join n1\nadvance 6s"), "round 2305843009213693953 sealed"));
    CHECK(says(story.answers("restart\nresume n0\nresume n1"), "n0 <- RoundEnded"));
    const auto again = story.answers("rejoin n0\nrejoin n1\nadvance 60s");
    CHECK(says(again, "n0 <- Refused limit"));
    CHECK(says(again, "n1 <- Refused limit"));
    CHECK_FALSE(says(again, "sealed"));  // the number would be one that these two know
}

TEST_CASE("who resumes a round that this daemon never sealed commands nobody, blocks nobody and costs nothing") {
    for (const auto* claim : {"resume s round=999 of=2 group=1 restarts=3", "resume s round=0 of=2 group=1 restarts=3",
                              "join s\nresume s round=999 of=2 group=1 restarts=3"}) {
        INFO(claim);
        Story story("min=2 max=2 restarts=3");
        story.answers("join n0\njoin n1\nadvance 30s");
        for (const auto* command : {"drain s node=n0", "notify s", "fault s kill rank=0"}) {
            CHECK(says(story.answers(claim), "s <- RoundEnded"));
            const auto answers = story.answers(command);
            CHECK_FALSE(says(answers, "n0 <-"));
            CHECK_FALSE(says(answers, "n1 <-"));
            CHECK_FALSE(says(answers, " done"));
        }
        CHECK(says(story.answers("fail n0\nrejoin n0\nrejoin n1"), "sealed with 2 nodes, 1 of 3 restarts used"));
    }
}

TEST_CASE("before the first round nobody commands anybody else") {
    Story story("min=3 max=3");
    story.answers("join n0\njoin n1");
    CHECK(says(story.answers("drain n1 node=n0"), "not done: n1 (pid 102) has been in no round of job 'job'"));
    CHECK(says(story.answers("drain n1 node=n1"), "CommandAnswer 7 done"));
}

TEST_CASE("one agent's word for a round after a daemon's restart gives no command and costs no restart") {
    Story story("min=2 max=2 restarts=3 quiet_always lease=5s");
    story.answers("resume s round=9 of=2 group=0 restarts=3\njoin n0");
    for (const auto* command : {"drain s node=n0", "fault s kill rank=0"})
        CHECK_FALSE(says(story.answers(command), "n0 <-"));
    story.answers("fail s code=76\njoin n1");
    // It says that its workers stop, and never that they have.
    const auto later = story.answers("advance 36s");
    CHECK(says(later, "s (pid 101) is not waited for"));
    CHECK(says(later, "sealed with 2 nodes, 0 of 3 restarts used"));
    // A second one is not waited for at all.
    story.answers("resume t round=9 of=2 group=0 restarts=3\nfail n0\nrejoin n0");
    CHECK(says(story.answers("rejoin n1"), "sealed with 2 nodes, 1 of 3 restarts used"));
}

TEST_CASE("one agent that says that the only node of the job is through does not end the job") {
    Story story("min=1 max=2 quiet_always lease=5s last_call=1s");
    story.answers("join n0");
    CHECK_FALSE(says(story.answers("resume s round=9 of=1 done\nadvance 60s"), "JobEnded"));
}

TEST_CASE(
    "one agent that says that the only node of the job is through ends it after a lease, if nobody contradicts it") {
    Story honest("min=1 max=1 restarts=3 quiet_always lease=5s");
    honest.answers("join n0\nadvance 6s\nrestart");
    CHECK_FALSE(says(honest.answers("resume n0 done\nadvance 4s"), "JobEnded"));
    CHECK(says(honest.answers("advance 2s"), "n0 <- JobEnded succeeded"));
    // A stranger was first: the job's own agent contradicts it.
    for (const auto* claim : {"resume s round=9 of=1 done", "resume s round=9 of=1 restarts=3"}) {
        INFO(claim);
        Story story("min=1 max=1 restarts=3 quiet_always lease=5s");
        story.answers("join n0\nadvance 6s\nrestart");
        story.answers(claim);
        CHECK_FALSE(says(story.answers("advance 3s\nresume n0\nadvance 3s"), "JobEnded"));
        const auto later = story.answers("rejoin n0\nadvance 60s");
        CHECK(says(later, "sealed with 1 node, 0 of 3 restarts used"));
        CHECK_FALSE(says(later, "JobEnded"));
    }
}

TEST_CASE("a daemon that has been there for longer than agents look for it is taught no round") {
    Story story("min=1 max=1 restarts=3 quiet_always lease=5s lost=60s");
    CHECK(says(story.answers("advance 71s\nresume s round=9 of=1 done"), "s <- RoundEnded 9 node_lost"));
    CHECK_FALSE(says(story.answers("advance 60s"), "JobEnded"));
    CHECK(says(story.answers("join n0\nadvance 10s"), "n0 <- Assigned round"));
}

TEST_CASE("only former members hear the verdict of a job; who joins late or beside it hears the plain end") {
    Story story("min=1 max=2 restarts=0 last_call=1s");
    story.answers("join n0\njoin n1\njoin s");
    const auto ended = story.answers("fail n0\nreport n0\nreport n1");
    CHECK(says(ended, "n0 n1 <- JobEnded failed after 0 restarts"));
    CHECK(says(ended, "; first: "));
    // Each one's line, without the others'.
    const auto told = [](const std::string& answers, std::string_view who) {
        const auto at = answers.find(cat("    ", who, " <- JobEnded"));
        return at == std::string::npos ? std::string() : answers.substr(at, answers.find('\n', at + 1) - at);
    };
    for (const auto& line : {told(ended, "s"), told(story.answers("resume u round=0 of=2"), "u"),
                             told(story.answers("join t last_round=0"), "t")}) {
        CHECK(says(line, "JobEnded failed after 0 restarts: a worker failed"));
        CHECK_FALSE(says(line, "first:"));
    }
}

TEST_CASE("members that agree on their round after a daemon's restart may command, and their failures are charged") {
    Story story("min=3 max=3 restarts=3 quiet_always lease=5s");
    story.answers("join n0\njoin n1\njoin n2\nadvance 6s\nrestart\nresume n0");
    CHECK(says(story.answers("drain n0 node=n1"), "not done: n0 (pid 101) has been in no round"));
    story.answers("resume n1");
    CHECK(says(story.answers("notify n0"), "NoticeGiven"));
    story.answers("resume n2");
    CHECK(says(story.answers("drain n2 node=n1"), "n1 <- Drain"));
    Story charged("min=2 max=2 restarts=3 quiet_always lease=5s");
    charged.answers("join n0\njoin n1\nadvance 6s\nfail n0\nrejoin n0\nrejoin n1\nrestart\nresume n0\nresume n1");
    CHECK(says(charged.answers("fail n0\nrejoin n0\nrejoin n1\nadvance 6s"), "2 of 3 restarts used"));
}

TEST_CASE("a stranger's other round after a daemon's restart does not end the one of two members") {
    Story story("min=2 max=2 restarts=3 quiet_always lease=5s");
    story.answers("join n0\njoin n1\nadvance 6s\nrestart\nresume n0\nresume n1");
    const auto answers = story.answers("resume s round=999 of=2 group=0 restarts=3");
    CHECK(says(answers, "s <- RoundEnded 999 daemon_restarted"));
    CHECK_FALSE(says(answers, "n0"));
    CHECK_FALSE(says(story.answers("advance 60s"), "ended"));
    CHECK(says(story.answers("fail n0\nrejoin n0\nrejoin n1"), "1 of 3 restarts used"));
}

TEST_CASE(
    "each member that only its own word makes one of a round is waited for as long as its workers may take to stop") {
    const auto story_of = [](std::string_view terms) {
        Story story(cat("min=1 max=3 restarts=3 quiet_always lease=5s last_call=1s ", terms));
        story.answers(
            "resume s round=9 of=3 group=0 grace=90s\nadvance 3s\nresume t round=9 of=3 group=1 restarts=1 grace=20s");
        story.answers("join n0\nfail s");
        return story;
    };
    Story story = story_of("lost=120s");
    const auto early = story.answers("advance 26s");
    CHECK(says(early, "t (pid 102) is not waited for"));
    CHECK_FALSE(says(early, "s (pid 101) is not waited for"));
    CHECK_FALSE(says(story.answers("advance 60s"), "sealed"));
    const auto late = story.answers("advance 20s");
    CHECK(says(late, "s (pid 101) is not waited for"));
    CHECK(says(late, "sealed with 1 node"));
    // Whatever it names, a stranger holds up nobody for longer than the lost timeout and a lease.
    CHECK(says(story_of("lost=40s").answers("advance 50s"), "sealed with 1 node"));
}

TEST_CASE("who was given up and comes back with its workers blocks the seal, also at the next daemon") {
    for (const auto* terms : {"min=1 max=2 lost=5s lease=5s", "min=1 max=2 lost=5s lease=5s kept"}) {
        INFO(terms);
        Story story(terms);
        story.answers("join n0\njoin n1\nclose n1\nadvance 12s\nreport n0");
        if (says(terms, "kept")) story.answers("restart\nresume n0");
        story.answers("resume n1");
        CHECK_FALSE(says(story.answers("join n0\nadvance 100s"), "sealed"));
        CHECK(says(story.answers("rejoin n1"), "sealed with 2 nodes"));
    }
}

}  // namespace muster::test
