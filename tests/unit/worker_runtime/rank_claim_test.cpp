// Which process has which rank in a round, and what a process without peers keeps in its own store.
#include "worker_runtime/rank_claim.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "rendezvous/base/boot_id.h"
#include "rendezvous/base/text.h"
#include "tests/support/catch.h"
#include "worker_runtime/own_store.h"

using namespace muster;
using namespace muster::runtime;

namespace {

/// As a process says who it is.
std::string process(int pid, const std::string& kernel = boot_id()) {
    struct stat space {};
    REQUIRE(::stat("/proc/self/ns/pid", &space) == 0);
    return cat(kernel, " ", space.st_ino, " ", pid, " there");
}

int ended_process() {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    ::waitpid(child, nullptr, 0);
    return child;
}

/// What that process has left in the store when it claimed its rank.
void claim_as(OwnStore& store, const std::string& who, const RankClaim& claim) {
    const auto number = store.add(cat(claim.world_size, "/rank/", claim.rank), 1).value();
    REQUIRE(store.set(cat(claim.world_size, "/rank/", claim.rank, "/", number), who).has_value());
    if (store.add("come", 1).value() == 1)
        REQUIRE(
            store.set("first", cat(claim.world_size, "\n", claim.transport, "\n", claim.rank, "\n", who)).has_value());
}

std::string complaint(OwnStore& store, const RankClaim& claim) {
    const auto claimed = claim_rank(store, claim);
    return claimed ? cat("number ", *claimed) : claimed.error().context;
}

const RankClaim of_two{.rank = 0, .world_size = 2, .transport = "automatic"};

}  // namespace

TEST_CASE("programs of a worker have numbers, and another process that lives keeps its rank") {
    OwnStore store;
    CHECK(complaint(store, of_two) == "number 1");
    CHECK(complaint(store, of_two) == "number 2");
    claim_as(store, process(ended_process()), of_two);
    CHECK(complaint(store, of_two) == "number 4");
    claim_as(store, process(::getppid()), of_two);
    const auto text = complaint(store, of_two);
    INFO(text);
    CHECK(text.find(cat("RANK=0 is the rank of two processes of this round, this one (pid ", ::getpid(), " on ")) == 0);
    CHECK(text.find(cat(") and pid ", ::getppid(), " on there: each needs its own")) != std::string::npos);
    OwnStore other;
    claim_as(other, process(1, "another kernel"), of_two);
    CHECK(complaint(other, of_two).find("is the rank of two processes") != std::string::npos);
}

TEST_CASE("a world or a transport that differs is told with both, where the other rank can be seen to live") {
    const RankClaim second{.rank = 1, .world_size = 2, .transport = "automatic"};
    const RankClaim wider{.rank = 1, .world_size = 3, .transport = "automatic"};
    const RankClaim wired{.rank = 1, .world_size = 2, .transport = "tcp"};
    const std::string alive = process(::getppid());
    {
        OwnStore store;
        claim_as(store, alive, of_two);
        CHECK(complaint(store, second) == "number 1");
    }
    for (const auto& [claim, words] :
         {std::pair(wider, "WORLD_SIZE=3 on rank 1"), std::pair(wired, "MUSTER_TRANSPORT=tcp on rank 1")}) {
        OwnStore store;
        claim_as(store, alive, of_two);
        const auto text = complaint(store, claim);
        INFO(text);
        CHECK(text.find(words) != std::string::npos);
        CHECK(text.find(cat("on rank 0 (pid ", ::getppid(), " on there)")) != std::string::npos);
    }
    // torchrun makes another world without counting a restart: what the former one was told is nothing then.
    OwnStore store;
    claim_as(store, process(ended_process()), of_two);
    CHECK(complaint(store, wider) == "number 1");
    OwnStore elsewhere;
    claim_as(elsewhere, process(1, "another kernel"), of_two);
    CHECK(complaint(elsewhere, wider) == "number 1");
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
