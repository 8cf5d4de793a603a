// Which process has which rank in a round, and what a process without peers keeps in its own store.
#include "worker_runtime/context/rank_claim.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "rendezvous/base/kernel/boot_id.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "worker_runtime/context/own_store.h"

using namespace muster;
using namespace muster::runtime;

namespace {

/// As a process says who it is.
std::string process(int pid, const std::string& start, const std::string& kernel = boot_id()) {
    struct stat space {};
    REQUIRE(::stat("/proc/self/ns/pid", &space) == 0);
    return cat(kernel, " ", space.st_ino, " ", pid, " ", start, " there");
}

/// One that lives.
std::string parent() {
    const auto stat = read_file(cat("/proc/", ::getppid(), "/stat"));
    return process(::getppid(), std::string(split(stat.substr(stat.rfind(") ") + 2), ' ').at(19)));
}

std::string ended_process() {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    ::waitpid(child, nullptr, 0);
    return process(child, "1");
}

/// What that process has left in the store when it claimed its rank; gives the key.
std::string claim_as(OwnStore& store, const std::string& who, const RankClaim& claim) {
    const std::string counter = cat(claim.world_size, "/rank/", claim.rank);
    const auto number = store.add(counter, 1).value();
    const std::string key = cat(counter, "/", number);
    REQUIRE(store.set(key, who).has_value());
    if (store.add(cat("come/", number), 1).value() == 1) {
        const auto told = cat(claim.world_size, "\n", claim.transport, "\n", claim.transport_name, "\n", claim.rank);
        REQUIRE(store.set(cat("first/", number), cat(told, "\n", key)).has_value());
    }
    return key;
}

std::string complaint(OwnStore& store, const RankClaim& claim) {
    const auto claimed = claim_rank(store, claim);
    return claimed ? cat("number ", claimed->opening) : claimed.error().context;
}

const RankClaim of_two{.rank = 0, .world_size = 2, .transport = "automatic"};

}  // namespace

TEST_CASE("programs of a worker have numbers, and another process that lives keeps its rank") {
    OwnStore store;
    CHECK(complaint(store, of_two) == "number 1");
    CHECK(complaint(store, of_two) == "number 2");
    claim_as(store, ended_process(), of_two);
    CHECK(complaint(store, of_two) == "number 4");
    claim_as(store, parent(), of_two);
    const auto text = complaint(store, of_two);
    INFO(text);
    CHECK(text.find(cat("RANK=0 is the rank of two processes of this round, this one (pid ", ::getpid(), " on ")) == 0);
    CHECK(text.find(cat(") and pid ", ::getppid(), " on there: each process needs its own rank")) != std::string::npos);
}

TEST_CASE("a rank is free once its holder has closed its context, is a zombie, or was another process of that number") {
    OwnStore closed;
    REQUIRE(closed.set(claim_as(closed, parent(), of_two), claim_is_over).has_value());
    const auto held = claim_rank(closed, of_two);
    REQUIRE(held.has_value());
    CHECK(held->opening == 2);
    CHECK(held->before.empty());

    OwnStore reused;
    claim_as(reused, process(::getppid(), "1"), of_two);
    CHECK(complaint(reused, of_two) == "number 2");

    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    siginfo_t info{};
    REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);
    const auto stat = read_file(cat("/proc/", child, "/stat"));
    OwnStore of_zombie;
    claim_as(of_zombie, process(child, std::string(split(stat.substr(stat.rfind(") ") + 2), ' ').at(19))), of_two);
    CHECK(complaint(of_zombie, of_two) == "number 2");
    ::waitpid(child, nullptr, 0);
}

TEST_CASE("a holder that cannot be seen is no error, and told of where ranks do not meet") {
    OwnStore store;
    claim_as(store, process(17, "1", "another-kernel"), of_two);
    const auto held = claim_rank(store, of_two);
    REQUIRE(held.has_value());
    CHECK(held->opening == 2);
    CHECK(obstacles_to_meeting(store, of_two, *held) ==
          "RANK=0 was the rank of pid 17 on there before, and it is unknown whether that process still runs");
}

