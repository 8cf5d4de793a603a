#include "rendezvous/net/state_watch.h"

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::rendezvous;

namespace {

/// A decision for agent 1 waits in the gate; agent 2 waits for nothing.
struct Scene {
    Scene() {
        (void)gate.enter({SendTo{.connections = {1}, .message = native::Drain{"x"}}}, true);
        watch.given(now);
    }
    /// "1: full, decided; 2: full"
    std::string words() {
        std::string text;
        for (const auto& send : watch.turn({1, 2}, gate, now))
            for (const auto to : send.connections) {
                const auto& word = std::get<native::StateStalled>(send.message);
                text += cat(text.empty() ? "" : "; ", to, ": ", word.why, word.decided ? ", decided" : "");
            }
        return text;
    }

    Instant now = Instant(1000s);
    ActionGate gate;
    StateWatch watch;
};

}  // namespace

TEST_CASE("every agent is told once that the state cannot be kept, and who of them waits for a decision") {
    Scene scene;
    CHECK(scene.words().empty());
    scene.watch.failed("full", scene.now);
    CHECK(scene.words() == "1: full, decided; 2: full");
    scene.now += 1s;
    scene.watch.failed("full", scene.now);
    CHECK(scene.words().empty());
    REQUIRE(scene.watch.stall());
    CHECK(scene.watch.stall()->since == Instant(1000s));
}

TEST_CASE("an agent for which something is decided during the stall is told at the next look") {
    Scene scene;
    scene.watch.failed("full", scene.now);
    scene.words();
    (void)scene.gate.enter({SendTo{.connections = {2}, .message = native::Drain{"x"}}}, true);
    CHECK(scene.words().empty());
    CHECK(scene.watch.deadline() == scene.now + StateWatch::poll_interval);
    scene.now = scene.watch.deadline();
    CHECK(scene.words() == "2: full, decided");
}

TEST_CASE("when the state is kept again all who were told hear it") {
    Scene scene;
    scene.watch.failed("full", scene.now);
    scene.words();
    (void)scene.gate.persisted(1);
    scene.watch.kept(false, scene.now);
    CHECK_FALSE(scene.watch.stall());
    CHECK(scene.words() == "1: ; 2: ");
    CHECK(scene.words().empty());
    CHECK(scene.watch.deadline() == no_deadline);
}

TEST_CASE("a write that does not finish is a stall too") {
    Scene scene;
    CHECK(scene.watch.deadline() == scene.now + StateWatch::slow_after);
    scene.now = scene.watch.deadline();
    CHECK(scene.words().find("no write has finished for 3 s") != std::string::npos);
    CHECK(scene.watch.stall());
}

TEST_CASE("a disk that is slow and finishes its writes is no stall") {
    Scene scene;
    for (int i = 0; i < 5; ++i) {
        scene.now += 2s;
        scene.watch.kept(true, scene.now);
        CHECK(scene.words().empty());
    }
}
