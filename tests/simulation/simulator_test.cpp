// The simulator's own parts: if chance, clocks or the simulated TCP were wrong, its verdicts would mean nothing.
#include <vector>

#include "tests/simulation/host/network.h"
#include "tests/simulation/world.h"
#include "tests/support/catch.h"

namespace muster::simulation {

namespace {

/// Writes down everything that reaches it.
struct Recorder : StreamHandler {
    void stream_opened(StreamId) override { story += "opened;"; }
    void stream_failed(StreamId, rendezvous::ConnectionFailed failed) override {
        story += cat("failed ", failed.tried, ';');
    }
    void stream_accepted(StreamId stream, std::uint16_t) override { accepted = stream, story += "accepted;"; }
    void stream_received(StreamId, std::string bytes) override { received += bytes; }
    void stream_closed(StreamId, std::string why) override { story += cat("closed: ", why, ';'); }

    std::string story;
    std::string received;
    StreamId accepted = 0;
};

struct Cable {
    explicit Cable(NetworkTemper temper = {.split_permille = 700}) : network(events, chronicle, Random(7), temper) {
        network.listen({1, 80}, &server);
        stream = network.connect(0, {1, 80}, 1s, &client);
    }
    void run() {
        while (events.run_one()) {
        }
    }
    void run_for(Duration duration) {
        bool over = false;
        events.after(duration, [&] { over = true; });
        while (!over) events.run_one();
    }

    EventQueue events;
    Chronicle chronicle{events, Chronicle::Mode::quiet};
    Network network;
    Recorder client;
    Recorder server;
    StreamId stream = 0;
};

}  // namespace

TEST_CASE("the same seed draws the same numbers, as they are written here") {
    Random random(1);
    // Written down once: a change would silently make every recorded seed another world.
    CHECK(random.next() == 12966619160104079557ULL);
    CHECK(Random(2).next() != Random(1).next());
    for (int i = 0; i < 1000; ++i) {
        const auto drawn = random.between(-3, 3);
        CHECK((drawn >= -3 && drawn <= 3));
    }
}

TEST_CASE("a host's clock can be read both ways in spite of offset and drift") {
    for (const std::int64_t drift : {-2000, 0, 2000}) {
        const HostClock clock{77s, drift};
        for (const Moment moment : {Moment{0}, Moment{1ns}, Moment{1234567891ns}, Moment{300s}}) {
            const Instant shown = clock.local(moment);
            CHECK(clock.local(clock.moment(shown)) >= shown);
            CHECK(clock.moment(shown) <= moment + 2ns);
        }
    }
}

TEST_CASE("things of one moment happen in the order in which they were planned") {
    EventQueue events;
    std::string story;
    events.after(2s, [&] { story += 'c'; });
    events.after(1s, [&] { story += 'a'; });
    events.after(1s, [&] { story += 'b'; });
    while (events.run_one()) {
    }
    CHECK(story == "abc");
}

TEST_CASE("an alarm that is set anew rings once, for the last setting") {
    EventQueue events;
    std::vector<Moment> rings;
    Alarm alarm(events, [&] { rings.push_back(events.now()); });
    alarm.set(5s);
    alarm.set(3s);
    while (events.run_one()) {
    }
    CHECK(rings == std::vector<Moment>{3s});
}

TEST_CASE("bytes arrive whole and in order, in pieces, and the end comes after them") {
    Cable cable;
    cable.run();
    std::string sent;
    for (int i = 0; i < 50; ++i) {
        const std::string piece = cat("message ", i, ';');
        sent += piece;
        cable.network.send(cable.stream, piece);
    }
    cable.network.close(cable.stream);
    cable.run();
    CHECK(cable.server.received == sent);
    CHECK(cable.server.story == "accepted;closed: closed by the peer;");
    CHECK(cable.chronicle.tally()[static_cast<std::size_t>(Happening::chunks_split)] > 0);
}

TEST_CASE("a cut link holds bytes back and loses none") {
    Cable cable;
    cable.run();
    cable.network.cut(0, 1);
    cable.network.send(cable.stream, "late");
    cable.run_for(10s);
    CHECK(cable.server.received.empty());
    cable.network.heal(0, 1);
    cable.run();
    CHECK(cable.server.received == "late");
}

TEST_CASE("a reset leaves a prefix of what was under way, and both sides hear of it") {
    Cable cable;
    cable.run();
    cable.network.send(cable.stream, "0123456789");
    REQUIRE(cable.network.reset_one(1));
    cable.run();
    CHECK(std::string("0123456789").starts_with(cable.server.received));
    CHECK(cable.server.story.ends_with("closed: reset by the peer;"));
    CHECK(cable.client.story.ends_with("closed: reset by the peer;"));
}

TEST_CASE("a host without power says nothing, and refuses what it knows nothing of when it is back") {
    Cable cable;
    cable.run();
    cable.network.power_lost(1);
    cable.network.send(cable.stream, "are you there?");
    cable.run_for(5s);
    CHECK(cable.client.story == "opened;");
    cable.network.power_back(1);
    cable.run();
    CHECK(cable.client.story == "opened;closed: reset by the peer;");
}

TEST_CASE("a sender with a limit gives up on a link that stays cut") {
    Cable cable({.user_timeout = 2s});
    cable.run();
    cable.network.cut(0, 1);
    cable.network.send(cable.stream, "lost");
    cable.run();
    CHECK(cable.client.story == "opened;closed: timed out;");
    CHECK(cable.server.story == "accepted;");
}

TEST_CASE("a new connection overtakes the end of a stalled one") {
    Cable cable;
    cable.run();
    REQUIRE(cable.network.stall_one(1, 5s));
    cable.network.process_gone(&cable.client);
    Recorder successor;
    cable.network.connect(0, {1, 80}, 1s, &successor);
    cable.run_for(1s);
    CHECK(cable.server.story == "accepted;accepted;");
    cable.run();
    CHECK(cable.server.story.starts_with("accepted;accepted;closed"));
}

TEST_CASE("nobody listening is refused, nobody answering times out") {
    Cable cable;
    Recorder refused;
    Recorder silent;
    cable.network.connect(0, {1, 81}, 1s, &refused);
    cable.network.cut(2, 0);
    cable.network.connect(0, {2, 80}, 1s, &silent);
    cable.run();
    CHECK(refused.story == "failed connection refused;");
    CHECK(silent.story == "failed no answer;");
}

TEST_CASE("one seed is one world, event for event") {
    for (const std::uint64_t seed : {3, 4, 5}) {
        const WorldResult first = World(seed, Plant::none, Chronicle::Mode::quiet).run();
        const WorldResult second = World(seed, Plant::none, Chronicle::Mode::quiet).run();
        CHECK(first.event_count == second.event_count);
        CHECK(first.lasted == second.lasted);
        CHECK(first.tally == second.tally);
    }
}

}  // namespace muster::simulation
