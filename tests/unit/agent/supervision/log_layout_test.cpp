#include "agent/supervision/log_layout.h"

#include "tests/support/catch.h"

using namespace muster::agent;

namespace {

const std::string attempt = attempt_directory("/logs/job_x1y2z3w4", 2);

WorkerLogs logs_of(const LogChoices& choices, std::uint32_t local_rank = 1) {
    return worker_logs(choices, attempt, {"gpu07", "default", 8 + local_rank, local_rank});
}

/// A plan in a few words.
std::string show(const StreamPlan& plan) {
    std::string out;
    const auto add = [&](const std::string& word) { out += (out.empty() ? "" : " ") + word; };
    if (plan.inherit) add("inherit");
    if (plan.console) add("console");
    if (plan.terminal) add("terminal");
    if (plan.keep_tail) add("tail");
    if (!plan.file.empty()) add("file=" + plan.file);
    if (!plan.prefix.empty()) add("prefix=" + plan.prefix);
    if (!plan.filtered_file.empty()) add("filtered=" + plan.filtered_file);
    return out;
}

}  // namespace

TEST_CASE("directories and error files are where torchrun has them, whether or not anything is redirected") {
    const auto logs = logs_of({});
    CHECK(attempt == "/logs/job_x1y2z3w4/attempt_2");
    CHECK(logs.directory == attempt + "/1");
    CHECK(logs.error_file == attempt + "/1/error.json");
}

TEST_CASE("untouched output: stdout is inherited, stderr is forwarded and its end kept") {
    LogChoices choices;
    CHECK(show(logs_of(choices).stdout_plan) == "inherit");
    CHECK(show(logs_of(choices).stderr_plan) == "console tail");
    choices.stderr_is_terminal = true;
    CHECK(show(logs_of(choices).stderr_plan) == "console terminal tail");
}

TEST_CASE("a redirected stream goes to its file alone") {
    LogChoices choices;
    choices.redirects = {{}, {.out = true, .err = true}};
    CHECK(show(logs_of(choices).stdout_plan) == "file=" + attempt + "/1/stdout.log");
    CHECK(show(logs_of(choices).stderr_plan) == "tail file=" + attempt + "/1/stderr.log");
    CHECK(show(logs_of(choices, 0).stdout_plan) == "inherit");
    CHECK(show(logs_of(choices, 2).stdout_plan) == "inherit");
}

TEST_CASE("a tee'd stream goes to its file and, with the prefix, to the console") {
    LogChoices choices;
    choices.tee = {{}, {.out = true, .err = false}};
    CHECK(show(logs_of(choices).stdout_plan) == "console file=" + attempt + "/1/stdout.log prefix=[default1]:");
    CHECK(show(logs_of(choices).stderr_plan) == "console tail");
}

TEST_CASE("the prefix follows its template, and the host stands in its place on request") {
    LogChoices choices;
    choices.tee = {{}, {.out = true, .err = true}};
    choices.prefix_template = "<${role_name} $rank/${local_rank} ${x}> ";
    CHECK(logs_of(choices).stdout_plan.prefix == "<default 9/1 ${x}> ");
    choices.host_prefix = true;
    CHECK(logs_of(choices).stderr_plan.prefix == "[gpu07:9] ");
}

TEST_CASE("with the host prefix also streams that nobody tee'd are pumped") {
    LogChoices choices;
    choices.host_prefix = true;
    choices.stderr_is_terminal = true;
    CHECK(show(logs_of(choices).stdout_plan) == "console prefix=[gpu07:9] ");
    CHECK(show(logs_of(choices).stderr_plan) == "console tail prefix=[gpu07:9] ");
}

TEST_CASE("under the journal every stream is pumped, with its rank and round as fields") {
    LogChoices choices;
    choices.to_journal = true;
    CHECK(show(logs_of(choices).stdout_plan) == "console");
    CHECK(show(logs_of(choices).stderr_plan) == "console tail");
    CHECK(logs_of(choices).stderr_plan.journal_fields ==
          "MUSTER_ROUND=0\nMUSTER_RANK=9\nMUSTER_LOCAL_RANK=1\nMUSTER_STREAM=stderr\n");
}

