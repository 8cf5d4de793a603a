// Who may write to a checkpoint directory. Owners are processes here, because locks are a process's.
#include "worker_runtime/checkpoint/files/directory_claim.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/support/catch.h"
#include "tests/unit/worker_runtime/checkpoint/saved_model.h"
#include "worker_runtime/checkpoint/files/folders.h"

using namespace muster;
using namespace muster::runtime;
using namespace muster::test;

namespace {

/// A process that has claimed the directory, and lives until it is told otherwise.
class Owner {
  public:
    Owner(const std::string& directory, const Claimant& claimant) {
        int ready[2];
        if (::pipe2(ready, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
        pid_ = ::fork();
        if (pid_ == 0) {
            const auto claim = DirectoryClaim::take(directory, claimant);
            const char answer = claim ? 'y' : 'n';
            (void)!::write(ready[1], &answer, 1);
            ::pause();
            ::_exit(0);
        }
        ::close(ready[1]);
        char answer = 'n';
        claimed_ = ::read(ready[0], &answer, 1) == 1 && answer == 'y';
        ::close(ready[0]);
    }
    ~Owner() { end(); }
    void end() {
        if (pid_ <= 0) return;
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        pid_ = -1;
    }
    [[nodiscard]] bool claimed() const { return claimed_; }

  private:
    pid_t pid_ = -1;
    bool claimed_ = false;
};

std::string refusal(const std::string& directory, const Claimant& claimant) {
    const auto claim = DirectoryClaim::take(directory, claimant);
    return claim ? "" : claim.error().context;
}

void replace_host(const std::string& directory, const std::string& host) {
    std::ifstream file(directory + "/LOCK");
    std::string text((std::istreambuf_iterator<char>(file)), {});
    const auto at = text.find("\"host\":\"") + 8;
    text.replace(at, text.find('"', at) - at, host);
    std::ofstream(directory + "/LOCK") << text;
}

}  // namespace

TEST_CASE("two jobs cannot have one directory at a time, and the second learns who has it") {
    const ScratchFolder scratch;
    Owner first(scratch.string(), {.job = "first", .round = 3});
    REQUIRE(first.claimed());
    CHECK_THAT(
        refusal(scratch.string(), {.job = "second", .round = 9}),
        Catch::Contains("in use by job first (round 3, process ") && Catch::Contains("another --checkpoint-dir"));
    CHECK_THAT(save_steps(scratch.string(), 2, 0, {1}), Catch::Contains("in use by job first"));
    first.end();
    CHECK(refusal(scratch.string(), {.job = "second", .round = 0}).empty());
}

TEST_CASE("a second of the same name on one host is another job") {
    const ScratchFolder scratch;
    const Owner first(scratch.string(), {.job = "none", .round = 0});
    REQUIRE(first.claimed());
    CHECK_THAT(refusal(scratch.string(), {.job = "none", .round = 1}), Catch::Contains("in use by job none"));
}

TEST_CASE("a process has a directory once") {
    const ScratchFolder scratch;
    const auto claim = DirectoryClaim::take(scratch.string(), {.job = "job", .round = 0});
    REQUIRE(claim.has_value());
    CHECK_THAT(refusal(scratch.string(), {.job = "job", .round = 0}), Catch::Contains("in this process already"));
    // ... and has lost nothing by being asked.
    CHECK_FALSE(Owner(scratch.string(), {.job = "other", .round = 0}).claimed());
}

TEST_CASE("the round before, which may live on behind a broken network, cannot commit any more") {
    const ScratchFolder scratch;
    auto old = DirectoryClaim::take(scratch.string(), {.job = "job", .round = 3});
    REQUIRE(old.has_value());
    CHECK(old->exclusively([] { return Result<void>(); }).has_value());
    replace_host(scratch.string(), "far-away");  // for the next one, this process is on another host
    const Owner next(scratch.string(), {.job = "job", .round = 4});
    REQUIRE(next.claimed());
    bool ran = false;
    const auto refused = old->exclusively([&] {
        ran = true;
        return Result<void>();
    });
    CHECK_FALSE(ran);
    REQUIRE_FALSE(refused.has_value());
    CHECK_THAT(refused.error().context,
               Catch::Contains("taken over by round 4 of job job") && Catch::Contains("this is round 3"));
}

TEST_CASE("a draft of a round that has lost the directory is not committed") {
    const ScratchFolder scratch;
    REQUIRE(save_steps(scratch / "c", 1, 3, {10}) == "");
    const DraftName draft{.step = 10, .round = 3, .nonce = "feed"};
    std::filesystem::rename(scratch / "c/step_00000010", scratch / ("c/" + to_string(draft)));
    auto old = DirectoryClaim::take(scratch / "c", {.job = "job", .round = 3});
    REQUIRE(old.has_value());
    replace_host(scratch / "c", "far-away");
    const Owner next(scratch / "c", {.job = "job", .round = 4});
    REQUIRE(next.claimed());
    CHECK_FALSE(commit_draft(scratch / "c", draft, *old).has_value());
    CHECK(std::filesystem::exists(scratch / ("c/" + to_string(draft))));
    CHECK_FALSE(std::filesystem::exists(scratch / "c/step_00000010"));
}

TEST_CASE("an earlier round is refused while a later one of the same job lives elsewhere") {
    const ScratchFolder scratch;
    const Owner later(scratch.string(), {.job = "job", .round = 5});
    REQUIRE(later.claimed());
    replace_host(scratch.string(), "far-away");
    CHECK_THAT(refusal(scratch.string(), {.job = "job", .round = 5}), Catch::Contains("in use by job job (round 5"));
    CHECK_THAT(refusal(scratch.string(), {.job = "job", .round = 4}), Catch::Contains("on far-away"));
}
