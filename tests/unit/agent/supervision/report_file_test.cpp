#include "agent/supervision/report_file.h"

#include <nlohmann/json.hpp>

#include "rendezvous/base/text/printable.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::agent;
using nlohmann::json;

namespace {

const ReportContext at_gpu01{"job7", "gpu01", "muster", 3};

native::JobEnded failed_end() {
    Failure first;
    first.kind = FailureKind::killed;
    first.host = "gpu07";
    first.rank = 5;
    first.local_rank = 1;
    first.pid = 4242;
    first.end = Signaled{9, false};
    first.cause = {CauseKind::out_of_memory, "memory ran out", ""};
    first.stderr_tail = "half a character: \xe2\x82";
    native::JobEnded end;
    end.outcome = native::JobOutcome::failed;
    end.why = "no restart is left";
    end.restart_count = 2;
    end.verdict = {
        3, first, 2, 4, {{FailureKind::killed, "signal 9", "5", 1}, {FailureKind::worker_error, "e", "0-1", 2}}};
    return end;
}

json parsed(const Ending& ending, int code = 1) {
    const auto text = report_file(ending, at_gpu01, code, "words\n");
    CHECK(text.ends_with("}\n"));
    return json::parse(text);
}

}  // namespace

TEST_CASE("the report file holds the verdict as fields") {
    const auto file = parsed(JobFailed{failed_end()}, 137);
    CHECK(file["format"] == 1);
    CHECK(file["job"] == "job7");
    CHECK(file["host"] == "gpu01");
    CHECK(file["outcome"] == "failed");
    CHECK(file["exit_code"] == 137);
    CHECK(file["round"] == 3);
    CHECK(file["first"]["rank"] == 5);
    CHECK(file["first"]["host"] == "gpu07");
    CHECK(file["first"]["end"]["name"] == "SIGKILL");
    CHECK(file["first"]["cause"]["kind"] == "out_of_memory");
    CHECK(file["first"]["stderr_tail"].get<std::string>().starts_with("half a character: "));
    CHECK(file["groups"].size() == 2);
    CHECK(file["groups"][1]["ranks"] == "0-1");
    CHECK(file["other_failure_count"] == 2);
    CHECK(file["stopped_count"] == 4);
    CHECK(file["alike_at_start"] == false);
    CHECK(file["text"] == "words\n");
}

TEST_CASE("whatever bytes a worker has written, the file is JSON and UTF-8") {
    auto end = failed_end();
    auto& first = *end.verdict.first;
    first.message =
        "\033[31m\xff\xfe"
        "\x9b\r";
    first.cause.text = first.error_file = first.message;
    end.verdict.groups[0].error = std::string("\0\xc3", 2);
    const auto text = report_file(JobFailed{end}, at_gpu01, 1, report(JobFailed{end}, at_gpu01));
    CHECK(is_utf8(text));
    const auto file = json::parse(text);
    CHECK(file["first"]["message"].get<std::string>().starts_with("\033[31m\xef\xbf\xbd"));
    CHECK(file["text"].get<std::string>().find('\033') == std::string::npos);
}

TEST_CASE("every ending has its outcome") {
    CHECK(parsed(JobSucceeded{}, 0)["outcome"] == "succeeded");
    CHECK(parsed(JobSucceeded{}, 0)["why"] == "");
    CHECK(parsed(JobSucceeded{}, 0)["part"] == "ran");
    CHECK(parsed(JobSucceeded{NodePart::spare}, 0)["part"] == "spare");
    CHECK(parsed(JobSucceeded{NodePart::spare}, 0)["why"] == "this node was a spare and did not run its program");
    CHECK(parsed(JobFailed{failed_end(), NodePart::late})["part"] == "late");
    auto loop = failed_end();
    loop.outcome = native::JobOutcome::crash_loop;
    CHECK(parsed(JobFailed{loop})["outcome"] == "crash_loop");
    CHECK(parsed(Cancelled{15})["outcome"] == "cancelled");
    CHECK(parsed(Cancelled{15})["why"] == "stopped by SIGTERM");
    CHECK(parsed(Cancelled{15, "rank 2 had not ended"})["why"] == "stopped by SIGTERM; rank 2 had not ended");
    CHECK(parsed(NoRendezvous{"w"})["outcome"] == "no_rendezvous");
    CHECK_FALSE(parsed(NoRendezvous{"w"}).contains("last_end"));
    CHECK(parsed(NoRendezvous{"w", "round 0 ended"})["last_end"] == "round 0 ended");
    CHECK(parsed(JoinRefused{{native::RefusalReason::limit, "w"}})["outcome"] == "refused");
    CHECK(parsed(AgentFailed{"w"})["outcome"] == "agent_failed");
    CHECK(parsed(SetUpFailed{"w"})["outcome"] == "set_up_failed");
    CHECK(parsed(Drained{"w"})["why"] == "w");
    CHECK(json::parse(report_file(at_gpu01, 78, "port taken"))["outcome"] == "not_launched");
}

TEST_CASE("success with a step that is not on the disk is no success, and both reports name it") {
    ReportContext context{.job = "job7", .host = "gpu01", .unsaved = "step 9 is lost: no room; step 5 is safe in /c"};
    const auto file = json::parse(report_file(JobSucceeded{}, context, 70, "words\n"));
    CHECK(file["outcome"] == "unsaved");
    CHECK(file["why"] == context.unsaved);
    CHECK(file["unsaved"] == context.unsaved);
    const auto failed = json::parse(report_file(JobFailed{failed_end()}, context, 137, "words\n"));
    CHECK(failed["outcome"] == "failed");
    CHECK(failed["unsaved"] == context.unsaved);
    CHECK_FALSE(parsed(JobSucceeded{}, 0).contains("unsaved"));
    const auto last = "  checkpoint: " + context.unsaved + "\n";
    CHECK(report(JobSucceeded{}, context).starts_with("muster: job job7: every worker exited 0, but the newest step"));
    CHECK(report(JobSucceeded{}, context).ends_with(last));
    CHECK(report(JobFailed{failed_end()}, context).ends_with(last));
}

TEST_CASE("standby processes and their memory are in the report of a node that had some") {
    const ReportContext context{.job = "job7", .host = "gpu01", .standbys = {8, 1845493760}};
    const auto file = json::parse(report_file(JobSucceeded{}, context, 0, ""));
    CHECK(file["standbys"] == json{{"count", 8}, {"memory_bytes", 1845493760}});
    CHECK_FALSE(parsed(JobSucceeded{}, 0).contains("standbys"));
}

TEST_CASE("a lost node has no end and no rank, an exit has its code, a start that failed its errno") {
    auto end = failed_end();
    auto& first = *end.verdict.first;
    first.kind = FailureKind::node_lost;
    first.rank = -1;
    const auto lost = parsed(JobFailed{end})["first"];
    CHECK(lost["kind"] == "node_lost");
    CHECK_FALSE(lost.contains("rank"));
    CHECK_FALSE(lost.contains("end"));
    first = *failed_end().verdict.first;
    first.end = Exited{7};
    CHECK(parsed(JobFailed{end})["first"]["end"]["code"] == 7);
    first.end = NotStarted{2, "execve"};
    CHECK(parsed(JobFailed{end})["first"]["end"]["errno"] == 2);
}
