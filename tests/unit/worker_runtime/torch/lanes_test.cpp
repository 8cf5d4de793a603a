// The threads of PyTorch's back end, without PyTorch.
#include "worker_runtime/torch/lanes.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/support/catch.h"

using namespace muster::torch_backend;

namespace {

/// What many jobs wait for.
struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool open = false;
    std::size_t passed = 0;

    void pass() {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return open; });
        ++passed;
        changed.notify_all();
    }
    void let_pass(std::size_t count) {
        std::unique_lock lock(mutex);
        open = true;
        changed.notify_all();
        REQUIRE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return passed == count; }));
    }
};

Lane::Job job_at(Gate& gate) {
    return {.work = [&gate] { gate.pass(); }, .is_needed = [] { return false; }, .then = [] {}};
}

}  // namespace

TEST_CASE("the threads of a process have a limit, and a queue that finds none is told") {
    Gate gate;
    std::vector<std::shared_ptr<Lane>> lanes;
    for (std::size_t i = 0; i < threads_max; ++i) {
        lanes.push_back(std::make_shared<Lane>());
        REQUIRE(lanes.back()->post(job_at(gate)));
    }
    const auto late = std::make_shared<Lane>();
    CHECK_FALSE(late->post(job_at(gate)));
    CHECK(late->is_idle());
    CHECK(lanes.front()->post(job_at(gate)));  // behind a job that has a thread
    gate.let_pass(threads_max + 1);
    // Threads that have become idle serve the queue now.
    Gate second;
    bool posted = false;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!posted && std::chrono::steady_clock::now() < limit) posted = late->post(job_at(second));
    REQUIRE(posted);
    second.let_pass(1);
    CHECK(Threads::of_process().close(limit));
}
