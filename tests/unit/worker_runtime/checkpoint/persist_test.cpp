// From an agent's memory to the disk: what muster-persist does with the copies of workers that have ended.
#include "worker_runtime/checkpoint/files/persist.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/unit/worker_runtime/checkpoint/saved_model.h"
#include "worker_runtime/checkpoint/files/directory_claim.h"
#include "worker_runtime/checkpoint/files/folders.h"
#include "worker_runtime/checkpoint/snapshot_link.h"

using namespace muster;
using namespace muster::runtime;
using namespace muster::test;

namespace {

/// The agents of all ranks, and what each has kept: the newest two.
class Keepers {
  public:
    struct Kept {
        FileDescriptor memory;
        std::uint64_t size_bytes = 0;
        std::string directory;
    };
    std::shared_ptr<SnapshotLink> link(int rank) { return std::make_shared<Link>(*this, rank); }

    /// What an agent with these ranks brings along.
    std::vector<KeptCopy> copies(const std::vector<int>& ranks) {
        std::vector<KeptCopy> all;
        for (const int rank : ranks) {
            for (const auto& kept : kept_[rank])
                all.push_back({FileDescriptor(::fcntl(kept.memory.get(), F_DUPFD_CLOEXEC, 3)), kept.size_bytes});
        }
        return all;
    }
    [[nodiscard]] std::vector<Kept>& of(int rank) { return kept_[rank]; }

  private:
    class Link final : public SnapshotLink {
      public:
        Link(Keepers& keepers, int rank) : keepers_(keepers), rank_(rank) {}
        bool give(const FileDescriptor& memory, std::uint64_t size_bytes, std::int64_t,
                  const std::string& directory) override {
            const std::lock_guard lock(keepers_.mutex_);
            auto& kept = keepers_.kept_[rank_];
            if (kept.size() == 2) kept.erase(kept.begin());
            kept.push_back({FileDescriptor(::fcntl(memory.get(), F_DUPFD_CLOEXEC, 3)), size_bytes, directory});
            return true;
        }
        bool give_copy(const FileDescriptor&, std::uint64_t, std::int64_t, int) override { return false; }
        std::vector<OfferedSnapshot> take_offers(Duration) override { return {}; }

      private:
        Keepers& keepers_;
        int rank_;
    };
    std::mutex mutex_;
    std::map<int, std::vector<Kept>> kept_;
};

/// Round 3: `saved` comes to the disk, and each step of `kept` to the agents' memory. Empty, or what went wrong.
std::string train(const std::string& directory, int world, Keepers& keepers, const std::vector<std::int64_t>& kept,
                  std::int64_t saved = 10, const std::string& job = "job") {
    ThreadGroup group(world);
    StoreInMemory store;
    return group.run([&](Communicator& communicator) -> std::string {
        auto opened = Checkpointer::open(communicator, store.connect(), {.job = job, .round = 3},
                                         {.directory = directory, .snapshot_interval = Duration::zero()},
                                         keepers.link(communicator.rank()));
        if (!opened) return opened.error().context;
        SavedModel model(communicator.rank(), communicator.size());
        model.train_to(saved);
        auto done = opened->save(saved, model.state());
        if (done) done = opened->finish();
        for (const auto step : kept) {
            model.train_to(step);
            if (done) done = opened->snapshot(step, model.state());
            if (done) done = opened->finish();
        }
        return done ? "" : done.error().context;
    });
}

PersistTerms terms(const std::string& directory, std::int64_t round = 3, Duration limit = 60s) {
    return {.directory = directory, .round = round, .deadline = std::chrono::steady_clock::now() + limit};
}

/// "step_00000015", "part of 15", "nothing", or the error's words.
std::string told(const Result<Persisted>& done) {
    if (!done) return done.error().context;
    if (done->step < 0) return "nothing";
    return done->checkpoint ? to_string(*done->checkpoint) : cat("part of ", done->step);
}

}  // namespace

