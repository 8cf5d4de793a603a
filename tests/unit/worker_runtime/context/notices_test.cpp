#include "worker_runtime/context/notices.h"

#include <csignal>
#include <thread>

#include "rendezvous/base/time.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::runtime;

TEST_CASE("the agent's message and its signal are one notice") {
    // They come at one moment; a try in which this process stood still between them is none.
    for (int i = 0; i < 10; ++i) {
        Notices notices;
        const auto began = std::chrono::steady_clock::now();
        notices.add();
        CHECK(notices.add_signal(SIGTERM));
        if (std::chrono::steady_clock::now() - began > 1s) continue;
        CHECK(notices.count() == 1);
        break;
    }
}

TEST_CASE("a later one is a second notice") {
    Notices notices;
    CHECK(notices.add_signal(SIGTERM));
    const auto began = std::chrono::steady_clock::now();
    while (notices.count() == 1 && std::chrono::steady_clock::now() < began + 60s) {
        std::this_thread::sleep_until(std::chrono::steady_clock::now() + 2100ms);  // what the test is about
        CHECK(notices.add_signal(SIGTERM));
    }
    CHECK(notices.count() == 2);
}

TEST_CASE("a signal after the agent's word that the round is over is a stop") {
    Notices notices;
    CHECK(notices.end_round() == 0);
    CHECK_FALSE(notices.add_signal(SIGTERM));
    CHECK(notices.count() == 0);
}

TEST_CASE("a stop that was handled before the agent's word of it had been read is sent again, once") {
    Notices notices;
    CHECK(notices.add_signal(SIGTERM));
    CHECK(notices.end_round() == SIGTERM);
    CHECK(notices.end_round() == 0);
    CHECK_FALSE(notices.add_signal(SIGTERM));
}

TEST_CASE("of a signal and the round's end that come at one moment, one sees the other") {
    for (int i = 0; i < 2000; ++i) {
        Notices notices;
        int again = 0;
        std::thread agent([&] { again = notices.end_round(); });
        const bool notice = notices.add_signal(SIGTERM);
        agent.join();
        CHECK((!notice || again == SIGTERM));
    }
}
