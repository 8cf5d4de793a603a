#include "agent/supervision/failure_report.h"

#include <cerrno>

#include "tests/support/catch.h"

using namespace muster;
using namespace muster::agent;

namespace {

const ReportContext context{"job7", "gpu01", "muster", 3};

Failure killed_worker() {
    Failure failure;
    failure.kind = FailureKind::killed;
    failure.host = "gpu07";
    failure.role = "default";
    failure.rank = 5;
    failure.local_rank = 1;
    failure.pid = 4242;
    failure.end = Signaled{9, false};
    failure.log_directory = "/logs/1";
    return failure;
}

JobFailed failed(std::optional<Failure> first, std::uint32_t others, std::uint32_t stopped,
                 std::vector<FailureGroup> groups = {}) {
    return {native::JobEnded{native::JobOutcome::failed,
                             Verdict{3, std::move(first), others, stopped, std::move(groups)}, 3,
                             "rank 5 failed and no restart is left (3 of 3 used)"}};
}

}  // namespace

TEST_CASE("the report tells the first failure in full and counts the rest") {
    CHECK(report(failed(killed_worker(), 2, 5), context) ==
          "muster: job job7 failed: rank 5 failed and no restart is left (3 of 3 used)\n"
          "  first failure: rank 5 (local rank 1) on gpu07, pid 4242: signal 9 (SIGKILL) - killed from outside, "
          "usually because memory ran out: see dmesg and the memory limit\n"
          "  logs: /logs/1 on gpu07\n"
          "  2 others failed after it\n"
          "  5 workers were stopped by muster because of it\n");
}

TEST_CASE("the last lines of stderr are shown, and how many came before") {
    Failure failure = killed_worker();
    failure.host = "gpu01";
    failure.end = Exited{3};
    failure.log_directory.clear();
    failure.stderr_tail = "one\ntwo\nthree\r\nfour\n\n";
    CHECK(report(failed(failure, 1, 1), context) ==
          "muster: job job7 failed: rank 5 failed and no restart is left (3 of 3 used)\n"
          "  first failure: rank 5 (local rank 1) on gpu01 (this host), pid 4242: exit code 3\n"
          "  last lines of its stderr:\n"
          "    (1 line before)\n"
          "    two\n"
          "    three\n"
          "    four\n"
          "  1 other failed after it\n"
          "  1 worker was stopped by muster because of it\n");
}

TEST_CASE("control bytes of a worker's last lines are escaped, and of a progress bar the last state is shown") {
    Failure failure = killed_worker();
    failure.end = Exited{3};
    failure.log_directory.clear();
    failure.stderr_tail = "\033[31mred\033[0m\007\n  10%\r  50%\r 100%\r\n\033]0;title\007h\xc3\xa4lt\n";
    CHECK(report(failed(failure, 0, 0), context) ==
          "muster: job job7 failed: rank 5 failed and no restart is left (3 of 3 used)\n"
          "  first failure: rank 5 (local rank 1) on gpu07, pid 4242: exit code 3\n"
          "  last lines of its stderr:\n"
          "    \\x1b[31mred\\x1b[0m\\x07\n"
          "     100%\n"
          "    \\x1b]0;title\\x07h\xc3\xa4lt\n");
    failure.message = "\033[2Jnot\nthe end";
    failure.cause.text = "said \x9b";
    const auto text = report(failed(failure, 0, 0), context);
    CHECK(text.find("    \\x1b[2Jnot\n") != std::string::npos);
    CHECK(text.find(" - said \\x9b\n") != std::string::npos);
}

TEST_CASE("last lines that are not UTF-8 are shown, escaped") {
    Failure failure = killed_worker();
    failure.end = Exited{3};
    failure.log_directory.clear();
    failure.stderr_tail =
        "Gr\xfc\xdf"
        "e\n";
    CHECK(report(failed(failure, 0, 0), context)
              .ends_with("  last lines of its stderr:\n"
                         "    Gr\\xfc\\xdf"
                         "e\n"));
    failure.stderr_tail = "\xc3\xa4 cut before the last lines that are shown: \xe2\x82\n1\n2\n3\n";
    CHECK(report(failed(failure, 0, 0), context).ends_with("    3\n"));
}

TEST_CASE("the error file's message is shown once, not again from stderr") {
    Failure failure = killed_worker();
    failure.end = Exited{1};
    failure.log_directory.clear();
    failure.role = "reader";
    failure.error_file = "/logs/1/error.json";
    failure.wall_time_s = 1'764'000'249;
    failure.message = "Traceback\n  File \"t.py\"\nValueError: bad batch\n";
    failure.stderr_tail = "[rank5]: Traceback\n[rank5]: ValueError: bad batch\n";
    CHECK(report(failed(failure, 0, 0), context) ==
          "muster: job job7 failed: rank 5 failed and no restart is left (3 of 3 used)\n"
          "  first failure: rank 5 (local rank 1) on gpu07, pid 4242: exit code 1\n"
          "  role: reader\n"
          "  at 2025-11-24 16:04:09 UTC by its host's clock\n"
          "  error file: /logs/1/error.json on gpu07\n"
          "    Traceback\n"
          "      File \"t.py\"\n"
          "    ValueError: bad batch\n");
}