TEST_CASE("copies of a whole save become a checkpoint that the next start loads") {
    for (int world = 1; world <= 3; ++world) {
        const ScratchFolder scratch;
        Keepers keepers;
        REQUIRE(train(scratch / "c", world, keepers, {15}) == "");
        std::vector<int> ranks;
        for (int rank = 0; rank < world; ++rank) ranks.push_back(rank);
        CHECK(told(persist_copies(terms(scratch / "c"), keepers.copies(ranks))) == "step_00000015");
        CHECK(names_of(scratch / "c") == "IDENTITY LATEST LOCK step_00000010 step_00000015");
        CHECK(load_in(scratch / "c", world, 4) == "step 15");
        CHECK(told(persist_copies(terms(scratch / "c", 4), keepers.copies(ranks))) == "nothing");
    }
}

TEST_CASE("the directory travels with the copy") {
    const ScratchFolder scratch;
    Keepers keepers;
    REQUIRE(train(scratch / "a/../c", 1, keepers, {15}) == "");
    CHECK(keepers.of(0).back().directory == scratch / "c");
}

TEST_CASE("of nodes that each have some ranks the last one makes the checkpoint") {
    const ScratchFolder scratch;
    Keepers keepers;
    REQUIRE(train(scratch / "c", 4, keepers, {15}) == "");
    CHECK(told(persist_copies(terms(scratch / "c"), keepers.copies({2, 3}))) == "part of 15");
    CHECK(load_in(scratch / "c", 1, 4, false) == "step 10");  // a start between them, which removes the half
    CHECK(told(persist_copies(terms(scratch / "c", 4), keepers.copies({0, 1}))) == "part of 15");
    CHECK(told(persist_copies(terms(scratch / "c", 4), keepers.copies({2, 3}))) == "step_00000015");
    CHECK(load_in(scratch / "c", 4, 5) == "step 15");
}

TEST_CASE("ranks that had come to different steps bring the one that all have") {
    const ScratchFolder scratch;
    Keepers keepers;
    REQUIRE(train(scratch / "c", 2, keepers, {14, 15}) == "");
    keepers.of(1).pop_back();
    CHECK(told(persist_copies(terms(scratch / "c"), keepers.copies({0}))) == "part of 15");
    CHECK(told(persist_copies(terms(scratch / "c"), keepers.copies({1}))) == "step_00000014");
    CHECK(load_in(scratch / "c", 2, 4) == "step 14");
}

TEST_CASE("a step that only some ranks of this node had come to is not begun") {
    const ScratchFolder scratch;
    Keepers keepers;
    REQUIRE(train(scratch / "c", 2, keepers, {14, 15}) == "");
    keepers.of(1).pop_back();
    CHECK(told(persist_copies(terms(scratch / "c"), keepers.copies({0, 1}))) == "step_00000014");
    CHECK(names_of(scratch / "c") == "IDENTITY LATEST LOCK step_00000010 step_00000014");
}

TEST_CASE("what a killed worker had written is taken where it is whole, and written again where it is not") {
    const ScratchFolder scratch;
    Keepers keepers;
    REQUIRE(train(scratch / "c", 2, keepers, {15}) == "");
    REQUIRE(told(persist_copies(terms(scratch / "c"), keepers.copies({0}))) == "part of 15");
    const auto draft = list_directory(scratch / "c")->drafts.at(0);
    const auto folder = scratch / ("c/" + to_string(draft)) + "/";
    const auto written = std::filesystem::last_write_time(folder + "rank_00000.safetensors");
    std::ofstream(folder + "rank_00001.safetensors") << "half of it";
    std::ofstream(folder + "manifest.json") << "{";
    CHECK(told(persist_copies(terms(scratch / "c"), keepers.copies({0, 1}))) == "step_00000015");
    CHECK(std::filesystem::last_write_time(scratch / "c/step_00000015/rank_00000.safetensors") == written);
    CHECK(load_in(scratch / "c", 2, 4) == "step 15");
}

