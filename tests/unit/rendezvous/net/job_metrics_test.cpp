#include "rendezvous/dialects/job_metrics.h"

#include <algorithm>

#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/server.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::rendezvous;

namespace {

JobSummary job(std::string id) {
    JobSummary job{
        .id = std::move(id), .phase = "running", .nodes = {{"running", 2}}, .ranks = {}, .time = {}, .counters = {}};
    job.nodes_max = 4;
    job.restarts_used = 1;
    job.restarts_left = 2;
    job.time.buckets[static_cast<std::size_t>(TimeBucket::stepping)] = 90s;
    job.time.wall_clock = 100s;
    job.time.rank_seconds[static_cast<std::size_t>(TimeBucket::stepping)] = 720;
    job.time.scaled_down = 800;
    job.counters.rounds["start"] = 1;
    return job;
}

std::string page_of(const std::vector<JobSummary>& jobs) {
    MetricsPage page(MetricsFormat::text);
    add_job_metrics(page, jobs);
    return page.finish();
}

bool has(const std::string& page, std::string_view line) {
    const auto lines = split(page, '\n');
    return std::ranges::find(lines, line) != lines.end();
}

}  // namespace

TEST_CASE("a job has its series, and none for what is unknown") {
    const auto page = page_of({job("train")});
    for (const char* line :
         {"muster_jobs 1", "muster_jobs_left_out 0", "muster_job_phase{job=\"train\",phase=\"running\"} 1",
          "muster_job_nodes{job=\"train\",state=\"running\"} 2",
          "muster_job_nodes_wanted{job=\"train\",bound=\"max\"} 4",
          "muster_job_rounds_total{job=\"train\",reason=\"start\"} 1", "muster_job_restarts_total{job=\"train\"} 1",
          "muster_job_restarts_left{job=\"train\"} 2",
          "muster_job_time_seconds_total{job=\"train\",bucket=\"stepping\"} 90",
          "muster_job_rank_seconds_total{job=\"train\",bucket=\"stepping\"} 720",
          "muster_job_rank_seconds_total{job=\"train\",bucket=\"scaled_down\"} 800",
          "muster_job_goodput_ratio{job=\"train\"} 0.9"}) {
        INFO(line << " in\n" << page);
        CHECK(has(page, line));
    }
    for (const char* unknown :
         {"phase=\"over\"", "state=\"lost\"", "bucket=\"hung\"", "muster_job_step{", "muster_job_samples_per_second{",
          "muster_job_exposed_communication_ratio{", "muster_job_straggler_cost_ratio{"})
        CHECK(page.find(unknown) == std::string::npos);
    CHECK(page.find("muster_job_failures_total{") == std::string::npos);
}

TEST_CASE("a job that waits has no running node, and one of one size has times of ranks, too") {
    auto fixed = job("train");
    fixed.nodes_min = fixed.nodes_max;
    fixed.nodes = {{"waiting", 1}};
    const auto page = page_of({fixed});
    CHECK(has(page, "muster_job_rank_seconds_total{job=\"train\",bucket=\"stepping\"} 720"));
    CHECK(has(page, "muster_job_nodes{job=\"train\",state=\"running\"} 0"));
}