TEST_CASE("a time that no calendar has, from another host, is an unknown one") {
    Failure failure = killed_worker();
    failure.wall_time_s = 9'300'000'000;
    CHECK(report(failed(failure, 0, 0), context).find("  at 2264-09-14 ") != std::string::npos);
    failure.wall_time_s = INT64_MAX;
    CHECK(report(failed(failure, 0, 0), context).find("  at an unknown time by its host's clock") != std::string::npos);
}

TEST_CASE("a worker for which the system had no process says what to raise") {
    Failure failure = killed_worker();
    failure.pid = 0;
    failure.log_directory.clear();
    failure.end = NotStarted{EAGAIN, "fork beyond pids.max = 4"};
    const auto text = report(failed(failure, 0, 0), context);
    CHECK(text.find("not started: fork beyond pids.max = 4: Resource temporarily unavailable - raise that limit "
                    "(ulimit -u, or pids.max of the control group), or start fewer workers here") != std::string::npos);
}

TEST_CASE("words that come from no error file are not said to be one's") {
    Failure failure = killed_worker();
    failure.log_directory.clear();
    failure.end = NotStarted{0, "prepare the worker"};
    failure.message = "make the log directory /x: No space left on device";
    const auto text = report(failed(failure, 0, 0), context);
    CHECK(text.find("  why:\n    make the log directory /x: No space left on device\n") != std::string::npos);
}

TEST_CASE("a node whose guardian was killed has failed, and is not lost") {
    Failure failure;
    failure.kind = FailureKind::killed;
    failure.host = "gpu01";
    failure.end = Signaled{9, false};
    failure.message = "the guardian process of this node's workers is gone";
    CHECK(report(failed(failure, 0, 1), context) ==
          "muster: job job7 failed: rank 5 failed and no restart is left (3 of 3 used)\n"
          "  first failure: node gpu01 (this host) failed\n"
          "    the guardian process of this node's workers is gone\n"
          "  1 worker was stopped by muster because of it\n");
}

TEST_CASE("a lost node is named as a node") {
    Failure failure;
    failure.kind = FailureKind::node_lost;
    failure.host = "gpu07";
    failure.message = "silent for 5 s";
    CHECK(report(failed(failure, 0, 7), context) ==
          "muster: job job7 failed: rank 5 failed and no restart is left (3 of 3 used)\n"
          "  first failure: node gpu07 was lost\n"
          "    silent for 5 s\n"
          "  7 workers were stopped by muster because of it\n");
}

TEST_CASE("a worker's own 75 to 78 is said to be the worker's") {
    Failure failure = killed_worker();
    failure.log_directory.clear();
    for (const int code : {75, 78}) {
        failure.end = Exited{code};
        const auto text = report(failed(failure, 0, 0), context);
        CHECK(text.find("the worker's own exit code, passed through: " + std::to_string(code)) != std::string::npos);
    }
    failure.end = Exited{77};
    CHECK(report(failed(failure, 0, 0), context).find("do not start it again") != std::string::npos);
}

TEST_CASE("workers that saved and left have not failed") {
    Failure failure = killed_worker();
    failure.end = Exited{76};
    auto end = failed(failure, 0, 3);
    end.report.why = "rank 3 on gpu07 saved and left (exit code 76)";
    CHECK(report(end, context) ==
          "muster: job job7 is not over: rank 3 on gpu07 saved and left (exit code 76); start it again to continue\n");
}

TEST_CASE("every other ending is one line, and success is silent") {
    CHECK(report(JobSucceeded{}, context).empty());
    CHECK(report(Cancelled{15}, context) == "muster: job job7: stopped by SIGTERM; this node has left\n");
    CHECK(report(Cancelled{15, "rank 2 had not ended"}, context) ==
          "muster: job job7: stopped by SIGTERM; this node has left; rank 2 had not ended\n");
    CHECK(report(NoRendezvous{"no answer from head:29400 in 10 min"}, context) ==
          "muster: job job7: no rendezvous: no answer from head:29400 in 10 min\n");
    CHECK(report(NoRendezvous{"no round within 5 s", "round 0 ended: gpu02 was lost"}, context) ==
          "muster: job job7: no rendezvous: no round within 5 s\n  before: round 0 ended: gpu02 was lost\n");
    CHECK(report(JoinRefused{{native::RefusalReason::terms_differ, "the job has max 2, this node says 3"}}, context) ==
          "muster: job job7: this node was refused: the job has max 2, this node says 3\n");
    CHECK(report(AgentFailed{"the guardian is gone"}, context) == "muster: job job7: the guardian is gone\n");
    CHECK(report(SetUpFailed{"make /l: no"}, context) == "muster: job job7: make /l: no\n");
    CHECK(report(Drained{"maintenance"}, context) ==
          "muster: job job7: this node was drained and has left the job: maintenance\n");
}