TEST_CASE("damaged copies are left out") {
    const ScratchFolder scratch;
    Keepers keepers;
    REQUIRE(train(scratch / "c", 1, keepers, {14, 15}) == "");
    const auto size = keepers.of(0).back().size_bytes;
    auto* const memory = static_cast<char*>(
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, keepers.of(0).back().memory.get(), 0));
    REQUIRE(memory != MAP_FAILED);
    memory[size - 1] = static_cast<char>(memory[size - 1] ^ 1);
    ::munmap(memory, size);
    auto longer = keepers.copies({0});
    longer.back().size_bytes += 1u << 20;
    CHECK(told(persist_copies(terms(scratch / "c"), std::move(longer))) == "step_00000014");
    std::vector<KeptCopy> none;
    none.push_back({FileDescriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC)), 4096});
    CHECK_THAT(told(persist_copies(terms(scratch / "c"), std::move(none))),
               Catch::Contains("no copy in memory is complete"));
}

TEST_CASE("a directory of another job or of a later round is not touched") {
    const ScratchFolder scratch;
    Keepers keepers;
    REQUIRE(train(scratch / "c", 2, keepers, {15}) == "");
    SECTION("a later round of the same job") {
        REQUIRE(save_steps(scratch / "c", 1, 4, {}) == "");
        CHECK_THAT(told(persist_copies(terms(scratch / "c"), keepers.copies({0, 1}))),
                   Catch::Contains("belongs to round 4 of job job"));
    }
    SECTION("another job, also one that has ended") {
        Keepers others;
        REQUIRE(train(scratch / "c", 1, others, {}, 11, "other") == "");
        CHECK_THAT(told(persist_copies(terms(scratch / "c", 9), keepers.copies({0, 1}))),
                   Catch::Contains("of job other"));
    }
    for (const auto& entry : std::filesystem::directory_iterator(scratch / "c"))
        CHECK_THAT(entry.path().filename().string(), !Catch::Contains("tmp"));
}

TEST_CASE("a directory that cannot be written, or has gone, is an error that names it") {
    const ScratchFolder scratch;
    Keepers keepers;
    REQUIRE(train(scratch / "c", 1, keepers, {15}) == "");
    std::filesystem::rename(scratch / "c", scratch / "away");
    CHECK_THAT(told(persist_copies(terms(scratch / "c"), keepers.copies({0}))), Catch::Contains(scratch / "c/LOCK"));
    CHECK_FALSE(std::filesystem::exists(scratch / "c"));
    std::filesystem::rename(scratch / "away", scratch / "c");
    CHECK_THAT(told(persist_copies(terms(scratch / "c", 3, Duration::zero()), keepers.copies({0}))),
               Catch::Contains("no time is left (--persist-timeout)"));
    CHECK(load_in(scratch / "c", 1, 4) == "step 10");
}

TEST_CASE("after success the parts of other nodes are waited for, and their absence is an error") {
    const ScratchFolder scratch;
    Keepers keepers;
    REQUIRE(train(scratch / "c", 2, keepers, {15}) == "");
    auto waiting = terms(scratch / "c");
    waiting.wait_for_others = true;
    const std::string missing = "this node's part of step 15 is on disk, but those of other nodes are missing";
    std::string alone;
    // Longer where a busy disk took all of the time for this node's part.
    for (Duration limit = 4s; alone.find(missing) == std::string::npos && limit < 1min; limit *= 4) {
        waiting.deadline = std::chrono::steady_clock::now() + limit;
        alone = told(persist_copies(waiting, keepers.copies({0})));
    }
    CHECK_THAT(alone, Catch::Contains(missing));
    waiting.deadline = std::chrono::steady_clock::now() + 60s;
    const pid_t other = ::fork();  // in one process the directory is opened by one at a time
    REQUIRE(other >= 0);
    if (other == 0) ::_exit(told(persist_copies(terms(scratch / "c"), keepers.copies({1}))) == "step_00000015" ? 0 : 1);
    const auto own = told(persist_copies(waiting, keepers.copies({0})));
    int status = 0;
    REQUIRE(::waitpid(other, &status, 0) == other);
    CHECK(status == 0);
    // Of this node's part on disk and its own the other one may have made the whole before this one looked.
    CHECK((own == "step_00000015" || own == "nothing"));
    CHECK(load_in(scratch / "c", 2, 4) == "step 15");
}

