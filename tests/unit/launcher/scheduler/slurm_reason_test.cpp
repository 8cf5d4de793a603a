#include "launcher/scheduler/slurm_reason.h"

#include "rendezvous/base/text/text.h"
#include "rendezvous/base/time.h"
#include "tests/support/catch.h"

namespace muster::launcher {

namespace {

using namespace std::chrono_literals;

/// As scontrol of Slurm 22.05 writes it, shortened.
std::string job(std::string_view state, std::string_view reason, std::string_view run, std::string_view limit,
                std::string_view preempted) {
    return cat("JobId=1 JobName=sh QOS=(null) JobState=", state, " Reason=", reason, " Requeue=1 RunTime=", run,
               " TimeLimit=", limit, " TimeMin=N/A PreemptEligibleTime=2026-11-22T12:53:20 PreemptTime=", preempted,
               " SuspendTime=None Partition=all \n");
}

}  // namespace

TEST_CASE("scontrol tells a time limit, a preemption and a scancel apart") {
    CHECK(slurm_reason(job("COMPLETING", "TimeLimit", "00:00:29", "00:01:00", "None")) ==
          "Slurm's time limit for this job (00:01:00) is over");
    CHECK(slurm_reason(job("COMPLETING", "None", "00:00:29", "UNLIMITED", "2026-11-22T12:53:20")) ==
          "Slurm preempted this job for another one");
    // With a grace time it runs on.
    CHECK(slurm_reason(job("RUNNING", "None", "00:00:29", "UNLIMITED", "2026-11-22T12:53:20")) ==
          "Slurm preempted this job for another one");
    CHECK(slurm_reason(job("COMPLETING", "None", "00:00:02", "UNLIMITED", "None")) ==
          "this job was cancelled (scancel)");
}

TEST_CASE("a notice ahead of the time limit is told from one that has nothing to do with it") {
    for (const auto* state : {"RUNNING", "SIGNALING"})
        CHECK(slurm_reason(job(state, "None", "23:58:08", "1-00:00:00", "None")) ==
              cat("this job's time limit in Slurm ends in ", describe(Duration(112s))));
    CHECK(slurm_reason(job("RUNNING", "None", "1-00:00:09", "1-00:00:00", "None")) ==
          cat("this job's time limit in Slurm ends in ", describe(Duration::zero())));
    // --signal=USR1@65535 is the earliest that there is.
    const auto early = slurm_reason(job("RUNNING", "None", "00:00:10", "08:09:00", "None"));
    CHECK(early.find("the notice of --signal if it was requested this early") != std::string::npos);
    CHECK(slurm_reason(job("RUNNING", "None", "00:00:10", "20:09:00", "None"))
              .starts_with("neither a preemption by Slurm"));
    CHECK(slurm_reason(job("RUNNING", "None", "00:00:10", "UNLIMITED", "N/A")) ==
          "neither a preemption by Slurm nor a time limit (this job has none): a user sent it");
}

TEST_CASE("a task of an array asks for itself, and of several jobs the first one counts") {
    CHECK(slurm_job_name({{"SLURM_JOB_ID", "4711"}}) == "4711");
    CHECK(slurm_job_name({{"SLURM_JOB_ID", "9"}, {"SLURM_ARRAY_JOB_ID", "9"}, {"SLURM_ARRAY_TASK_ID", "5"}}) == "9_5");
    CHECK(slurm_job_name({}).empty());
    const auto ours = job("RUNNING", "None", "23:58:08", "1-00:00:00", "None");
    CHECK(slurm_reason(ours + job("RUNNING", "TimeLimit", "00:01:00", "00:01:00", "None")) == slurm_reason(ours));
    CHECK(slurm_reason(ours + job("RUNNING", "None", "0", "1", "2026-11-22T12:53:20")) == slurm_reason(ours));
}

TEST_CASE("without a word of scontrol's, the end that Slurm has told is compared with the clock") {
    const Environment until{{"SLURM_JOB_END_TIME", "1000000"}};
    CHECK(slurm_reason(until, 1000020s) == "Slurm's time limit for this job is over");
    CHECK(slurm_reason(until, 999'996s) == "Slurm's time limit for this job is over");
    CHECK(slurm_reason(until, 999'900s) == cat("this job's time limit in Slurm ends in ", describe(Duration(100s))));
    CHECK(slurm_reason(until, 990'000s).find("a preemption by Slurm, scancel, or the notice of") != std::string::npos);
    CHECK(slurm_reason(until, 900'000s).ends_with("a preemption by Slurm, scancel"));
    CHECK(slurm_reason(Environment{}, 1s).empty());
    CHECK(slurm_reason(Environment{{"SLURM_JOB_END_TIME", "soon"}}, 1s).empty());
}

TEST_CASE("what is no job of scontrol's says nothing") {
    for (const auto* text : {"", "note start scontrol: No such file or directory\n", "slurm_load_jobs error: x",
                             "JobState=", "JobState=PENDING Reason=Priority"})
        CHECK(slurm_reason(text).empty());
}

}  // namespace muster::launcher