TEST_CASE("a node that has not run its program says so at the end of the job, whatever the job's name is") {
    auto spare = context;
    spare.entry = "train.py";
    spare.job_is_named = false;
    CHECK(report(JobSucceeded{NodePart::spare}, spare) ==
          "muster: job 'job7' succeeded; this node was a spare and did not run train.py\n");
    CHECK(report(JobSucceeded{NodePart::late}, spare) ==
          "muster: job 'job7' succeeded; this node joined after its end and did not run train.py\n");
    const auto lost = report(JobFailed{{}, NodePart::spare}, spare);
    CHECK(lost.ends_with("\n  this node was a spare and did not run train.py\n"));
}

TEST_CASE("a job without a name is not called by an id that tells nobody anything") {
    ReportContext unnamed = context;
    unnamed.job_is_named = false;
    CHECK(report(Cancelled{15}, unnamed) == "muster: stopped by SIGTERM; this node has left\n");
    CHECK(report(NoRendezvous{"no answer"}, unnamed) == "muster: no rendezvous: no answer\n");
    CHECK(report(failed(killed_worker(), 0, 0), unnamed)
              .starts_with("muster: the job failed: rank 5 failed and no restart is left (3 of 3 used)\n"));
    auto end = failed(killed_worker(), 0, 0);
    end.report.verdict.first->end = Exited{76};
    CHECK(report(end, unnamed).starts_with("muster: the job is not over: "));
}

TEST_CASE("a known cause is told in the place of a guess, with the core dump") {
    Failure failure = killed_worker();
    failure.log_directory.clear();
    failure.cause = {CauseKind::out_of_memory, "the kernel killed it because memory ran out; raise it", "/cores/c.1"};
    CHECK(
        report(failed(failure, 0, 0), context) ==
        "muster: job job7 failed: rank 5 failed and no restart is left (3 of 3 used)\n"
        "  first failure: rank 5 (local rank 1) on gpu07, pid 4242: signal 9 (SIGKILL) - the kernel killed it because "
        "memory ran out; raise it\n"
        "  core dump: /cores/c.1 on gpu07\n");
}

TEST_CASE("the same error of many ranks is one line") {
    Failure failure = killed_worker();
    failure.log_directory.clear();
    failure.end = Exited{1};
    failure.message = "ImportError: x";
    const std::vector<FailureGroup> groups{{FailureKind::worker_error, "exit code 1 - ImportError: x", "0-7,12", 9},
                                           {FailureKind::communication_error, "exit code 1 - peer gone", "9", 1}};
    CHECK(report(failed(failure, 9, 0, groups), context) ==
          "muster: job job7 failed: rank 5 failed and no restart is left (3 of 3 used)\n"
          "  first failure: rank 5 (local rank 1) on gpu07, pid 4242: exit code 1\n"
          "  why:\n"
          "    ImportError: x\n"
          "  9 others failed after it\n"
          "    ranks 0-7,12 (9 workers): the same error\n"
          "    rank 9: exit code 1 - peer gone\n");
}

TEST_CASE("a failure of all ranks before their first step is said to be no node's") {
    Failure failure = killed_worker();
    failure.end = Exited{1};
    failure.message = "ImportError: x";
    failure.early = true;
    const auto is_said = [&](std::uint32_t others, std::uint32_t stopped, std::vector<FailureGroup> groups) {
        return report(failed(failure, others, stopped, std::move(groups)), context)
                   .find("  every rank failed with this error ") != std::string::npos;
    };
    const FailureGroup all{FailureKind::worker_error, "exit code 1 - ImportError: x", "0-7", 8};
    CHECK(is_said(7, 0, {all}));
    CHECK_FALSE(is_said(7, 1, {all}));  // one went on until it was stopped
    CHECK_FALSE(is_said(8, 0, {all, {FailureKind::worker_error, "exit code 1 - other", "8", 1}}));
    CHECK_FALSE(is_said(0, 0, {{FailureKind::worker_error, "exit code 1 - ImportError: x", "0", 1}}));
    failure.early = false;
    CHECK_FALSE(is_said(7, 0, {all}));
}
