#include "agent/driver/metrics_file.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "agent/driver/worker_metrics.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/step_buckets.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

using namespace muster;
using agent::MetricsFile;
namespace fs = std::filesystem;

namespace {

struct MetricsFolder {
    MetricsFolder() {
        std::string name = fs::temp_directory_path() / "muster_metrics_XXXXXX";
        path = ::mkdtemp(name.data());
    }
    ~MetricsFolder() { fs::remove_all(path); }
    [[nodiscard]] std::size_t count() const {
        return static_cast<std::size_t>(std::distance(fs::directory_iterator(path), fs::directory_iterator()));
    }
    fs::path path;
};

std::string page_with(int number) {
    return cat("muster_worker_step ", number, "\n");
}

std::string file_of(int number, pid_t writer = ::getpid()) {
    return cat("# Workers of one node, written by muster, process ", writer, ".\n", page_with(number));
}

void put_text(const fs::path& path, std::string_view text) {
    std::ofstream(path) << text;
}

/// A process of this program that waits, or has ended.
struct OtherAgent {
    explicit OtherAgent(bool runs) {
        int ends[2];
        REQUIRE(::pipe(ends) == 0);
        pid = ::fork();
        if (pid == 0) {
            char byte;
            ::close(ends[1]);
            ::_exit(static_cast<int>(::read(ends[0], &byte, 1)));
        }
        ::close(ends[0]);
        held = ends[1];
        if (!runs) end();
    }
    ~OtherAgent() { end(); }
    void end() {
        if (held < 0) return;
        ::close(held);
        held = -1;
        ::waitpid(pid, nullptr, 0);
    }
    pid_t pid = 0;
    int held = -1;
};

}  // namespace

TEST_CASE("the newest page is in the file, which others may read, and goes with its object") {
    const MetricsFolder folder;
    const auto path = MetricsFile::path_in(folder.path, "train");
    CHECK(path == folder.path / "muster_train.prom");
    {
        const auto file = MetricsFile::open(path, page_with(0)).value();
        CHECK(read_file(path) == file_of(0));
        struct stat facts {};
        REQUIRE(::stat(path.c_str(), &facts) == 0);
        CHECK((facts.st_mode & 0777) == 0644);
        for (int i = 1; i <= 1000; ++i) file->write(page_with(i));
        REQUIRE(file->flush(60s));
        CHECK(read_file(path) == file_of(1000));
        CHECK(folder.count() == 1);
    }
    CHECK(folder.count() == 0);
}

TEST_CASE("a hostile name of a job stays in its directory, and no two names share a file") {
    CHECK(MetricsFile::path_in("/d", "../../etc/x") == "/d/muster_..%2f..%2fetc%2fx.prom");
    CHECK(MetricsFile::path_in("/d", "a\nb") == "/d/muster_a%0ab.prom");
    CHECK(MetricsFile::path_in("/d", "a%0ab") == "/d/muster_a%250ab.prom");
    const std::string rest(300, 'x');
    CHECK(MetricsFile::path_in("/d", cat(rest, "1")).size() < 100);
    CHECK(MetricsFile::path_in("/d", cat(rest, "1")) != MetricsFile::path_in("/d", cat(rest, "2")));
}

TEST_CASE("a directory that cannot be written is an error at the start, and later a pause") {
    const MetricsFolder folder;
    const auto inner = folder.path / "textfile";
    const auto path = inner / "job.prom";
    CHECK(MetricsFile::open(path, page_with(0)).error().context.find(cat("write ", path.string())) == 0);
    fs::create_directory(inner);
    const auto file = MetricsFile::open(path, page_with(0)).value();
    fs::remove_all(inner);
    file->write(page_with(1));
    REQUIRE(file->flush(60s));
    fs::create_directory(inner);
    file->write(page_with(2));
    REQUIRE(file->flush(60s));
    CHECK(read_file(path) == file_of(2));
}

TEST_CASE("a full disk leaves the last page and no draft") {
    const MetricsFolder folder;
    const auto path = folder.path / "job.prom";
    const auto file = MetricsFile::open(path, page_with(0)).value();
    // What stands in the draft's place fails the write as a full disk does: the page is not there as a whole.
    fs::create_directories(folder.path / "job.prom.new" / "inner");
    file->write(page_with(1));
    REQUIRE(file->flush(60s));
    CHECK(read_file(path) == file_of(0));
    fs::remove_all(folder.path / "job.prom.new");
    file->write(page_with(2));
    REQUIRE(file->flush(60s));
    CHECK(read_file(path) == file_of(2));
    CHECK(folder.count() == 1);
}

