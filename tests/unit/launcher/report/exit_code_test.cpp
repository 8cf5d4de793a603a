#include "launcher/report/exit_code.h"

#include <cerrno>
#include <fstream>
#include <sstream>

#include "launcher/options/options.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::launcher;

namespace {

agent::JobFailed failed_with(WorkerEnd end, FailureKind kind = FailureKind::worker_error) {
    agent::JobFailed failed;
    failed.report.outcome = native::JobOutcome::failed;
    failed.report.verdict.first = Failure{};
    failed.report.verdict.first->kind = kind;
    failed.report.verdict.first->end = end;
    return failed;
}

}  // namespace

TEST_CASE("each kind of end has its exit code, and torchrun's style knows 1 alone") {
    struct Case {
        agent::Ending ending;
        int expected;
    };
    agent::JobFailed without_cause;
    const std::vector<Case> cases{
        {agent::JobSucceeded{}, 0},
        {failed_with(Exited{7}), 7},
        {failed_with(Exited{76}), 76},
        {failed_with(Exited{256 + 3}), 3},
        {failed_with(Exited{0}), 1},
        {failed_with(Signaled{9, false}, FailureKind::killed), 137},
        {failed_with(NotStarted{ENOENT, "execvpe"}, FailureKind::killed), 127},
        {failed_with(NotStarted{EACCES, "execvpe"}, FailureKind::killed), 126},
        {failed_with(Exited{0}, FailureKind::node_lost), 75},
        {without_cause, 1},
        {agent::Cancelled{15}, 143},
        {agent::NoRendezvous{"late"}, 75},
        {agent::JoinRefused{}, 78},
        {agent::Drained{"maintenance"}, 76},
        {agent::AgentFailed{"bug"}, 70},
        {agent::SetUpFailed{"port taken"}, 78},
    };
    for (const auto& one : cases) {
        CHECK(exit_code(one.ending, ExitCodeStyle::muster) == one.expected);
        CHECK(exit_code(one.ending, ExitCodeStyle::torchrun) == (one.expected == 0 ? 0 : 1));
    }
    CHECK(exit_code(agent::JobSucceeded{}, ExitCodeStyle::muster, "step 9 is lost") == exit_codes::internal);
    CHECK(exit_code(agent::JobSucceeded{}, ExitCodeStyle::torchrun, "step 9 is lost") == 1);
    CHECK(exit_code(failed_with(Exited{7}), ExitCodeStyle::muster, "step 9 is lost") == 7);
    CHECK(exit_code(exit_codes::usage, ExitCodeStyle::torchrun) == 2);
    CHECK(exit_code(exit_codes::not_found, ExitCodeStyle::torchrun) == 1);
    CHECK(exit_code(exit_codes::not_found, ExitCodeStyle::muster) == 127);
}

TEST_CASE("--help and the guide show the table of the code") {
    std::stringstream guide;
    guide << std::ifstream(GUIDE_FILE).rdbuf();
    const auto help = std::get<ShowText>(parse_options({"--help"}, {})).text;
    for (const auto& row : exit_code_table()) {
        INFO(row.code);
        CHECK(guide.str().find(cat("\n| ", row.code, " | ", row.meaning, " | ")) != std::string::npos);
        CHECK(help.find(cat("\n  ", row.code, ' ')) != std::string::npos);
        CHECK(help.find(cat(row.meaning, '\n')) != std::string::npos);
    }
}