TEST_CASE("a local rank that the filter leaves out keeps its files and loses the console") {
    LogChoices choices;
    choices.local_ranks_filter = {0};
    choices.tee = {{}, {.out = true, .err = false}};
    choices.stdout_filters = {"loss"};
    CHECK(show(logs_of(choices).stdout_plan) == "file=" + attempt + "/1/stdout.log");
    CHECK(show(logs_of(choices).stderr_plan) == "tail");
    CHECK(show(logs_of(choices, 0).stdout_plan) == "inherit");
}

TEST_CASE("filtered lines are copied from tee'd streams only, into one file for all") {
    LogChoices choices;
    choices.stdout_filters = {"loss"};
    choices.stderr_filters = {"warn"};
    choices.redirects = {{.out = true, .err = true}};
    choices.tee = {{}, {.out = true, .err = true}};
    CHECK(logs_of(choices, 0).stdout_plan.filters.empty());
    CHECK(logs_of(choices).stdout_plan.filters == std::vector<std::string>{"loss"});
    CHECK(logs_of(choices).stdout_plan.filtered_file == attempt + "/filtered_stdout.log");
    CHECK(logs_of(choices).stderr_plan.filtered_file == attempt + "/filtered_stderr.log");
}

TEST_CASE("--log-dir /dev/null: no files, no error file, and redirects and filters have no effect, as with torchrun") {
    LogChoices choices;
    choices.none = true;
    choices.redirects = {{}, {.out = true, .err = true}};
    choices.local_ranks_filter = {0};
    const auto logs = worker_logs(choices, "", {"gpu07", "default", 9, 1});
    CHECK(logs.directory.empty());
    CHECK(logs.error_file.empty());
    CHECK(show(logs.stdout_plan) == "inherit");
    CHECK(show(logs.stderr_plan) == "console tail");
    CHECK(attempt_directory("", 2).empty());
}

TEST_CASE("a folded console pumps every stream that is shown, under its rank") {
    LogChoices choices;
    choices.fold_among = 12;
    choices.redirects = {{}, {.out = true, .err = false}};
    choices.tee = {{}, {.out = false, .err = true}};
    const auto plain = worker_logs(choices, "/logs/attempt_0", {.role = "default", .rank = 4, .local_rank = 0});
    CHECK(plain.stdout_plan.console);
    CHECK_FALSE(plain.stdout_plan.inherit);
    CHECK(plain.stdout_plan.prefix == "[4]: ");
    REQUIRE(plain.stdout_plan.fold);
    CHECK(plain.stdout_plan.fold->rank == 4);
    CHECK(plain.stdout_plan.fold->among == 12);
    CHECK_FALSE(plain.stdout_plan.terminal);
    const auto other = worker_logs(choices, "/logs/attempt_0", {.role = "default", .rank = 5, .local_rank = 1});
    CHECK_FALSE(other.stdout_plan.fold);  // in its file only
    CHECK_FALSE(other.stdout_plan.console);
    CHECK(other.stderr_plan.fold);
    CHECK(other.stderr_plan.prefix == "[default1]:");

    choices.stdout_is_terminal = true;
    CHECK(worker_logs(choices, "", {.local_rank = 0}).stdout_plan.terminal);
    CHECK_FALSE(worker_logs(choices, "", {.local_rank = 0}).stderr_plan.terminal);
    choices.local_ranks_filter = {0, 3};
    CHECK(worker_logs(choices, "/logs/attempt_0", {.local_rank = 3}).stdout_plan.fold->among == 2);
    CHECK_FALSE(worker_logs(choices, "/logs/attempt_0", {.local_rank = 1}).stdout_plan.fold);
    choices.to_journal = true;
    CHECK_FALSE(worker_logs(choices, "/logs/attempt_0", {.local_rank = 3}).stdout_plan.fold);
    choices.to_journal = false;
    choices.fold_among = 0;
    CHECK_FALSE(worker_logs(choices, "", {.local_rank = 0}).stdout_plan.fold);
}