TEST_CASE("links are replaced and never followed, and a file of another program stays") {
    const MetricsFolder folder;
    const auto path = folder.path / "job.prom";
    const auto victim = folder.path / "victim";
    put_text(victim, "precious\n");
    fs::create_symlink(victim, folder.path / "job.prom.new");
    const auto file = MetricsFile::open(path, page_with(0)).value();
    CHECK(read_file(path) == file_of(0));
    fs::remove(path);
    fs::create_symlink(victim, path);
    file->write(page_with(1));
    REQUIRE(file->flush(60s));
    CHECK_FALSE(fs::is_symlink(path));
    CHECK(read_file(path) == file_of(1));
    for (const auto& strange : {folder.path / "other.prom", folder.path / "link.prom"}) {
        if (strange.filename() == "other.prom")
            put_text(strange, "node_x 1\n");
        else
            fs::create_symlink(victim, strange);
        CHECK(MetricsFile::open(strange, page_with(0)).error().code == Errc::invalid_argument);
        MetricsFile::remove(strange, ::getpid());
        CHECK(fs::exists(fs::symlink_status(strange)));
    }
    CHECK(read_file(victim) == "precious\n");
}

TEST_CASE("the file of a killed agent is replaced or removed, that of a running one is not") {
    const MetricsFolder folder;
    const auto path = folder.path / "job.prom";
    const OtherAgent dead(false);
    put_text(path, file_of(1, dead.pid));
    put_text(folder.path / "job.prom.new", "# Wor");
    { CHECK(MetricsFile::open(path, page_with(2)).has_value()); }
    CHECK(folder.count() == 0);

    const OtherAgent other(true);
    put_text(path, file_of(1, other.pid));
    CHECK(MetricsFile::open(path, page_with(2)).error().code == Errc::already_exists);
    MetricsFile::remove(path, ::getpid());
    CHECK(read_file(path) == file_of(1, other.pid));
    put_text(folder.path / "job.prom.new", "# Wor");
    MetricsFile::remove(path, other.pid);
    CHECK(folder.count() == 0);
}

TEST_CASE("each worker has its series, and none for what it does not report") {
    agent::WorkerNumbers counts{.local_rank = 1, .rank = 9, .runs = true};
    counts.steps.last_step = 41;
    counts.steps.tally = {.first_step = 1, .step_count = 41, .step_ns = 2'500'000'000, .late_ns = 1'000'000};
    counts.steps.times.assign(step_time_bucket_count, {0});
    counts.steps.times[4].count = 40;
    const auto text = agent::worker_metrics("a \"job\"", 3, {{.local_rank = 0, .rank = 8}, counts});
    INFO(text);
    for (const char* line :
         {"muster_worker_info{job=\"a \\\"job\\\"\",local_rank=\"1\",rank=\"9\",round=\"3\"} 1\n",
          "muster_worker_running{job=\"a \\\"job\\\"\",local_rank=\"0\"} 0\n",
          "muster_worker_running{job=\"a \\\"job\\\"\",local_rank=\"1\"} 1\n",
          "muster_worker_step{job=\"a \\\"job\\\"\",local_rank=\"1\"} 41\n",
          "muster_worker_step_seconds_bucket{job=\"a \\\"job\\\"\",local_rank=\"1\",le=\"0.1\"} 40\n",
          "muster_worker_step_seconds_sum{job=\"a \\\"job\\\"\",local_rank=\"1\"} 2.5\n",
          "muster_worker_late_seconds_total{job=\"a \\\"job\\\"\",local_rank=\"1\"} 0.001\n"})
        CHECK(text.find(line) != std::string::npos);
    CHECK(text.find("muster_worker_step{job=\"a \\\"job\\\"\",local_rank=\"0\"}") == std::string::npos);
    CHECK(text.find("muster_worker_step_seconds_count{job=\"a \\\"job\\\"\",local_rank=\"0\"}") == std::string::npos);
}
