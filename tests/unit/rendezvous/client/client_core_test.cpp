#include "rendezvous/client/core/client_core.h"

#include <algorithm>
#include <utility>

#include "tests/support/catch.h"
#include "tests/unit/rendezvous/client/dialogue.h"

namespace muster::test {

TEST_CASE("an agent introduces itself and joins in one go") {
    Dialogue talk;
    CHECK(talk.join() == Lines{"connect"});
    CHECK(talk.open() == Lines{"send Hello", "send Join", "send Ping"});
    CHECK(talk.daemon(Dialogue::assigned()) == Lines{"deliver Assigned"});
}

TEST_CASE("failed attempts back off from 20 ms, doubling up to 500 ms") {
    Dialogue talk;
    talk.join();
    std::vector<Duration> waits;
    for (int attempt = 0; attempt < 7; ++attempt) {
        talk.hears(ConnectionFailed{"10.0.0.1: connection refused"});
        const auto failed = talk.now;
        while (!any_starts_with(talk.pass(10ms), "connect")) {
        }
        waits.push_back(talk.now - failed);
    }
    CHECK(waits == std::vector<Duration>{20ms, 40ms, 80ms, 160ms, 320ms, 500ms, 500ms});
}

TEST_CASE("a connection lost while waiting is answered by joining again") {
    Dialogue talk;
    talk.join();
    talk.open();
    talk.pong();
    CHECK(talk.broken().empty());
    CHECK(talk.pass(20ms) == Lines{"connect"});
    CHECK(talk.open() == Lines{"send Hello", "send Join", "send Ping"});
}

TEST_CASE("torchrun's store in the daemon's place is named, until a muster is there") {
    Dialogue talk;
    talk.join();
    talk.open();
    talk.broken();
    talk.hears(StoreAnswered{.has_job = true});
    const auto lines = talk.pass(1s);
    const auto told = std::ranges::find_if(lines, [](const auto& one) { return one.starts_with("progress: "); });
    REQUIRE(told != lines.end());
    CHECK(told->find("torchrun serves its own rendezvous of job '") != std::string::npos);
    CHECK(told->find("muster and torchrun cannot form one job") != std::string::npos);
    talk.open();
    talk.pong();
    talk.broken();
    for (const auto& one : talk.pass(40s)) CHECK(one.find("torchrun") == std::string::npos);
}

TEST_CASE("a connection lost while workers run harms nobody: the round is resumed") {
    Dialogue talk;
    talk.settle_in();
    talk.broken();
    talk.pass(20ms);
    CHECK(talk.open() == Lines{"send Hello", "send Resume", "send Ping"});
    talk.pong();
    CHECK(talk.pass(30s, true) == Lines(120, "send Ping"));
}

TEST_CASE("who resumes a round says how long its workers may take to stop") {
    Dialogue talk;
    talk.config.stop_grace = 90s;
    talk.core.emplace(talk.config);
    talk.settle_in();
    talk.broken();
    talk.pass(20ms);
    std::uint32_t told_ms = 0;
    for (const auto& output : talk.core->step(ConnectionOpened{"10.0.0.1"}, talk.now))
        if (const auto* send = std::get_if<Send>(&output))
            if (const auto* resume = std::get_if<native::Resume>(&send->message)) told_ms = resume->stop_grace_ms;
    CHECK(told_ms == 90'000);
}

TEST_CASE("every word that the daemon was not seen to act upon is said again, at each step of a round") {
    // The connection breaks after each step in turn.
    const auto after = [](int steps) {
        Dialogue talk;
        talk.settle_in();
        if (steps > 0) talk.lines(talk.core->workers_failed({Failure{}}, talk.now));
        if (steps > 1) talk.daemon(native::RoundEnded{0, native::RoundEndReason::worker_failed, false, "x"});
        if (steps > 2) talk.lines(talk.core->round_report({0, {}, 1}, talk.now));
        if (steps > 3) talk.join(0);
        if (steps > 4) talk.daemon(Dialogue::assigned(1));
        if (steps > 5) talk.lines(talk.core->leave("stopped", talk.now));
        talk.broken();
        talk.pass(20ms);
        auto said = talk.open();
        for (auto& line : talk.pong()) said.push_back(std::move(line));
        return said;
    };
    CHECK(after(0) == Lines{"send Hello", "send Resume", "send Ping"});
    CHECK(after(1) == Lines{"send Hello", "send Resume", "send Ping", "send WorkersFailed"});
    CHECK(after(2) == Lines{"send Hello", "send Resume", "send Ping"});
    CHECK(after(3) == Lines{"send Hello", "send Resume", "send RoundReport", "send Ping"});
    CHECK(after(4) == Lines{"send Hello", "send RoundReport", "send Join", "send Ping"});
    CHECK(after(5) == Lines{"send Hello", "send Resume", "send Ping"});
    CHECK(after(6) == Lines{});  // Leave was said
}

TEST_CASE("a leave without a connection is said on the next one") {
    Dialogue talk;
    talk.settle_in();
    talk.broken();
    talk.lines(talk.core->leave("stopped", talk.now));
    CHECK(talk.pass(20ms) == Lines{"connect"});
    CHECK(talk.open() == Lines{"send Hello", "send Leave", "send Ping"});
    CHECK(talk.broken().empty());
    CHECK(talk.pass(100s).empty());
}

TEST_CASE("an assignment that is said again is not delivered again") {
    Dialogue talk;
    talk.settle_in();
    CHECK(talk.daemon(Dialogue::assigned()).empty());
}

TEST_CASE("an assignment that lay unread too long is not acted upon") {
    Dialogue talk;
    talk.join();
    talk.open();
    talk.pong();
    talk.now += 4s;  // stopped, say
    const auto said = talk.daemon(Dialogue::assigned());
    CHECK(said.at(0) == "disconnect");
    CHECK(said.at(2) == "connect");
    CHECK_FALSE(any_starts_with(said, "deliver"));
    CHECK(talk.open() == Lines{"send Hello", "send Join", "send Ping"});
}

TEST_CASE("the end of the job is delivered once and acknowledged") {
    Dialogue talk;
    talk.settle_in();
    talk.lines(talk.core->workers_succeeded(talk.now));
    CHECK(talk.daemon(native::JobEnded{}) == Lines{"deliver JobEnded"});
    CHECK(talk.daemon(native::JobEnded{}).empty());
    CHECK(talk.lines(talk.core->end_acknowledged(talk.now)) == Lines{"send EndAcknowledged"});
    talk.broken();
    CHECK(talk.pass(100s).empty());
}

TEST_CASE("after the end of the job a daemon that goes away is no loss, and no worker is killed") {
    Dialogue talk;
    talk.settle_in();
    talk.daemon(native::JobEnded{});
    talk.broken();
    CHECK(talk.pass(100s).empty());
}

TEST_CASE("a refusal is final") {
    Dialogue talk;
    talk.join();
    talk.open();
    CHECK(talk.daemon(native::Refused{native::RefusalReason::terms_differ, "x"}) == Lines{"deliver Refused"});
    talk.broken();
    CHECK(talk.pass(1000s).empty());
}

TEST_CASE("without a round within the join time-out the rendezvous is lost, and the message says what was tried") {
    Dialogue talk;
    talk.join();
    talk.hears(ConnectionFailed{"10.0.0.1: connection refused"});
    Lines last;
    while (!any_starts_with(last = talk.pass(1s), "lost:")) {
        REQUIRE(talk.now < Instant(1700s));
        if (any_starts_with(last, "connect")) talk.hears(ConnectionFailed{"10.0.0.1: connection refused"});
    }
    CHECK(last.back() ==
          "lost: no round within 10 min: gpu00:29400 did not answer (10.0.0.1: connection refused). "
          "Check that the name 'gpu00' is correct on this node, that muster runs there with port "
          "29400, and that no firewall blocks it");
    CHECK(talk.now == Instant(1600s));
}

TEST_CASE("a daemon that was heard and stays silent while this node waits is given up after the lost time-out") {
    Dialogue talk;
    talk.join();
    talk.open();
    talk.pong();
    const auto said = talk.pass(61s);
    REQUIRE(any_starts_with(said, "lost: no round within"));
    CHECK(said.back().find("--rdzv-backend etcd") != std::string::npos);
    CHECK(said.back().find("Check that") == std::string::npos);
}

TEST_CASE("while the daemon that was heard is gone, the lines count down to the lost time-out") {
    Dialogue talk;
    talk.join();
    talk.open();
    talk.pong();
    talk.daemon(native::Gathering{1, 2, 2, -1, "1 more node"});
    const auto progress = [](const Lines& lines) {
        const auto found =
            std::find_if(lines.begin(), lines.end(), [](const auto& line) { return line.starts_with("progress: "); });
        return found == lines.end() ? std::string{} : *found;
    };
    CHECK(progress(talk.pass(1s, true)).ends_with("; timeout in 599 s"));
    talk.broken();
    CHECK(progress(talk.pass(2s)) == "progress: gpu00:29400: the connection ended: reset; timeout in 59 s");
}

TEST_CASE("an endpoint that speaks another protocol is said to do so, at the rate of other waits, and in the verdict") {
    Dialogue talk;
    talk.config.join_timeout = 12s;
    talk.core.emplace(talk.config);
    talk.join();
    Lines said;
    const auto note = [&](Lines lines) { said.insert(said.end(), lines.begin(), lines.end()); };
    while (!any_starts_with(said, "lost")) {
        REQUIRE(talk.now < Instant(1020s));
        note(talk.pass(50ms));
        note(talk.open());
        note(talk.hears(ConnectionClosed{.why = "bad bytes", .foreign = true}));
    }
    const auto progress =
        std::count_if(said.begin(), said.end(), [](const auto& line) { return line.starts_with("progress"); });
    CHECK(progress == 2);
    CHECK(said.back() ==
          "lost: no round within 12 s: gpu00:29400: connected, but it does not speak muster's protocol. Check the "
          "name 'gpu00' and the port 29400, because another program may listen there, and that no firewall blocks it. "
          "If the daemon is there, check that it is not stopped, and see its log");
}

TEST_CASE("joining again with another finding does not begin the join timeout anew") {
    Dialogue talk;
    talk.config.join_timeout = 12s;
    talk.core.emplace(talk.config);
    talk.join();
    for (int i = 0; i < 3; ++i) {
        CHECK(!any_starts_with(talk.pass(3s), "lost"));
        talk.join();
    }
    CHECK(!any_starts_with(talk.pass(2s), "lost"));
    talk.now += 2s;  // a busy host: the timeout is named, and not how late it was seen
    CHECK(any_starts_with(talk.hears(TimePassed{}), "lost: no round within 12 s: "));
}

TEST_CASE("a refusal that names the job says where that is, by the name that this node was given") {
    Dialogue talk;
    talk.join();
    talk.open();
    talk.daemon(native::Refused{native::RefusalReason::job_full, "job 'job' is full and runs x"});
    CHECK(std::get<native::Refused>(talk.last_delivered).why == "job 'job' at gpu00:29400 is full and runs x");
    Dialogue other;
    other.join();
    other.open();
    other.daemon(native::Refused{native::RefusalReason::terms_differ, "the lease is 5 s"});
    CHECK(std::get<native::Refused>(other.last_delivered).why == "the lease is 5 s");
}

TEST_CASE("a spare waits for ever as long as the daemon is there") {
    Dialogue talk;
    talk.join();
    talk.open();
    talk.daemon(native::Parked{});
    CHECK_FALSE(any_starts_with(talk.pass(2000s, true), "lost:"));
}

namespace {

/// What a failure of this moment is told as: its time on the daemon's clock, and the error of that.
std::pair<std::int64_t, std::int64_t> told_time(Dialogue& talk, Instant at) {
    Failure failure;
    failure.at_ns = clock_ns(at);
    talk.lines(talk.core->workers_failed({failure}, talk.now));
    const auto& told = std::get<native::WorkersFailed>(talk.last_sent).failures.back();
    return {told.at_ns, told.uncertainty_ns};
}

}  // namespace

TEST_CASE("a failure's time is told on the daemon's clock, known to half of the round trip") {
    Dialogue talk;
    talk.join();
    talk.open();
    talk.daemon(Dialogue::assigned());
    CHECK(told_time(talk, talk.now) == std::pair<std::int64_t, std::int64_t>{0, -1});
    const auto sent = talk.now;
    talk.now += 10ms;
    talk.daemon(native::Pong{talk.last_ping.sequence, talk.last_ping.sent_ns, 5'000'000});
    // In the middle of the round trip the daemon's clock showed 5 ms.
    CHECK(told_time(talk, talk.now) == std::pair<std::int64_t, std::int64_t>{10'000'000, 5'000'000});
    CHECK(told_time(talk, sent).first == 0);
    // A tighter sample wins; a looser one does not.
    talk.pass(990ms);
    talk.now += 2ms;
    talk.daemon(native::Pong{talk.last_ping.sequence, talk.last_ping.sent_ns, 1'006'000'000});
    CHECK(told_time(talk, talk.now).second == 1'000'000);
    talk.pass(1s);
    talk.now += 100ms;
    talk.daemon(native::Pong{talk.last_ping.sequence, talk.last_ping.sent_ns, 0});
    CHECK(told_time(talk, talk.now).second < 2'000'000);
}

TEST_CASE("failures that are said again to another daemon are told on that one's clock") {
    Dialogue talk;
    talk.settle_in();
    const auto failed_at = talk.now + 1s;
    talk.pass(1s, true);
    CHECK(told_time(talk, failed_at).first == 5'000'000);  // as its last Pong said, at this moment
    talk.broken();
    talk.pass(20ms);
    // The reports wait for the first answer of whoever leads now; that a round runs does not.
    CHECK(talk.open() == Lines{"send Hello", "send Resume", "send Ping"});
    CHECK(talk.daemon(native::Pong{talk.last_ping.sequence, talk.last_ping.sent_ns, 77'020'000'000}) ==
          Lines{"send WorkersFailed"});
    CHECK(std::get<native::WorkersFailed>(talk.last_sent).failures.front().at_ns == 77'000'000'000);
    // So does a report, and the join behind it, which would make this node's silence a loss.
    Failure late;
    late.at_ns = clock_ns(failed_at);
    talk.daemon(native::RoundEnded{0, native::RoundEndReason::worker_failed, false, "x"});
    talk.lines(talk.core->round_report({0, {late}, 1}, talk.now));
    talk.broken();
    talk.pass(20ms);
    CHECK(talk.open() == Lines{"send Hello", "send Resume", "send Ping"});
    CHECK(talk.join(0).empty());
    CHECK(talk.daemon(native::Pong{talk.last_ping.sequence, talk.last_ping.sent_ns, 500'000'000'000}) ==
          Lines{"send RoundReport", "send Join"});
}

TEST_CASE("where etcd says who leads nobody else is asked, and who leads no more is left at once") {
    Dialogue talk;
    talk.config.leader_is_supplied = true;
    talk.core.emplace(talk.config);
    const auto leader_is = [&](std::optional<Endpoint> leader) {
        return talk.lines(talk.core->leader_is(leader, "nobody leads", talk.now));
    };
    CHECK(talk.join() == Lines{});
    CHECK(talk.pass(500ms) == Lines{});
    CHECK(leader_is(Endpoint{"a", 1}) == Lines{"connect"});
    CHECK(talk.core->endpoint() == Endpoint{"a", 1});
    CHECK(talk.open() == Lines{"send Hello", "send Join", "send Ping"});
    talk.daemon(Dialogue::assigned());
    // It may know better than etcd, or whoever reads that for us.
    CHECK(leader_is(std::nullopt) == Lines{});
    CHECK(leader_is(Endpoint{"a", 1}) == Lines{});
    CHECK(leader_is(Endpoint{"b", 2}) == Lines{"disconnect", "connect"});
    CHECK(talk.core->endpoint() == Endpoint{"b", 2});
    // It does not lead yet, and knows of nobody: asked again.
    CHECK(talk.open() == Lines{"send Hello", "send Resume", "send Ping"});
    CHECK(talk.daemon(native::NotLeader{"a:1"}) == Lines{"disconnect"});
    CHECK(talk.pass(100ms) == Lines{"connect"});
    CHECK(talk.core->endpoint() == Endpoint{"b", 2});
}

TEST_CASE("a lost rendezvous is told with what would have saved the job") {
    for (const bool several : {false, true}) {
        Dialogue talk;
        if (several) talk.config.others = {{"gpu01", 29400}};
        talk.core.emplace(talk.config);
        talk.settle_in();
        talk.broken();
        std::string lost;
        while (lost.empty() && talk.core->deadline() != no_deadline) {
            talk.now = std::max(talk.now, talk.core->deadline());
            for (const auto& output : talk.core->step(TimePassed{}, talk.now)) {
                if (std::holds_alternative<Connect>(output)) talk.core->step(ConnectionFailed{"refused"}, talk.now);
                if (const auto* ask = std::get_if<QueryPeer>(&output))
                    talk.core->step(PeerAnswered{ask->ask.number, native::PeerAnswer{0, true, 0}}, talk.now);
                if (const auto* said = std::get_if<RendezvousLost>(&output)) lost = said->why;
            }
        }
        INFO(lost);
        CHECK((lost.find("--rdzv-backend etcd") != std::string::npos) != several);
        CHECK((lost.find("every daemon of --rdzv-endpoint") != std::string::npos) == several);
    }
}

TEST_CASE("a daemon that workers miss for longer than a lease is reported once, and so is its return") {
    Dialogue talk;
    talk.settle_in(1);
    const auto progress = [](Lines lines) {
        std::erase_if(lines, [](const auto& line) { return !line.starts_with("progress: "); });
        return lines;
    };
    CHECK(progress(talk.pass(60s, true)).empty());
    CHECK(progress(talk.pass(4s)).empty());
    CHECK(progress(talk.pass(16s)) == Lines{"progress: gpu00:29400 has not answered for 5 s; the workers keep running; "
                                            "timeout in 55 s (--rdzv-lost-timeout)"});
    const auto back = progress(talk.pong());
    REQUIRE(back.size() == 1);
    CHECK(back[0].starts_with("progress: gpu00:29400 answers again after "));
    CHECK(progress(talk.pass(60s, true)).empty());
}

TEST_CASE("a command is said again after a reconnect until it is answered") {
    Dialogue talk;
    talk.settle_in();
    CHECK(talk.lines(talk.core->command({.number = 3, .verb = {}, .node = "a", .why = {}}, talk.now)) ==
          Lines{"send Command"});
    talk.broken();
    talk.pass(100ms);
    const auto again = talk.open();
    CHECK(std::count(again.begin(), again.end(), "send Command") == 1);
    CHECK(talk.daemon(native::CommandAnswer{3, true, "done"}) == Lines{"deliver CommandAnswer"});
    talk.broken();
    talk.pass(100ms);
    const auto quiet = talk.open();
    CHECK(std::count(quiet.begin(), quiet.end(), "send Command") == 0);
}

TEST_CASE("a drain that nobody waits for any more is not said again, and a notice of long ago is") {
    for (const auto verb : {native::CommandVerb::drain_node, native::CommandVerb::notify_job}) {
        Dialogue talk;
        talk.settle_in();
        talk.core->command({.number = 3, .verb = verb, .node = "a", .why = {}}, talk.now);
        talk.broken();
        talk.pass(12s);
        const auto again = talk.open();
        CHECK(std::count(again.begin(), again.end(), "send Command") == (verb == native::CommandVerb::notify_job));
    }
}

}  // namespace muster::test
