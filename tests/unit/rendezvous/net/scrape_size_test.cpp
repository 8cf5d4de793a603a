// What a scrape of a large daemon costs: 50 jobs of 80 nodes, eight workers each, in their fifth round.
#include <algorithm>
#include <array>
#include <ctime>
#include <iostream>
#include <utility>

#include "rendezvous/base/text/text.h"
#include "rendezvous/dialects/job_metrics.h"
#include "rendezvous/dialects/metrics_answer.h"
#include "rendezvous/rounds/server.h"
#include "tests/support/catch.h"
#include "tests/support/effort.h"

using namespace muster;
using namespace muster::rendezvous;

namespace {

// Under a sanitizer a fifth of the jobs: they are all alike, and the time is not judged there.
constexpr std::uint32_t job_count = test::under_sanitizer ? 10 : 50, node_count = 80, worker_count = 8;
constexpr int scrape_count = test::under_sanitizer ? 2 : 50;  // the best of them is compared

native::WorkersSeen seen_of(Round round, std::uint32_t node, std::uint64_t more, SectionTimes sections) {
    const auto step = 123'000 + round;
    native::WorkersSeen seen{.round = round,
                             .counts = {.training = worker_count - 2, .waiting = 1, .section = 1},
                             .checkpoints = {step, step, step, step},
                             .sections = std::move(sections),
                             .since_step_ns = 123'456'789};
    for (std::uint32_t i = 0; i < worker_count; ++i) {
        const auto rank = static_cast<std::int32_t>(node * worker_count + i);
        seen.workers.push_back({.at = {.rank = rank, .pid = 4711, .state = "running"},
                                .pace = i == 0 ? native::WorkerPace::waiting : native::WorkerPace::usual,
                                .step = 123'456,
                                .tally = {.first_step = 123'001,
                                          .step_count = 123'456,
                                          .step_ns = 987'654'321'987,
                                          .measured_ns = 987'654'321'987,
                                          .data_wait_ns = 7'654'321'987 + more * 1'234'567'891,
                                          .exposed_ns = 87'654'321'987,
                                          .late_ns = 4'321'987 * static_cast<std::uint64_t>(rank),
                                          .sample_count = 55'555'555,
                                          .checkpoint_step = 123'000}});
    }
    if (node == 0) seen.step_times.assign(step_time_bucket_count, {12'345});
    return seen;
}

/// Seconds of a core that this thread has used.
double used() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// One job, and its nodes on this server.
class Story {
  public:
    Story(Server& server, std::uint32_t job, Instant& now) : server_(server), job_(job), now_(now) {
        for (std::uint32_t node = 0; node < node_count; ++node) enter(node);
    }
    /// All nodes report steps, and data that they waited for.
    void train() {
        for (std::uint64_t more = 0; more < 3; ++more)
            for (std::uint32_t node = 0; node < node_count; ++node) {
                if (node == 0) now_ += 10s;
                tell(node, seen_of(round_, node, more, sections(static_cast<std::int64_t>(more))));
            }
    }
    /// The round ends, by this message of its last node, and another one follows.
    void restart(const native::Message& why, bool leaves = false) {
        tell(node_count - 1, why);
        for (std::uint32_t node = 0; node < node_count - (leaves ? 1 : 0); ++node) {
            tell(node, native::RoundReport{.round = round_, .failures = {}, .checkpoint_step = 123'000});
            tell(node, join(round_));
        }
        if (leaves) enter(node_count - 1);
        ++round_;
    }

  private:
    /// All load a checkpoint. Every fourth one evaluates, too, and waits for its saves.
    [[nodiscard]] SectionTimes sections(std::int64_t more) const {
        if (job_ % 4 != 0) return {{"checkpoint", 543'000'000}};
        return {{"checkpoint", 543'000'000 + 87'654'321 * more}, {"evaluation", 1'234'567'891 * more}};
    }
    [[nodiscard]] native::Join join(Round last) const {
        native::Join join;
        join.terms.nodes_max = node_count;
        join.terms.nodes_min = job_ % 2 == 0 ? node_count : node_count - 1;  // every other one may change its size
        join.terms.restarts_max = 100;
        join.last_round = last;
        join.slots = worker_count;
        join.queued_ms = 3'600'123;
        join.addresses = {cat("10.0.", job_, ".1")};
        return join;
    }
    void enter(std::uint32_t node) {
        const auto connection = connections_[node] = ++last_connection_ + job_ * ConnectionId{1'000};
        server_.step(ConnectionAccepted{connection, cat("10.0.", job_, ".", node)}, now_);
        native::Hello hello;
        hello.job = cat("llama-70b-sft-", job_);
        hello.node = {cat("gpu", node), 4711, connection};
        tell(node, hello);
        tell(node, join(no_round));
    }
    void tell(std::uint32_t node, const native::Message& message) {
        server_.step(Received{connections_[node], message}, now_ += 12'345'679ns);
    }

    Server& server_;
    const std::uint32_t job_;
    Instant& now_;
    Round round_ = 0;
    ConnectionId last_connection_ = 0;
    std::array<ConnectionId, node_count> connections_{};
};

native::WorkersFailed failed(Round round, std::int32_t rank, FailureKind kind, CauseKind cause, Instant at) {
    Failure failure;
    failure.at_ns = at.time_since_epoch().count();
    failure.kind = kind;
    failure.rank = rank;
    failure.cause.kind = cause;
    return {round, {std::move(failure)}};
}

/// Each job is in its fifth round, after failures and a change of its nodes, and all of its nodes have reported.
void run_jobs(Server& server, Instant& now) {
    for (std::uint32_t job = 0; job < job_count; ++job) {
        Story story(server, job, now);
        story.train();
        story.restart(failed(0, 1, FailureKind::killed, CauseKind::out_of_memory, now));
        story.train();
        story.restart(failed(1, 2, FailureKind::worker_error, CauseKind::unknown, now));
        story.restart(native::Leave{"drained"}, true);
        story.train();
        story.restart(failed(3, 3, FailureKind::killed, CauseKind::gpu_fault, now));
        story.train();
    }
}

}  // namespace

TEST_CASE("a scrape of 4,000 agents in 50 jobs takes milliseconds and less than 256 KiB") {
    Instant now(100h);
    ServerConfig config;
    config.to_wall_clock = 1'764'000'000s;
    Server server(config, now - 1h);
    run_jobs(server, now);
    double best = 1e9;  // what else the host does takes none of them
    std::string text;
    for (int i = 0; i < scrape_count; ++i) {
        const auto began = used();
        MetricsPage page(MetricsFormat::open_metrics);
        add_job_metrics(page, server.summaries(now + 1s));
        text = page.finish();
        best = std::min(best, used() - began);
    }
    std::cout << "a scrape of " << job_count * node_count << " agents: " << 1000 * best << " ms, " << text.size()
              << " bytes\n";
    CHECK(text.find(cat("muster_job_step{job=\"llama-70b-sft-", job_count - 1, "\"} 123456")) != std::string::npos);
    CHECK(text.find(cat("muster_job_checkpoint_timestamp_seconds{job=\"llama-70b-sft-", job_count - 1,
                        "\",tier=\"shared\"}")) != std::string::npos);
    // The families of the daemon itself take less than 8 KiB.
    CHECK(text.size() < (256 - 8) * 1024);
    // Of twice as many jobs.
    REQUIRE_FALSE(text.empty());
    std::string many;
    while (many.size() < 480 * 1024) many += text;
    double packing = 1e9;
    HttpPage packed;
    for (int i = 0; i < scrape_count; ++i) {
        const HttpRequest request{
            .method = "GET", .target = {}, .host = {}, .authorization = {}, .accept_encoding = "gzip"};
        const auto began = used();
        packed = metrics_answer(request, [&](MetricsFormat) { return many; });
        packing = std::min(packing, used() - began);
    }
    std::cout << "by gzip: " << 1000 * packing << " ms for " << many.size() << " bytes, which become "
              << packed.body.size() << "\n";
    CHECK(packed.body.size() < 256 * 1024);
#if defined(__OPTIMIZE__)
    if (!test::under_sanitizer) CHECK(best < 0.005);
#endif
}
