// What a profiler sees of a training step, through a stand-in for NVTX.
#include "worker_runtime/communicator/profile_range.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <algorithm>

#include "muster/gradient_reducer.h"
#include "tests/support/catch.h"
#include "tests/unit/worker_runtime/reducer/reducer_story.h"

using namespace muster;
using namespace muster::test;

namespace {

struct Seen {
    std::string name;
    std::uint64_t began = 0;
    std::uint64_t ended = 0;
};

std::vector<Seen> seen_ranges() {
    using Ask = const char*(std::size_t, std::uint64_t*, std::uint64_t*);
    void* const library = ::dlopen(STANDIN_NVTX, RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) return {};
    auto* const ask = reinterpret_cast<Ask*>(::dlsym(library, "standin_nvtx_range"));
    std::vector<Seen> all;
    for (Seen one;; all.push_back(one)) {
        const char* const name = ask(all.size(), &one.began, &one.ended);
        if (name == nullptr) return all;
        one.name = name;
    }
}

std::vector<Seen> with_name(const std::vector<Seen>& all, const std::string& part) {
    std::vector<Seen> found;
    std::copy_if(all.begin(), all.end(), std::back_inserter(found),
                 [&](const Seen& one) { return one.name.find(part) != std::string::npos; });
    return found;
}

}  // namespace

namespace {

constexpr double one_line = 256.0 / (1 << 20);

/// Two steps of three buckets.
std::string train(Communicator& communicator) {
    const OwnedParameters parameters(f32_parameters({64, 64, 64}), 0);
    auto reducer =
        GradientReducer::make(communicator, parameters.list(),
                              {.bucket_cap_mb = one_line, .first_bucket_mb = one_line, .last_bucket_mb = one_line});
    if (!reducer) return complaint(reducer);
    for (int step = 0; step < 2; ++step) {
        if (auto begun = reducer->begin_step(); !begun) return complaint(begun);
        for (const int i : {2, 1, 0}) {
            if (auto marked = reducer->mark_ready(i); !marked) return complaint(marked);
        }
        if (auto finished = reducer->finish(); !finished) return complaint(finished);
    }
    return {};
}

}  // namespace

TEST_CASE("a step, each bucket's all-reduce and the waits for them are ranges on a profiler's time line") {
    ::setenv("MUSTER_NVTX_LIBRARY", STANDIN_NVTX, 1);
    ThreadGroup group(2);
    const auto wrong = group.run(train);
    CHECK(wrong == "");
    const auto all = seen_ranges();
    for (const auto& one : all) CHECK(one.ended > one.began);
    const auto steps = with_name(all, "muster step 1");
    REQUIRE(steps.size() == 2);  // of two ranks
    CHECK(with_name(all, "muster step 0").size() == 2);
    CHECK(with_name(all, "muster exposed wait").size() >= 4);
    for (int bucket = 0; bucket < 3; ++bucket) {
        const auto reduced = with_name(all, "muster all_reduce avg f32 x 64 #" + std::to_string(bucket));
        CHECK(reduced.size() == 4);  // two steps of two ranks
        for (const auto& one : reduced) {
            const bool inside = std::any_of(all.begin(), all.end(), [&](const Seen& step) {
                return step.name.find("muster step") == 0 && step.began < one.began && one.ended < step.ended;
            });
            CHECK(inside);
        }
    }
}

TEST_CASE("a step's range ends with the step") {
    ::setenv("MUSTER_NVTX_LIBRARY", STANDIN_NVTX, 1);
    const auto before = seen_ranges().size();
    ThreadGroup group(1);
    CHECK(group.run(train) == "");
    auto all = seen_ranges();
    all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(before));
    const auto first = with_name(all, "muster step 0");
    const auto second = with_name(all, "muster step 1");
    REQUIRE((first.size() == 1 && second.size() == 1));
    CHECK(first.front().ended < second.front().began);
}