TEST_CASE("where the disk is as new as the copies their heads are enough") {
    const ScratchFolder scratch;
    Keepers keepers;
    REQUIRE(train(scratch / "c", 1, keepers, {15}) == "");
    REQUIRE(told(persist_copies(terms(scratch / "c"), keepers.copies({0}))) == "step_00000015");
    for (const auto& kept : keepers.of(0)) {
        char byte = 0;
        const auto last = static_cast<off_t>(kept.size_bytes - 1);
        REQUIRE(::pread(kept.memory.get(), &byte, 1, last) == 1);
        byte = static_cast<char>(byte ^ 1);
        REQUIRE(::pwrite(kept.memory.get(), &byte, 1, last) == 1);
    }
    CHECK(told(persist_copies(terms(scratch / "c", 3, Duration::zero()), keepers.copies({0}))) == "nothing");
}

namespace {

std::string latest_in(const std::string& directory) {
    std::string name;
    std::ifstream(directory + "/LATEST") >> name;
    return name;
}

/// As a visitor, drafts of `first`, `first` + 2 and so on.
void commit_drafts(const std::string& directory, std::int64_t first, std::int64_t last) {
    auto claim = DirectoryClaim::visit(directory, {.job = "job", .round = 3});
    for (auto step = first; claim && step <= last; step += 2) {
        const DraftName draft{.step = step, .round = 3, .nonce = "5eed1234"};
        std::filesystem::create_directory(directory + "/" + to_string(draft));
        (void)commit_draft(directory, draft, *claim);
        // Who waits for the lock looks every 5 ms: without a pause the holder would always be first.
        std::this_thread::sleep_for(12ms);
    }
}

}  // namespace

TEST_CASE("LATEST never goes back behind what another process has committed meanwhile") {
    const ScratchFolder scratch;
    const auto directory = scratch / "c";
    REQUIRE(save_steps(directory, 1, 3, {20}) == "");
    {
        auto claim = DirectoryClaim::visit(directory, {.job = "job", .round = 3});
        REQUIRE(claim.has_value());
        const DraftName draft{.step = 15, .round = 3, .nonce = "5eed1234"};
        std::filesystem::create_directory(directory + "/" + to_string(draft));
        const auto late = commit_draft(directory, draft, *claim);
        REQUIRE(late.has_error());
        CHECK_THAT(late.error().context, Catch::Contains("has step_00000020 already"));
        CHECK(latest_in(directory) == "step_00000020");
    }
    std::array<pid_t, 2> children{};
    for (std::size_t i = 0; i < children.size(); ++i) {
        children[i] = ::fork();
        if (children[i] != 0) continue;
        commit_drafts(directory, 21 + static_cast<std::int64_t>(i), 140);
        ::_exit(0);
    }
    auto claim = DirectoryClaim::visit(directory, {.job = "job", .round = 3});
    REQUIRE(claim.has_value());
    int running = 2;
    while (running > 0) {
        // Whoever may commit finds LATEST as new as the newest.
        const auto looked = claim->exclusively([&]() -> Result<void> {
            CHECK(latest_in(directory) == to_string(list_directory(directory)->checkpoints.front()));
            return {};
        });
        REQUIRE(looked.has_value());
        while (running > 0 && ::waitpid(-1, nullptr, WNOHANG) > 0) --running;
        std::this_thread::sleep_for(6ms);  // pauses for the same reason as commit_drafts()
    }
    CHECK(latest_in(directory) == "step_00000140");
}