TEST_CASE("ranks that do not meet are told which of them are at another opening") {
    OwnStore store;
    const RankClaim behind{.rank = 1, .world_size = 3, .transport = "automatic"};
    const RankClaim ahead{.rank = 2, .world_size = 3, .transport = "automatic"};
    REQUIRE(claim_rank(store, ahead).has_value());
    const auto held = claim_rank(store, ahead);
    const auto other = claim_rank(store, behind);
    REQUIRE((held.has_value() && other.has_value()));
    CHECK(obstacles_to_meeting(store, ahead, *held) ==
          "rank 1 opens its context 1 of this round, this rank its context 2; only contexts of equal number meet");
    CHECK(obstacles_to_meeting(store, behind, *other) ==
          "rank 2 opens its context 2 of this round, this rank its context 1; only contexts of equal number meet");
    CHECK(obstacles_to_meeting(store, ahead, {.opening = 1, .key = {}, .before = {}}).empty());
}

TEST_CASE("a world or a transport that differs is told with both, where the other rank can be seen to live") {
    const RankClaim second{.rank = 1, .world_size = 2, .transport = "automatic"};
    const RankClaim wider{.rank = 1, .world_size = 3, .transport = "automatic"};
    const RankClaim wired{.rank = 1, .world_size = 2, .transport = "tcp"};
    const RankClaim by_option{.rank = 1, .world_size = 2, .transport = "tcp", .transport_name = "transport"};
    const std::string alive = parent();
    {
        OwnStore store;
        claim_as(store, alive, of_two);
        CHECK(complaint(store, second) == "number 1");
    }
    for (const auto& [claim, words] :
         {std::pair(wider, "WORLD_SIZE=3 on rank 1"), std::pair(wired, "MUSTER_TRANSPORT=tcp on rank 1"),
          std::pair(by_option, "transport=tcp on rank 1")}) {
        OwnStore store;
        claim_as(store, alive, of_two);
        const auto text = complaint(store, claim);
        INFO(text);
        CHECK(text.find(words) == 0);
        CHECK(text.find(cat("=", claim.world_size == 3 ? "2" : "automatic", " on rank 0 (pid ", ::getppid(),
                            " on there)")) != std::string::npos);
    }
    // torchrun makes another world without counting a restart: what the former one was told is nothing then.
    OwnStore store;
    claim_as(store, ended_process(), of_two);
    CHECK(complaint(store, wider) == "number 1");
    OwnStore elsewhere;
    claim_as(elsewhere, process(1, "1", "another-kernel"), of_two);
    CHECK(complaint(elsewhere, wider) == "number 1");
    OwnStore closed;
    REQUIRE(closed.set(claim_as(closed, alive, of_two), claim_is_over).has_value());
    CHECK(complaint(closed, wired) == "number 1");
}

TEST_CASE("what contexts are told is compared for each opening: the second may have another transport than the first") {
    OwnStore store;
    const RankClaim wired{.rank = 0, .world_size = 2, .transport = "tcp"};
    const RankClaim wired_too{.rank = 1, .world_size = 2, .transport = "tcp"};
    const RankClaim second{.rank = 1, .world_size = 2, .transport = "automatic"};
    const std::string alive = parent();
    claim_as(store, alive, wired);  // and keeps it
    CHECK(complaint(store, wired_too) == "number 1");
    claim_as(store, alive, of_two);
    CHECK(complaint(store, second) == "number 2");
    claim_as(store, alive, of_two);
    CHECK(complaint(store, wired_too).find("MUSTER_TRANSPORT=tcp on rank 1") == 0);
}

TEST_CASE("the store of a world of one waits for what another thread sets, and copies see the same") {
    OwnStore store;
    OwnStore copy = store;
    std::thread setter([&] { (void)copy.set("key", "value"); });
    const auto found = store.get("key", std::chrono::seconds(60));
    setter.join();
    REQUIRE(found.has_value());
    CHECK(*found == "value");
    const auto missing = store.get("other", std::chrono::milliseconds(1));
    REQUIRE(missing.has_error());
    CHECK(missing.error().code == Errc::timed_out);
    CHECK(store.set("large", std::string(8 * 1024 * 1024 + 1, 'x')).error().code == Errc::limit_exceeded);
    CHECK(store.add(std::string(8 * 1024 + 1, 'k'), 1).error().code == Errc::limit_exceeded);
}
