// Who may write to a checkpoint directory. Owners are processes here, because locks are a process's.
#include "worker_runtime/checkpoint/files/directory_claim.h"
#include "tests/support/end_with_test.h"

#include <fcntl.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/support/catch.h"
#include "tests/support/other_user.h"
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
        pid_ = test::fork_with_test();
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

TEST_CASE("a draft of a round that has lost the directory is neither committed nor removed") {
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
    // Nor is it removed: the later round may complete it.
    const auto tidied = tidy_up(scratch / "c", *old);
    REQUIRE_FALSE(tidied.has_value());
    CHECK(tidied.error().code == Errc::refused);
    CHECK(std::filesystem::exists(scratch / ("c/" + to_string(draft))));
}

TEST_CASE("an earlier round is refused while a later one of the same job lives elsewhere") {
    const ScratchFolder scratch;
    const Owner later(scratch.string(), {.job = "job", .round = 5});
    REQUIRE(later.claimed());
    replace_host(scratch.string(), "far-away");
    CHECK_THAT(refusal(scratch.string(), {.job = "job", .round = 5}), Catch::Contains("in use by job job (round 5"));
    CHECK_THAT(refusal(scratch.string(), {.job = "job", .round = 4}), Catch::Contains("on far-away"));
}

TEST_CASE("a LOCK that somebody else has planted is refused with a sentence, and not written to") {
    const ScratchFolder scratch;
    const auto victim = scratch / "victim", directory = scratch / "c", lock = scratch / "c/LOCK";
    std::filesystem::create_directory(directory);
    std::ofstream(victim) << "dear to somebody";
    const auto refused_as = [&](const std::string& what) {
        const auto claim = DirectoryClaim::take(directory, {.job = "job", .round = 0});
        REQUIRE(claim.has_error());
        CHECK(claim.error().code == Errc::refused);
        CHECK_THAT(claim.error().context, Catch::Contains("LOCK is " + what) && Catch::Contains("remove it"));
        std::ifstream file(victim);
        CHECK(std::string((std::istreambuf_iterator<char>(file)), {}) == "dear to somebody");
    };
    SECTION("a link to a file") {
        std::filesystem::create_symlink(victim, lock);
        refused_as("a symbolic link");
        CHECK_THAT(save_steps(directory, 2, 0, {1}), Catch::Contains("LOCK is a symbolic link"));
    }
    SECTION("a link to nothing, which would be made") {
        std::filesystem::create_symlink(scratch / "new", lock);
        refused_as("a symbolic link");
        CHECK_FALSE(std::filesystem::exists(scratch / "new"));
    }
    SECTION("a hard link") {
        std::filesystem::create_hard_link(victim, lock);
        refused_as("a hard link");
    }
    SECTION("a FIFO") {
        REQUIRE(::mkfifo(lock.c_str(), 0600) == 0);
        refused_as("no regular file");
    }
    SECTION("another user's file") {
        if (!test::may_be_another_user()) return;
        std::ofstream(lock) << "{}";
        REQUIRE(::chown(lock.c_str(), 65534, 65534) == 0);
        refused_as("a file of another user (uid 65534)");
        // Where all is another user's, as on a file system that gives all files to one.
        REQUIRE(::chown(directory.c_str(), 65534, 65534) == 0);
        CHECK(refusal(directory, {.job = "job", .round = 0}).empty());
    }
    SECTION("a file system that gives root's files to nobody, in a directory of root's") {
        if (!test::may_be_another_user()) return;
        std::filesystem::permissions(scratch.string(), std::filesystem::perms(0755));
        std::filesystem::permissions(directory, std::filesystem::perms(0777));
        ::setfsuid(65534);  // as an NFS server with root_squash
        const auto first = refusal(directory, {.job = "job", .round = 0});
        const auto again = refusal(directory, {.job = "job", .round = 1});
        ::setfsuid(0);
        CHECK(first.empty());
        CHECK(again.empty());
        // The probe is gone: LOCK alone is there.
        CHECK(std::distance(std::filesystem::directory_iterator(directory), {}) == 1);
    }
    SECTION("a copy of the directory by hard links is as good as another") {
        { REQUIRE(refusal(directory, {.job = "job", .round = 0}).empty()); }
        std::filesystem::create_hard_link(lock, scratch / "backup");
        CHECK(refusal(directory, {.job = "job", .round = 1}).empty());
    }
}

TEST_CASE("checkpoints are for the user and its group, and a directory that is there keeps its mode") {
    const ScratchFolder scratch;
    const auto before = ::umask(022);
    const auto mode = [](const std::string& path) {
        return static_cast<unsigned>(std::filesystem::status(path).permissions());
    };
    std::filesystem::create_directory(scratch / "site");
    std::filesystem::permissions(scratch / "site", std::filesystem::perms(02775));
    REQUIRE(save_steps(scratch / "site", 2, 0, {10}) == "");
    REQUIRE(save_steps(scratch / "new", 2, 0, {10}) == "");
    ::umask(077);
    REQUIRE(save_steps(scratch / "strict", 1, 0, {10}) == "");
    ::umask(before);
    CHECK(mode(scratch / "site") == 02775);
    for (const auto& place : {std::string("site"), std::string("new")}) {
        const auto step = scratch / (place + "/step_00000010");
        if (place == "new") CHECK(mode(scratch / place) == 0750);
        CHECK((mode(step) & 0777) == 0750);
        for (const auto* file : {"/rank_00001.safetensors", "/manifest.json", "/../LOCK", "/../LATEST", "/../IDENTITY"})
            CHECK(mode(step + file) == 0640);
    }
    CHECK(mode(scratch / "strict/step_00000010/manifest.json") == 0600);
}
