#include "launcher/report_writer.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "rendezvous/base/text.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::launcher;

namespace {

struct Folder {
    Folder() { REQUIRE(::mkdtemp(path) != nullptr); }
    ~Folder() { std::filesystem::remove_all(path); }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    char path[32] = "/tmp/muster-report-XXXXXX";
};

std::string read(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("host, job and pid stand in the report's name, and nothing else does") {
    const ReportNames names{.host = "gpu01", .job = "a/b", .pid = 42};
    CHECK(report_path("/r/%h-%j-%p.json", names) == "/r/gpu01-a_b-42.json");
    CHECK(report_path("100%%", names) == "100%");
    CHECK_FALSE(report_path("%n", names).has_value());
    CHECK_FALSE(report_path("r%", names).has_value());
}

TEST_CASE("a report replaces the one before and leaves nothing else") {
    const Folder folder;
    const auto path = cat(folder.path, "/report.json");
    REQUIRE(check_report_path(path).has_value());
    CHECK_FALSE(std::filesystem::exists(path));
    REQUIRE(write_report(path, "one\n").has_value());
    REQUIRE(write_report(path, "two\n").has_value());
    CHECK(read(path) == "two\n");
    CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 1);
}

TEST_CASE("a report that cannot be written is refused with the path and the reason") {
    const Folder folder;
    const auto nowhere = check_report_path(cat(folder.path, "/missing/report.json"));
    REQUIRE(nowhere.has_error());
    CHECK(nowhere.error().context.find("/missing/report.json: No such file or directory") != std::string::npos);
    const auto directory = check_report_path(folder.path);
    REQUIRE(directory.has_error());
    CHECK(directory.error().context.find("it is a directory") != std::string::npos);
    CHECK(write_report(cat(folder.path, "/missing/report.json"), "x").has_error());
}
