// A training in miniature whose every bit is known: a replicated tensor, and a sharded one as ZeRO-1 has its
// optimizer's state, both of integers, so that any world comes to the same. After each step it takes a snapshot, and
// begins the next when that has reached the next node, as steps do that take longer than a copy.
//
//   sharded_steps STEPS       "from S memory|disk|nothing", "step S" for each, "sum HEX" at the end, by rank 0
//
// MUSTER_TEST_COPIES=0: no copies go to other nodes, and nobody waits for them.
// MUSTER_TEST_GATE=PATH: step 400 is taken once that file exists.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "muster/checkpoint.h"
#include "muster/context.h"

using namespace muster;

namespace {

constexpr std::size_t element_count = 12 * 4096;
constexpr std::int64_t gate_step = 400;

struct Model {
    std::vector<std::int64_t> weight = std::vector<std::int64_t>(element_count);
    std::vector<std::int64_t> momentum;  ///< this rank's part
    std::size_t begin = 0;

    Model(int rank, int world) : momentum(element_count / static_cast<std::size_t>(world)) {
        begin = momentum.size() * static_cast<std::size_t>(rank);
    }
    CheckpointState state() {
        const std::vector<std::int64_t> shape = {element_count};
        return {.tensors = {
                    StateTensor::whole("weight", TensorType::i64, shape, weight.data()),
                    StateTensor::shard("momentum", TensorType::i64, shape, momentum.data(), begin, momentum.size())}};
    }
    Result<void> take_step(Communicator& world, std::int64_t step) {
        std::vector<std::int64_t> change(momentum.size());
        for (std::size_t i = 0; i < momentum.size(); ++i) {
            const auto at = static_cast<std::uint64_t>(begin + i);
            const auto old = static_cast<std::uint64_t>(momentum[i]);
            const auto fresh = old * 6364136223846793005U + at + static_cast<std::uint64_t>(step) +
                               static_cast<std::uint64_t>(weight[begin + i]);
            momentum[i] = static_cast<std::int64_t>(fresh);
            change[i] = static_cast<std::int64_t>(fresh >> 8U);
        }
        std::vector<std::int64_t> changes(element_count);
        auto shared = world.run(all_gather(buffer(std::span(change)), buffer(std::span(changes))));
        if (!shared) return shared;
        for (std::size_t i = 0; i < element_count; ++i) weight[i] ^= changes[i];
        return {};
    }
};

int fail(const Error& error) {
    std::fprintf(stderr, "sharded_steps: %s\n", error.context.c_str());
    return 1;
}

/// Every rank's copy of `step` is on the next node. False: not within a time that shows a fault.
Result<bool> all_copied(Communicator& world, const Checkpointer& checkpointer, std::int64_t step) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (checkpointer.copied_step() < step && world.status() && std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    std::int64_t least = checkpointer.copied_step();
    auto shared = world.run(all_reduce(buffer(std::span(&least, 1)), ReduceOp::min));
    if (!shared) return shared.error();
    return least >= step;
}

int train(Context& context, std::int64_t steps) {
    const char* const wanted = std::getenv("MUSTER_TEST_COPIES");
    const bool copies = (wanted == nullptr || *wanted != '0') && context.world_size() > context.local_world_size();
    auto checkpointer =
        Checkpointer::open(context, {.snapshot_interval = Duration::zero(), .copy_to_next_node = copies});
    if (!checkpointer) return fail(checkpointer.error());
    Model model(context.rank(), context.world_size());
    auto state = model.state();
    auto loaded = checkpointer->load(state);
    if (!loaded) return fail(loaded.error());
    const auto from = *loaded ? (*loaded)->step : 0;
    const bool speaks = context.rank() == 0;
    if (speaks)
        std::printf("from %lld %s\n", static_cast<long long>(from),
                    !*loaded                 ? "nothing"
                    : (*loaded)->from_memory ? "memory"
                                             : "disk");
    const char* const gate = std::getenv("MUSTER_TEST_GATE");
    for (std::int64_t step = from + 1; step <= steps; ++step) {
        while (step == gate_step && gate != nullptr && !std::filesystem::exists(gate))
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        if (auto taken = model.take_step(context.world(), step); !taken) return fail(taken.error());
        if (speaks) std::printf("step %lld\n", static_cast<long long>(step));
        if (speaks) std::fflush(stdout);
        // One snapshot is left out while another is being given: its copy may be there before that is through.
        if (auto through = checkpointer->finish(); !through) return fail(through.error());
        auto kept = checkpointer->snapshot(step, state);
        if (!kept) return fail(kept.error());
        auto there = copies ? all_copied(context.world(), *checkpointer, step) : Result<bool>(true);
        if (!there) return fail(there.error());
        if (!*there) return fail({Errc::timed_out, "a copy does not reach the next node"});
    }
    std::uint64_t sum = 14695981039346656037U;
    for (const auto value : model.weight) sum = (sum ^ static_cast<std::uint64_t>(value)) * 1099511628211U;
    if (speaks) std::printf("sum %016llx\n", static_cast<unsigned long long>(sum));
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    auto context = Context::from_environment();
    if (!context) return fail(context.error());
    return train(*context, std::atoll(argv[1]));
}
