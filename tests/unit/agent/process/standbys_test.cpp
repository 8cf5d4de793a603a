#include "agent/process/standbys.h"

#include <sched.h>

#include <boost/asio/io_context.hpp>
#include <chrono>

#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/run_until.h"
#include "tests/support/skip.h"

using namespace muster;
using namespace muster::agent;

namespace {

constexpr std::size_t gib = std::size_t{1} << 30;

/// Standby processes for two local ranks. None is a real process.
struct Fixture {
    /// A round begins: the first look at what is missing follows at once.
    void begin_round() {
        for (const std::uint32_t local_rank : {0U, 1U}) {
            WorkerCommand command;
            command.local_rank = local_rank;
            command.argv = {"python3", "train.py"};
            standbys.choose(command);
        }
        standbys.round_begun();
        const auto looked = looks;
        REQUIRE(muster::test::run_until(context, [&] { return looks > looked; }));
    }

    std::size_t free_bytes = 0;
    int looks = 0;
    std::vector<std::uint64_t> spawned;
    boost::asio::io_context context;
    Standbys standbys{context,
                      {.count_max = 2,
                       .by_memory = true,
                       .imports = {},
                       .start_after = {},
                       .idle_import_max = {},
                       .free_bytes =
                           [this] {
                               ++looks;
                               return free_bytes;
                           }},
                      {.next_id = [this] { return spawned.size() + 1; },
                       .spawn = [this](std::uint64_t id, const WorkerCommand&,
                                       std::vector<FileDescriptor>) { spawned.push_back(id); },
                       .end = [](std::uint64_t) {},
                       .notice = [](std::string) {},
                       .seen = [](native::StandbysSeen) {}}};
};

bool set_policy(pid_t pid, int policy) {
    const sched_param none{};
    return ::sched_setscheduler(pid, policy, &none) == 0;
}

}  // namespace

TEST_CASE("auto starts a standby process only while twice the memory that one needs is free") {
    Fixture fixture;
    fixture.free_bytes = gib - 1;  // none was measured yet: 512 MiB are assumed
    fixture.begin_round();
    CHECK(fixture.spawned.empty());
    fixture.free_bytes = gib;
    fixture.begin_round();
    CHECK(fixture.spawned == std::vector<std::uint64_t>{1});
    fixture.free_bytes = gib - 1;
    CHECK(fixture.standbys.handle(guardian_wire::StandbyReady{.id = 1, .of_own_slot = false}));
    fixture.begin_round();
    CHECK(fixture.spawned.size() == 1);
}

TEST_CASE("a spare whose guardian ended has standby processes again") {
    Fixture fixture;
    fixture.free_bytes = gib;
    fixture.begin_round();
    REQUIRE(fixture.spawned == std::vector<std::uint64_t>{1});
    fixture.standbys.forget();
    fixture.standbys.round_begun();  // and no worker is started
    CHECK(muster::test::run_until(fixture.context, [&] { return fixture.spawned.size() == 2; }));
}

TEST_CASE("a node that has stopped starts no standby process, also when its guardian ends") {
    Fixture fixture;
    fixture.free_bytes = gib;
    fixture.begin_round();
    REQUIRE(fixture.spawned.size() == 1);
    fixture.standbys.end();
    fixture.standbys.forget();
    fixture.standbys.round_begun();
    fixture.context.restart();
    for (int handlers = 0; handlers < 2; ++handlers)  // of the timer that is set again, and of the look
        fixture.context.run_one_for(std::chrono::seconds(10));
    CHECK(fixture.spawned.size() == 1);
}

TEST_CASE("a standby process that imports for too long with idle priority gets normal priority") {
    const test::IdleChild importing;
    REQUIRE(set_policy(importing.pid, SCHED_IDLE));
    if (!set_policy(importing.pid, SCHED_OTHER)) return test::skip("needs CAP_SYS_NICE");
    REQUIRE(set_policy(importing.pid, SCHED_IDLE));
    Fixture fixture;
    fixture.free_bytes = gib;
    fixture.begin_round();
    REQUIRE(fixture.spawned.size() == 1);
    CHECK(fixture.standbys.handle(guardian_wire::Spawned{.id = 1, .pid = importing.pid}));
    CHECK(::sched_getscheduler(importing.pid) == SCHED_IDLE);
    fixture.standbys.round_begun();  // another look
    CHECK(test::run_until(fixture.context, [&] { return ::sched_getscheduler(importing.pid) == SCHED_OTHER; }));
}
