#include "agent/driver/metrics_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "agent/driver/worker_metrics.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/step_buckets.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/support/file_size_limit.h"

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

/// One that has written its first page, and waits for its thread at its end.
std::unique_ptr<MetricsFile> opened(const std::string& path, int number) {
    auto file = MetricsFile::open(path, page_with(number), 60s).value();
    REQUIRE(file->flush(60s));
    return file;
}

void write_page(MetricsFile& file, int number) {
    file.write(page_with(number));
    REQUIRE(file.flush(60s));
}

}  // namespace

TEST_CASE("the newest page is in the file, which others may read, and goes with its object") {
    const MetricsFolder folder;
    const auto path = MetricsFile::path_in(folder.path, "train");
    CHECK(path == folder.path / "muster_train.prom");
    {
        const auto file = opened(path, 0);
        CHECK(read_file(path) == file_of(0));
        struct stat facts {};
        REQUIRE(::stat(path.c_str(), &facts) == 0);
        CHECK((facts.st_mode & 0777) == 0644);
        for (int i = 1; i <= 1000; ++i) file->write(page_with(i));
        REQUIRE(file->flush(60s));
        CHECK(read_file(path) == file_of(1000));
        CHECK(folder.count() == 2);  // and its lock
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

TEST_CASE("a directory that does not exist is an error at the start, and later a pause") {
    const MetricsFolder folder;
    const auto inner = folder.path / "textfile";
    const auto path = inner / "job.prom";
    CHECK(MetricsFile::open(path, page_with(0)).error().code == Errc::not_found);
    put_text(inner, "no directory");
    CHECK(MetricsFile::open(path, page_with(0)).error().code == Errc::invalid_argument);
    fs::remove(inner);
    fs::create_directory(inner);
    const auto file = opened(path, 0);
    fs::remove_all(inner);
    write_page(*file, 1);
    fs::create_directory(inner);
    write_page(*file, 2);
    CHECK(read_file(path) == file_of(2));
}

TEST_CASE("a page that cannot be written whole leaves the last one and no draft, and is no error at the start") {
    const MetricsFolder folder;
    const auto path = folder.path / "job.prom";
    std::optional<test::FileSizeLimit> limit(file_of(0).size() / 2);
    const auto file = opened(path, 0);
    CHECK_FALSE(fs::exists(path));
    limit.reset();
    write_page(*file, 1);
    CHECK(read_file(path) == file_of(1));
    limit.emplace(file_of(2).size() / 2);
    write_page(*file, 2);
    CHECK(read_file(path) == file_of(1));
    CHECK(folder.count() == 2);
    limit.reset();
    write_page(*file, 3);
    CHECK(read_file(path) == file_of(3));
    CHECK(folder.count() == 2);
}

TEST_CASE("an empty file, as a power cut leaves it, is nobody's") {
    const MetricsFolder folder;
    const auto path = folder.path / "job.prom";
    put_text(path, "");
    const auto file = opened(path, 1);
    CHECK(read_file(path) == file_of(1));
}

TEST_CASE("links are replaced and never followed, and a file of another program stays") {
    const MetricsFolder folder;
    const auto path = folder.path / "job.prom";
    const auto victim = folder.path / "victim";
    put_text(victim, "precious\n");
    fs::create_symlink(victim, folder.path / "job.prom.new");
    const auto file = opened(path, 0);
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
        const auto text = read_file(strange);
        {
            const auto refused = opened(strange, 0);
            CHECK(read_file(strange) == text);
            CHECK_FALSE(fs::exists(cat(strange.string(), ".lock")));
        }
        put_text(cat(strange.string(), ".lock"), "");
        MetricsFile::remove(strange, ::getpid());
        CHECK(fs::exists(fs::symlink_status(strange)));
    }
    CHECK(read_file(victim) == "precious\n");
}

TEST_CASE("the file of a killed agent is replaced, or removed by its guardian") {
    const MetricsFolder folder;
    const auto path = folder.path / "job.prom";
    const pid_t dead = 1;  // its number may be a living process' by now
    const auto leave = [&] {
        put_text(path, file_of(1, dead));
        put_text(folder.path / "job.prom.new", "# Wor");
        put_text(folder.path / "job.prom.lock", "");
    };
    leave();
    CHECK(opened(path, 2) != nullptr);
    CHECK(folder.count() == 0);
    leave();
    MetricsFile::remove(path, dead);
    CHECK(folder.count() == 0);
    leave();
    MetricsFile::remove(path, ::getpid());
    CHECK(read_file(path) == file_of(1, dead));
}

TEST_CASE("of two agents with one file and one number, one writes, and the other one after its end") {
    const MetricsFolder folder;
    const auto path = folder.path / "job.prom";
    auto first = opened(path, 1);
    auto second = opened(path, 2);
    CHECK(read_file(path) == file_of(1));
    write_page(*second, 3);
    MetricsFile::remove(path, ::getpid());
    CHECK(read_file(path) == file_of(1));
    opened(path, 4).reset();
    CHECK(read_file(path) == file_of(1));
    first.reset();
    CHECK(folder.count() == 0);
    write_page(*second, 5);
    CHECK(read_file(path) == file_of(5));
}

TEST_CASE("each worker has its series, and none for what it does not report") {
    agent::WorkerNumbers counts{.local_rank = 1, .rank = 9, .runs = true};
    counts.steps.last_step = 41;
    counts.steps.tally = {.first_step = 1, .step_count = 41, .step_ns = 2'500'000'000, .late_ns = 1'000'000};
    counts.steps.times.assign(step_time_bucket_count, {0});
    counts.steps.times[4].count = 40;
    const auto text =
        agent::worker_metrics(MetricsFormat::text, "a \"job\"", 3, {{.local_rank = 0, .rank = 8}, counts}, {{2, 97}});
    INFO(text);
    for (const char* line :
         {"muster_worker_info{job=\"a \\\"job\\\"\",local_rank=\"1\",rank=\"9\",round=\"3\"} 1\n",
          "muster_worker_running{job=\"a \\\"job\\\"\",local_rank=\"0\"} 0\n",
          "muster_worker_running{job=\"a \\\"job\\\"\",local_rank=\"1\"} 1\n",
          "muster_worker_step{job=\"a \\\"job\\\"\",local_rank=\"1\"} 41\n",
          "muster_worker_step_seconds_bucket{job=\"a \\\"job\\\"\",local_rank=\"1\",le=\"0.1\"} 40\n",
          "muster_worker_step_seconds_sum{job=\"a \\\"job\\\"\",local_rank=\"1\"} 2.5\n",
          "muster_worker_late_seconds_total{job=\"a \\\"job\\\"\",local_rank=\"1\"} 0.001\n",
          "muster_gpu_utilization_ratio{job=\"a \\\"job\\\"\",gpu=\"2\"} 0.97\n"})
        CHECK(text.find(line) != std::string::npos);
    CHECK(text.find("muster_worker_step{job=\"a \\\"job\\\"\",local_rank=\"0\"}") == std::string::npos);
    CHECK(text.find("muster_worker_step_seconds_count{job=\"a \\\"job\\\"\",local_rank=\"0\"}") == std::string::npos);
}
