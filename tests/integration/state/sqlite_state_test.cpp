// The state in a file: what is told as kept is there, and a file that cannot be used, or written, costs no job.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/net/event_loop.h"
#include "rendezvous/rounds/job_record.h"
#include "rendezvous/state/sqlite/sqlite_file.h"
#include "rendezvous/state/sqlite/sqlite_state.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using namespace muster::rendezvous;

namespace {

constexpr auto patience = std::chrono::seconds(60);

/// A daemon's loop with its state, and the news of what is kept.
class Keeper {
  public:
    explicit Keeper(const std::string& path) {
        auto opened = SqliteState::open(path, [this](std::function<void()> work) { loop_.post(std::move(work)); });
        REQUIRE(opened.has_value());
        kept = std::move(opened->kept);
        store_ = std::move(opened->state);
        store_->persisted = [this](std::uint64_t sequence) {
            if (sequence >= awaited_) arrived_.set_value(sequence);
        };
        store_->failing = [this](std::string why) {
            if (!std::exchange(has_failed_, true)) failed_.set_value(std::move(why));
        };
        REQUIRE(loop_.start_thread().has_value());
    }
    ~Keeper() {
        loop_.invoke([&] { store_.reset(); });
    }

    void write(std::vector<Record> records) {
        loop_.invoke([&] { store_->write(++sequence_, std::move(records)); });
    }
    /// Waits until everything written before is kept; `act` happens when the wait has begun. False: it took too long.
    bool settle(std::vector<Record> last, const std::function<void()>& act = {}) {
        std::future<std::uint64_t> news;
        loop_.invoke([&] {
            arrived_ = {};
            news = arrived_.get_future();
            awaited_ = sequence_ + 1;
            store_->write(++sequence_, std::move(last));
        });
        if (act) act();
        const bool come = news.wait_for(patience) == std::future_status::ready;
        loop_.invoke([&] { awaited_ = UINT64_MAX; });
        return come;
    }

    /// Waits for the first write that fails; why it did.
    std::string failure() {
        auto news = failed_.get_future();
        return news.wait_for(patience) == std::future_status::ready ? news.get() : "no write failed";
    }

    KeptState kept;

  private:
    bool has_failed_ = false;
    std::promise<std::string> failed_;
    EventLoop loop_;
    std::unique_ptr<StateStore> store_;
    std::uint64_t sequence_ = 0;
    std::uint64_t awaited_ = UINT64_MAX;
    std::promise<std::uint64_t> arrived_;
};

std::map<std::string, std::string> content(const std::string& path) {
    std::map<std::string, std::string> all;
    auto file = SqliteFile::open(path);
    REQUIRE(file.has_value());
    const auto records = (*file)->read();
    REQUIRE(records.has_value());
    for (const auto& record : *records) all[record.key] = record.value;
    return all;
}

}  // namespace

TEST_CASE("what was told as kept is in the file, in the order of the steps, whatever bytes it has") {
    const test::ScratchFolder scratch;
    const auto path = scratch / "state.db";
    const std::string bytes("a\0b\xff'", 5);
    {
        Keeper keeper(path);
        for (int i = 0; i < 1000; ++i) keeper.write({{"counter", std::to_string(i)}, {"gone", "there"}});
        REQUIRE(keeper.settle({{bytes, bytes}, {"gone", {}}}));
    }
    const auto all = content(path);
    CHECK(all == std::map<std::string, std::string>{{"counter", "999"}, {bytes, bytes}});
    struct stat facts {};
    REQUIRE(::stat(path.c_str(), &facts) == 0);
    CHECK((facts.st_mode & 0777) == 0600);
}

TEST_CASE("a state that is closed in order has written what waited") {
    const test::ScratchFolder scratch;
    const auto path = scratch / "state.db";
    {
        Keeper keeper(path);
        keeper.write({{"last", "word"}});
    }
    CHECK(content(path).at("last") == "word");
}

TEST_CASE("a file that is damaged, cut or of another version is kept aside, and the state begins empty") {
    const test::ScratchFolder scratch;
    const auto path = scratch / "state.db";
    const auto make = [&](const std::string& value) {
        std::filesystem::remove(path);
        Keeper keeper(path);
        REQUIRE(keeper.settle({{"complete", value}}));
    };
    const std::string whole{static_cast<char>(record_version), 4};
    int aside_count = 0;
    const auto starts_empty = [&] {
        const auto aside = path + ".aside-" + std::to_string(++aside_count);
        Keeper keeper(path);
        CHECK_FALSE(keeper.kept.complete);
        CHECK(std::filesystem::exists(aside));
    };
    make(whole);
    CHECK(Keeper(path).kept.complete);
    {
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(4096);  // the page with the records
        file << std::string(200, '\x55');
    }
    starts_empty();
    make(whole);
    std::filesystem::resize_file(path, 5000);
    starts_empty();
    make(std::string{static_cast<char>(record_version + 1), 4});  // a record of a version to come
    starts_empty();
    std::ofstream(path, std::ios::trunc) << "a letter to somebody, and no database at all";
    starts_empty();
}

