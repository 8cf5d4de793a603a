// The gradient reducer over the real transports: the same bits over each of them and for every layout of buckets, and
// an error that names the rank when one is killed in the middle of its steps.
#include <signal.h>

#include <fstream>
#include <limits>
#include <random>
#include <thread>

#include "muster/gradient_reducer.h"
#include "rendezvous/base/text/text.h"
#include "tests/integration/runtime/findings.h"
#include "tests/integration/runtime/shared_group.h"
#include "tests/integration/runtime/tcp/tcp_bytes.h"
#include "tests/integration/runtime/tcp/tcp_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"
#include "tests/unit/worker_runtime/reducer/reducer_story.h"
#include "worker_runtime/communicator/communicator_body.h"
#include "worker_runtime/core/registration.h"

namespace muster::test {

using namespace runtime;

namespace {

constexpr int size = 3;
constexpr int victim = 1;
constexpr int for_ever = std::numeric_limits<int>::max();

std::vector<Parameter> model() {
    std::vector<Parameter> parameters;
    for (const std::int64_t count : {5000, 3, 70000, 64, 1, 12345}) {
        const auto number = parameters.size();
        parameters.push_back(
            {.name = cat("p", number), .shape = {count}, .type = number % 3 == 2 ? DataType::bf16 : DataType::f32});
    }
    return parameters;
}

struct Trained {
    std::uint64_t hash = 0;  ///< of all gradients of all steps
    std::string error;
};

/// `steps` steps of made-up gradients, until one fails; `under_way` is called after the first.
Trained train(Communicator& world, const ReducerOptions& options, int steps,
              const std::function<void()>& under_way = {}) {
    const OwnedParameters parameters(model(), 0);
    auto reducer = GradientReducer::make(world, parameters.list(), options);
    if (!reducer) return {.error = complaint(reducer)};
    std::string seen;
    for (int step = 0; step < steps; ++step) {
        if (auto begun = reducer->begin_step(static_cast<float>(1 + world.rank())); !begun)
            return {.error = complaint(begun)};
        for (int i = static_cast<int>(model().size()) - 1; i >= 0; --i) {
            const Buffer gradient = reducer->gradient(i);
            write(gradient,
                  made_up(gradient.type, gradient.count,
                          seed_of(static_cast<std::uint64_t>(step), world.rank(), static_cast<std::size_t>(i))));
            if (auto marked = reducer->mark_ready(i); !marked) return {.error = complaint(marked)};
        }
        if (auto finished = reducer->finish(); !finished) return {.error = complaint(finished)};
        for (std::size_t i = 0; i < model().size(); ++i) {
            const Buffer gradient = reducer->gradient(static_cast<int>(i));
            seen.append(static_cast<const char*>(gradient.data), gradient.size_bytes());
        }
        if (step == 0 && under_way) under_way();
        if (steps == for_ever) seen.clear();
    }
    return {.hash = hash_bytes(seen), .error = {}};
}

Communicator over_tcp(const GroupTerms& terms) {
    CommunicatorBody::Terms body{.group = terms, .timeout = 60s, .make_transport = {}};
    return Communicator(std::make_shared<CommunicatorBody>(std::move(body), join_over_tcp(terms)));
}

/// What the ranks came to, which must be one and the same.
Trained train_together(bool shared, const ReducerOptions& options) {
    std::vector<Trained> results(size);
    run_as_threads(size, [&](const GroupTerms& terms) {
        auto world = shared ? join_shared_group(terms) : over_tcp(terms);
        results[static_cast<std::size_t>(terms.rank)] = train(world, options, 4);
    });
    for (const auto& each : results) {
        if (!each.error.empty()) return each;
        if (each.hash != results[0].hash) return {.error = "the ranks have different gradients"};
    }
    return results[0];
}

/// What a step with a gradient of 1 MiB moves over TCP, between all ranks together.
double bytes_moved(WireFormat wire) {
    Findings findings;
    std::size_t before = 0;
    std::size_t after = 0;
    run_as_threads(size, [&](const GroupTerms& terms) {
        auto world = over_tcp(terms);
        const std::vector<Parameter> matrix{{.name = "p", .shape = {512, 512}, .type = DataType::f32}};
        const OwnedParameters parameters(matrix, 0);
        ReducerOptions options{.wire = wire};
        options.power_start_step = 0;
        auto reducer = GradientReducer::make(world, parameters.list(), options);
        findings.expect(reducer, "make");
        if (!reducer) return;
        findings.expect(reducer->begin_step(), "begin");
        const auto in_step = [&] { findings.expect(world.run(barrier()), "barrier"); };
        in_step();
        if (terms.rank == 0) before = tcp_bytes_received();
        in_step();
        findings.expect(reducer->mark_ready(0), "mark");
        findings.expect(reducer->finish(), "finish");
        in_step();
        if (terms.rank == 0) after = tcp_bytes_received();
        in_step();
    });
    CHECK(findings.text() == "");
    return static_cast<double>(after - before);
}

}  // namespace

TEST_CASE("compression leaves as many fewer bytes on the wire as it promises, by the kernel's count") {
    // Each rank's slice goes to its owner and the result to all others.
    const double whole = 2.0 * (size - 1) * 512 * 512 * sizeof(float);
    CHECK(bytes_moved(WireFormat::same) == Approx(whole).epsilon(0.02));
    CHECK(bytes_moved(WireFormat::bf16) == Approx(whole / 2).epsilon(0.02));
    CHECK(bytes_moved(WireFormat::f16) == Approx(whole / 2).epsilon(0.02));
    // The codes, and a scale for each 512 of them.
    CHECK(bytes_moved(WireFormat::int8) == Approx(whole / 4).epsilon(0.05));
    CHECK(bytes_moved(WireFormat::power) < whole / 20);
}

TEST_CASE("gradients have the same bits over shared memory and TCP, and for every layout of buckets") {
    const auto reference = train_together(true, {});
    CHECK(reference.error == "");
    for (const bool shared : {true, false}) {
        for (const double cap : {0.001, 0.1, 25.0}) {
            INFO((shared ? "shared memory" : "TCP") << ", " << cap << " MiB");
            ReducerOptions options{.bucket_cap_mb = cap, .first_bucket_mb = cap / 4, .last_bucket_mb = cap / 8};
            const auto result = train_together(shared, options);
            CHECK(result.error == "");
            CHECK(result.hash == reference.hash);
        }
    }
}

TEST_CASE("compressed gradients have the same bits over shared memory and TCP") {
    for (const auto wire : {WireFormat::bf16, WireFormat::f16, WireFormat::int8, WireFormat::power}) {
        INFO("wire " << static_cast<int>(wire));
        ReducerOptions options{.bucket_cap_mb = 0.1, .wire = wire};
        options.power_start_step = 1;
        const auto shared = train_together(true, options);
        const auto tcp = train_together(false, options);
        CHECK(shared.error == "");
        CHECK(tcp.error == "");
        CHECK(shared.hash == tcp.hash);
    }
}

TEST_CASE("a bucket cap may be chosen by measurement, the same on all ranks") {
    ReducerOptions options;
    options.bucket_cap_mb = ReducerOptions::automatic;
    CHECK(train_together(true, options).error == "");
    CHECK(train_together(false, options).error == "");
}

TEST_CASE("when a rank is killed in the middle of its steps, the others are told which, in which step") {
    constexpr std::uint32_t seed = 3;
    std::mt19937 random(seed);
    for (int i = 0; i < 10; ++i) {
        RankProcesses ranks(size, [&](const GroupTerms& terms) {
            auto world = join_shared_group(terms);
            const auto under_way = [&] { (void)terms.place->publish(cat("ready/", terms.rank), "1", no_deadline); };
            const auto error = train(world, {.bucket_cap_mb = 0.1}, for_ever, under_way).error;
            const bool told = error.find("gradient step ") != std::string::npos &&
                              error.find(cat("rank ", victim, " (pid ")) != std::string::npos;
            if (!told) std::ofstream("/dev/stderr") << "rank " << terms.rank << ": " << error << '\n';
            return told ? 0 : 1;
        });
        MeetingInFolder place(ranks.file(""));
        const auto deadline = std::chrono::steady_clock::now() + 60s;
        REQUIRE(place.collect({"ready/0", "ready/1", "ready/2"}, deadline).has_value());
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));  // the moment is what is drawn
        ::kill(ranks.pid(victim), SIGKILL);
        const auto ends = ranks.join();
        INFO("seed " << seed << ", run " << i);
        CHECK((ends[0].exited && ends[0].code == 0));
        CHECK((ends[2].exited && ends[2].code == 0));
    }
}

}  // namespace muster::test