TEST_CASE("a job's steps are counters and a histogram, whose buckets contain the smaller ones") {
    auto train = job("train");
    train.steps.step_count = 11;
    train.steps.sample_count = 352;
    train.steps.step_time = 1500ms;
    train.steps.times[2] = 9;
    train.steps.times[6] = 1;
    train.steps.exposed = 0.25;
    train.steps.straggler_cost = 0;
    train.steps.samples_per_second = 213.5;
    train.checkpoint_step = 9;
    train.checkpoints = {{"memory", 9, 1'000'000s + 500ms}, {"shared", 5, {}}};
    train.ranks = {{"training", 7}, {"section", 1}};
    const auto page = page_of({train});
    for (const char* line :
         {"# TYPE muster_job_step_seconds histogram", "muster_job_steps_total{job=\"train\"} 11",
          "muster_job_samples_total{job=\"train\"} 352", "muster_job_step_seconds_bucket{job=\"train\",le=\"0.003\"} 0",
          "muster_job_step_seconds_bucket{job=\"train\",le=\"0.01\"} 9",
          "muster_job_step_seconds_bucket{job=\"train\",le=\"1.0\"} 10",
          "muster_job_step_seconds_bucket{job=\"train\",le=\"30.0\"} 10",
          "muster_job_step_seconds_bucket{job=\"train\",le=\"+Inf\"} 10",
          "muster_job_step_seconds_sum{job=\"train\"} 1.5", "muster_job_step_seconds_count{job=\"train\"} 10",
          "muster_job_samples_per_second{job=\"train\"} 213.5",
          "muster_job_checkpoint_step{job=\"train\",tier=\"newest\"} 9",
          "muster_job_checkpoint_step{job=\"train\",tier=\"shared\"} 5",
          "muster_job_checkpoint_timestamp_seconds{job=\"train\",tier=\"memory\"} 1000000.5",
          "muster_job_ranks{job=\"train\",state=\"training\"} 7",
          "muster_job_exposed_communication_ratio{job=\"train\"} 0.25",
          "muster_job_straggler_cost_ratio{job=\"train\"} 0"}) {
        INFO(line << " in\n" << page);
        CHECK(has(page, line));
    }
}

TEST_CASE("a heartbeat is as late as the silence exceeds its pace, and the longest silence is known") {
    Server server({}, Instant(1h));
    server.step(ConnectionAccepted{1, "10.0.0.1"}, Instant(2h));
    native::Hello hello;
    hello.job = "train";
    hello.node = {"gpu01", 4711, 1};
    server.step(Received{1, hello}, Instant(2h));
    native::Join join;
    join.terms = {.nodes_min = 1, .nodes_max = 1, .last_call_ms = 1, .lease_ms = 5000, .lost_timeout_ms = 60000};
    join.slots = 1;
    join.role = "default";
    join.addresses = {"10.0.0.1"};
    server.step(Received{1, join}, Instant(2h));
    const auto pace = native::fastest_heartbeat(5s);
    server.step(Received{1, native::Ping{}}, Instant(2h) + pace);
    server.step(Received{1, native::Ping{}}, Instant(2h) + 2 * pace + 250ms);
    const auto& late = server.heartbeat_lateness();
    CHECK(late.counts()[0] == 1);
    CHECK(late.counts()[5] == 1);  // 0.1 to 0.3 s
    CHECK(late.sum_seconds() == 0.25);
    const auto jobs = server.summaries(Instant(2h) + 2 * pace + 1250ms);
    REQUIRE(jobs.size() == 1);
    CHECK(jobs[0].silence_max == 1s);
}

TEST_CASE("beyond the maximum jobs are left out and counted") {
    std::vector<JobSummary> jobs;
    for (int i = 0; i < 250; ++i) jobs.push_back(job(cat("job-", i)));
    const auto page = page_of(jobs);
    CHECK(has(page, "muster_jobs 250"));
    CHECK(has(page, "muster_jobs_left_out 50"));
    CHECK(has(page, "muster_job_restarts_total{job=\"job-199\"} 1"));
    CHECK_FALSE(has(page, "muster_job_restarts_total{job=\"job-200\"} 1"));
}

TEST_CASE("a job that is over stays for an hour, unless it runs again") {
    PastJobs past;
    past.add(job("old"), Instant(0s));
    past.add(job("again"), Instant(0s));
    const auto list = [&past](Instant now) {
        std::vector<JobSummary> jobs{job("again"), job("now")};
        past.append_to(jobs, now);
        std::vector<std::string> names;
        for (const auto& one : jobs) names.push_back(cat(one.id, " ", one.phase));
        return names;
    };
    CHECK(list(Instant(1s)) == std::vector<std::string>{"again running", "now running", "old over"});
    CHECK(list(Instant(3601s)).size() == 2);
    for (int i = 0; i < 500; ++i) past.add(job(cat("many-", i)), Instant(1s));
    CHECK(list(Instant(2s)).size() == 202);
}