TEST_CASE("a disk that fails to read is no damage of the file") {
    const test::ScratchFolder scratch;
    const auto path = scratch / "state.db";
    {
        Keeper keeper(path);
        REQUIRE(keeper.settle({{"first", "1"}}));
    }
    auto file = SqliteFile::open(path);
    REQUIRE(file.has_value());
    struct stat wanted {};
    REQUIRE(::stat(path.c_str(), &wanted) == 0);
    // In its place a descriptor that cannot be read.
    const FileDescriptor blind(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    REQUIRE(blind.valid());
    int blinded_count = 0;
    for (int fd = 3; fd < 1024; ++fd) {
        struct stat facts {};
        if (::fstat(fd, &facts) != 0 || facts.st_dev != wanted.st_dev || facts.st_ino != wanted.st_ino) continue;
        REQUIRE(::dup2(blind.get(), fd) == fd);
        ++blinded_count;
    }
    REQUIRE(blinded_count == 1);
    const auto records = (*file)->read();
    REQUIRE(records.has_error());
    INFO(records.error().context);
    CHECK(records.error().code == Errc::io);
    CHECK(records.error().context.find(path + ": cannot read: ") != std::string::npos);
}

TEST_CASE("a file with another layout is kept aside with all that it held, and the state begins empty") {
    const test::ScratchFolder scratch;
    const auto path = scratch / "state.db";
    const std::string whole{static_cast<char>(record_version), 4};
    {
        Keeper keeper(path);
        REQUIRE(keeper.settle({{"complete", whole}}));
    }
    // As PRAGMA user_version=9 leaves it: four bytes of the header, the highest first.
    const auto write_version = [](const std::string& file, char version) {
        std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(63).put(version);
    };
    write_version(path, 9);
    const auto why = SqliteFile::open(path);
    REQUIRE(why.has_error());
    CHECK(why.error().context.find(path + " has version 9; this musterd supports version ") != std::string::npos);
    {
        Keeper keeper(path);
        CHECK_FALSE(keeper.kept.complete);
        REQUIRE(keeper.settle({{"complete", whole}}));  // and it is of use
    }
    CHECK(Keeper(path).kept.complete);
    const auto aside = path + ".aside-1";
    write_version(aside, static_cast<char>(SqliteFile::layout_version));
    CHECK(content(aside).at("complete") == whole);
}

TEST_CASE("another program's database, a folder and a path without one are refused and left as they are") {
    const test::ScratchFolder scratch;
    const auto why = [](const std::string& path) {
        const auto opened = SqliteState::open(path, {});
        return opened.has_error() ? opened.error().context : std::string("opened");
    };
    CHECK(why(scratch.string()).find("Is a directory") != std::string::npos);
    CHECK(why(scratch / "no/state.db").find("its directory must exist") != std::string::npos);
    CHECK(why("/dev/null").find("not a regular file") != std::string::npos);
}

TEST_CASE("a full disk holds back what is not kept, and nothing is lost when there is room again") {
    const test::ScratchFolder scratch;
    const auto path = scratch / "state.db";
    // A limit of the process stands for the disk's.
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
    {
        Keeper keeper(path);
        REQUIRE(keeper.settle({{"first", "1"}}));
        const rlimit full{.rlim_cur = 16 * 1024, .rlim_max = before.rlim_max};
        REQUIRE(::setrlimit(RLIMIT_FSIZE, &full) == 0);
        for (int i = 0; i < 20; ++i) keeper.write({{"large" + std::to_string(i), std::string(10'000, 'x')}});
        std::future<void> room;
        CHECK(keeper.settle({{"last", "1"}}, [&] {
            // The limit is lifted once the writer has met it.
            const auto why = keeper.failure();
            CHECK(why.find("may write files of at most 16384 bytes; raise ulimit -f") != std::string::npos);
            room = std::async(std::launch::async, [&] {
                CHECK(std::filesystem::file_size(path + "-wal") <= 16 * 1024);
                ::setrlimit(RLIMIT_FSIZE, &before);
            });
        }));
        room.get();
    }
    const auto all = content(path);
    CHECK(all.size() == 22);
    CHECK(all.at("last") == "1");
}

TEST_CASE("a state file that was there without a byte is known from a new one") {
    const test::ScratchFolder folder;
    const auto path = folder / "state.db";
    CHECK_FALSE((*SqliteFile::open(path))->was_empty());
    CHECK_FALSE((*SqliteFile::open(path))->was_empty());
    std::filesystem::resize_file(path, 0);
    CHECK((*SqliteFile::open(path))->was_empty());
    CHECK_FALSE((*SqliteFile::open(path))->was_empty());
}
