// The gradient reducer over NCCL, with the stand-ins, whose device memory the host cannot touch.
#include <dlfcn.h>
#include <signal.h>

#include <atomic>
#include <thread>

#include "muster/gradient_reducer.h"
#include "muster/sharded_optimizer.h"
#include "rendezvous/base/text/text.h"
#include "tests/gpu/device_training.h"
#include "tests/gpu/gpu_ranks.h"
#include "tests/integration/runtime/nccl/nccl_group.h"
#include "tests/support/catch.h"
#include "tests/support/skip.h"
#include "tests/unit/worker_runtime/reducer/reducer_story.h"
#include "worker_runtime/nccl/libraries/kernel_code.h"

namespace muster {

using namespace test;

namespace {

NcclSetting hidden(int) {
    return {.hidden = true};
}

ReducerOptions buckets_of_4_kib() {
    return {.bucket_cap_mb = 4096.0 / (1 << 20), .first_bucket_mb = 0.001, .last_bucket_mb = 0.001};
}

std::string train(int size, const DeviceTraining& how) {
    return run_nccl_ranks(
        size, [&](Communicator& world, int) { return train_on_device(world, how); }, hidden);
}

/// False, with a skip, where the build found no compiler for GPUs.
bool has_kernels() {
    const bool has = !runtime::kernel_codes().empty();
    if (!has) skip("the plugin was built without GPU kernels");
    return has;
}

template <class Function>
Function* function_of(const char* library, const char* name) {
    void* const handle = ::dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    return handle != nullptr ? reinterpret_cast<Function*>(::dlsym(handle, name)) : nullptr;
}

/// Work of the user's own stream that goes on when it is told to.
class GatedStream {
  public:
    GatedStream() {
        open_ = false;
        const auto cuda = runtime::CudaTable::load(STANDIN_CUDA);
        if (!cuda) return;
        cuda_ = *cuda;
        cuda_.set_device(0);
        cuda_.stream_create(&stream_, cudaStreamNonBlocking);
        cuda_.event_create(&event_, cudaEventDisableTiming);
    }
    ~GatedStream() { open(); }
    GatedStream(const GatedStream&) = delete;
    GatedStream& operator=(const GatedStream&) = delete;

    /// An event behind the gate, and behind `byte` all over the memory.
    void* fill_behind_gate(const Buffer& memory, int byte) {
        const auto put =
            function_of<cudaError_t(cudaStream_t, cudaHostFn_t, void*)>(STANDIN_CUDA, "cudaLaunchHostFunc");
        put(
            stream_,
            [](void* gate) {
                while (!static_cast<std::atomic<bool>*>(gate)->load()) std::this_thread::yield();
            },
            &open_);
        cuda_.fill(memory.data, byte, memory.size_bytes(), stream_);
        cuda_.event_record(event_, stream_);
        return event_;
    }
    void open() { open_ = true; }

  private:
    runtime::CudaTable cuda_;
    cudaStream_t stream_ = nullptr;
    cudaEvent_t event_ = nullptr;
    /// Static, because the stream's thread may read it after this object's end. A process has one object at a time.
    static inline std::atomic<bool> open_;
};

/// A parameter of the GPU's, in memory that `memory` keeps.
Result<std::vector<Parameter>> one_parameter(Communicator& world, Memory& memory, std::int64_t count) {
    auto taken = world.allocate(static_cast<std::size_t>(count) * sizeof(float));
    if (!taken) return taken.error();
    memory = std::move(*taken);
    return std::vector<Parameter>{{.name = "w", .shape = {count}, .type = DataType::f32, .data = memory.data()}};
}

}  // namespace

TEST_CASE("gradients on GPUs are averaged behind the events of their gradients") {
    for (const int size : {1, 2, 3}) CHECK(train(size, {.options = buckets_of_4_kib()}) == "");
    CHECK(train(2, {.options = buckets_of_4_kib(), .with_events = false}) == "");
}

TEST_CASE("an older library does the same, and so does one bucket for all") {
    const DeviceTraining how{};
    CHECK(run_nccl_ranks(
              2, [&](Communicator& world, int) { return train_on_device(world, how); },
              [](int) { return NcclSetting{.old_library = true, .hidden = true}; }) == "");
}

TEST_CASE("on GPUs, too, buckets are made anew in the order of gradients, without those that nobody uses") {
    for (const int size : {2, 3}) {
        CHECK(train(size, {.steps = 8, .options = buckets_of_4_kib(), .shuffled = true, .unused = 1}) == "");
    }
}

TEST_CASE("local steps on GPUs keep gradients for the step that averages") {
    CHECK(train(2, {.options = buckets_of_4_kib(), .local_steps = true}) == "");
}

TEST_CASE("ranks on GPUs may run out of batches") {
    auto options = buckets_of_4_kib();
    options.inputs = Inputs::uneven;
    CHECK(train(3, {.options = options, .ends = {3, 1, 2}}) == "");
}

TEST_CASE("buckets on GPUs can have a size that is measured") {
    CHECK(train(2, {.options = {.bucket_cap_mb = ReducerOptions::automatic}}) == "");
}

TEST_CASE("gradients on GPUs are clipped to a norm that the ranks work out together") {
    for (const int size : {1, 3}) {
        CHECK(run_nccl_ranks(
                  size, [](Communicator& world, int) { return clip_on_device(world); }, hidden) == "");
    }
}

TEST_CASE("a bucket waits on the GPU for the event of a gradient, and the host does not") {
    const auto wait = [](Communicator& world, int rank) -> std::string {
        Memory memory;
        auto parameters = one_parameter(world, memory, 1000);
        if (!parameters) return complaint(parameters);
        // Two buckets: the first one is launched while the step goes on.
        std::vector<Parameter> both{(*parameters)[0], (*parameters)[0]};
        both[1].name = "v";
        auto reducer = GradientReducer::make(world, both, buckets_of_4_kib());
        if (!reducer) return complaint(reducer);
        GatedStream gated;
        const auto calls = function_of<unsigned()>(STANDIN_NCCL, "standin_calls");
        // Between ranks the gather of samples, and the bucket.
        const unsigned wanted = calls() + (world.size() > 1 ? 2 : 1);
        if (auto begun = reducer->begin_step(); !begun) return complaint(begun);
        void* const event = gated.fill_behind_gate(reducer->gradient(1), 0x40);
        if (auto marked = reducer->mark_ready(1, event); !marked) return complaint(marked);
        const auto limit = std::chrono::steady_clock::now() + 60s;
        while (calls() < wanted) {
            if (std::chrono::steady_clock::now() > limit) return "the first bucket was not launched";
            std::this_thread::yield();
        }
        void* const later = gated.fill_behind_gate(reducer->gradient(0), 0x41);
        if (auto marked = reducer->mark_ready(0, later); !marked) return complaint(marked);
        gated.open();
        if (auto finished = reducer->finish(); !finished) return complaint(finished);
        auto gpu = GpuMemoryAccess::open(0);
        if (!gpu) return complaint(gpu);
        for (const int i : {0, 1}) {
            std::vector<std::byte> found(4000);
            (void)(*gpu)->read(found.data(), reducer->gradient(i).data, found.size());
            const std::vector<std::byte> expected(4000, std::byte{static_cast<unsigned char>(0x41 - i)});
            if (found != expected) return cat("rank ", rank, ": gradient ", i, " was averaged before it was there");
        }
        return "";
    };
    for (const int size : {1, 2}) CHECK(run_nccl_ranks(size, wait, hidden) == "");
}

TEST_CASE("collectives that were started follow each other on the GPU without the host") {
    const auto follow = [](Communicator& world, int rank) -> std::string {
        constexpr std::size_t count = 100;
        auto memory = world.allocate(5 * count * sizeof(float));
        if (!memory) return complaint(memory);
        const auto part = [&](std::size_t i) {
            return Buffer{.data = memory->data() + i * count * sizeof(float), .count = count, .type = DataType::f32};
        };
        const std::vector<float> weights{1, 3};
        GatedStream gated;
        const auto calls = function_of<unsigned()>(STANDIN_NCCL, "standin_calls");
        const unsigned before = calls();
        std::vector<Work> works;
        for (std::size_t i = 0; i < 5; ++i) {
            Operation operation = all_reduce_weighted(part(i), weights[static_cast<std::size_t>(rank)]);
            operation.weights = weights.data();
            if (i == 0) operation.after = gated.fill_behind_gate(part(0), 0);
            works.push_back(world.start(operation));
        }
        const auto limit = std::chrono::steady_clock::now() + 60s;
        while (calls() < before + 5) {
            if (std::chrono::steady_clock::now() > limit) return cat("only ", calls() - before, " were launched");
            std::this_thread::yield();
        }
        for (const auto& work : works) {
            if (work.done()) return "an operation is over before the one in front of it";
        }
        gated.open();
        for (auto& work : works) {
            if (auto done = work.wait(); !done) return complaint(done);
        }
        return complaint(world.run(barrier()));
    };
    CHECK(run_nccl_ranks(2, follow, hidden) == "");
}

TEST_CASE("a rank that dies while buckets are under way is named") {
    const auto die = [](Communicator& world, int rank) -> std::string {
        Memory memory;
        auto parameters = one_parameter(world, memory, 5000);
        if (!parameters) return complaint(parameters);
        auto reducer = GradientReducer::make(world, *parameters, buckets_of_4_kib());
        if (!reducer) return complaint(reducer);
        if (auto begun = reducer->begin_step(); !begun) return complaint(begun);
        // All ranks are in the step. One that is slow to leave this barrier may learn of the death in it.
        (void)world.run(barrier());
        if (rank == 1) ::raise(SIGKILL);
        (void)reducer->mark_ready(0);
        const auto finished = reducer->finish();
        if (finished) return "the step went well";
        const auto& text = finished.error().context;
        if (text.find("gradient step 0") == std::string::npos) return text;
        return text.find("rank 1 (pid ") == std::string::npos ? text : "";
    };
    CHECK(run_nccl_ranks(3, die, hidden, {1}) == "");
}

TEST_CASE("a collective that does not end is told at its deadline, and those behind it with it") {
    const auto late = [](Communicator& world, int rank) -> std::string {
        auto memory = world.allocate(400);
        if (!memory) return complaint(memory);
        const Buffer values{.data = memory->data(), .count = 100, .type = DataType::f32};
        if (rank == 1) {
            // Rank 0 does not receive it. Rank 0's failure ends it, so rank 0 is the first however late it begins.
            (void)world.run(send(values, 0), 60s);
            return "";
        }
        auto first = world.start(all_reduce(values, ReduceOp::sum), 2s);
        auto second = world.start(all_reduce(values, ReduceOp::sum));
        const auto said = complaint(first.wait());
        const bool named = said.find("(operation 2) did not end within ") != std::string::npos &&
                           said.find(" s: rank 1 (pid ") != std::string::npos;
        if (!named) {
            return cat("it says: ", said);
        }
        return complaint(second.wait()) == said ? "" : complaint(second.wait());
    };
    CHECK(run_nccl_ranks(2, late, hidden) == "");
}

TEST_CASE("without code for the GPU, gradients are clipped over the host") {
    CHECK(run_nccl_ranks(
              2, [](Communicator& world, int) { return clip_on_device(world); },
              [](int) { return NcclSetting{.hidden = true, .kernels = false}; }) == "");
}

TEST_CASE("compressed wires on GPUs have the bits of the host's, and its state for checkpoints") {
    if (!has_kernels()) return;
    for (const auto wire : {WireFormat::f16, WireFormat::bf16, WireFormat::int8}) {
        INFO("wire " << static_cast<int>(wire));
        auto options = buckets_of_4_kib();
        options.wire = wire;
        CHECK(train(3, {.steps = 10, .options = options, .shuffled = true, .unused = 1}) == "");
        CHECK(train(2, {.options = options, .local_steps = true}) == "");
        options.inputs = Inputs::uneven;
        CHECK(train(3, {.options = options, .ends = {3, 1, 2}}) == "");
    }
}

TEST_CASE("PowerSGD on GPUs has the bits of the host's, and its state for checkpoints") {
    if (!has_kernels()) return;
    auto options = buckets_of_4_kib();
    options.wire = WireFormat::power;
    options.power_start_step = 0;
    for (const int columns : {1, 2, 5}) {
        INFO(columns << " columns");
        options.power_rank = columns;
        options.inputs = Inputs::even;
        CHECK(train(3, {.steps = 10, .options = options, .shuffled = true, .unused = 1}) == "");
        CHECK(train(1, {.options = options}) == "");
        options.inputs = Inputs::uneven;
        CHECK(train(3, {.options = options, .ends = {3, 1, 2}}) == "");
    }
    options.inputs = Inputs::even;
    options.power_rank = 2;
    CHECK(train(2, {.options = options, .local_steps = true}) == "");
    options.bucket_cap_mb = 1;  // two matrices and two vectors in one
    CHECK(train(2, {.steps = 6, .options = options, .zero_step = 2}) == "");
    options.power_start_step = 3;
    CHECK(train(2, {.steps = 6, .options = options}) == "");
}

TEST_CASE("PowerSGD on GPUs: a gradient that is not finite is so on all ranks, and gone in the next step") {
    if (!has_kernels()) return;
    auto options = buckets_of_4_kib();
    options.wire = WireFormat::power;
    options.power_start_step = 0;
    for (const int parameter : {1, 5}) {
        CHECK(train(2, {.steps = 5, .options = options, .not_finite = parameter, .not_finite_step = 1}) == "");
    }
}

TEST_CASE("a gradient on a GPU that is not finite is told with its rank, also of a parameter that is rarely used") {
    if (!has_kernels()) return;
    auto options = buckets_of_4_kib();
    options.finite_check = FiniteCheck::on;
    CHECK(train(3, {.steps = 3, .options = options, .not_finite = 2, .not_finite_step = 1}) == "");
    CHECK(train(2, {.steps = 10, .options = options, .unused = 1, .not_finite = 1, .not_finite_step = 8}) == "");
    for (const auto wire : {WireFormat::int8, WireFormat::power}) {
        options.wire = wire;
        CHECK(train(2, {.steps = 3, .options = options, .not_finite = 0, .not_finite_step = 1}) == "");
    }
}

TEST_CASE("a sharded optimizer on GPUs has the bits of the host's") {
    if (!has_kernels()) return;
    const OptimizerRule rules[] = {Sgd{}, Sgd{.momentum = 0.9, .weight_decay = 0.1}, Adam{.weight_decay = 0.1},
                                   AdamW{}};
    const auto optimize = [&](Communicator& world, int) -> std::string {
        for (const auto& rule : rules) {
            if (auto wrong = optimize_on_device(world, rule); !wrong.empty()) {
                return cat("rule ", rule.index(), ": ", wrong);
            }
        }
        return "";
    };
    CHECK(run_nccl_ranks(3, optimize, hidden) == "");
}

TEST_CASE("what needs kernels of our own is refused on every rank where there are none, with what to do instead") {
    const auto refused = [](Communicator& world, int) -> std::string {
        Memory memory;
        auto parameters = one_parameter(world, memory, 10);
        if (!parameters) return complaint(parameters);
        const auto said = [&](const ReducerOptions& options) {
            const auto made = GradientReducer::make(world, *parameters, options);
            return made ? "made" : made.error().code == Errc::unsupported ? made.error().context : "another error";
        };
        const auto has = [](const std::string& text, std::string_view part) {
            const auto* const reason = runtime::kernel_codes().empty() ? "built without" : "operation not supported";
            return text.find(part) != std::string::npos && text.find(reason) != std::string::npos;
        };
        for (const auto wire : {WireFormat::bf16, WireFormat::f16, WireFormat::int8, WireFormat::power}) {
            if (const auto text = said({.wire = wire}); !has(text, "use WireFormat::same there")) return text;
        }
        if (const auto text = said({.finite_check = FiniteCheck::on}); !has(text, "clip_grad_norm()")) return text;
        auto reducer = GradientReducer::make(world, *parameters, {.result = GradientResult::own_piece});
        if (!reducer) return complaint(reducer);
        const auto optimizer = ShardedOptimizer::make(*reducer, Sgd{});
        if (optimizer) return "there is a sharded optimizer";
        return has(optimizer.error().context, "GradientResult::own_piece") ? "" : optimizer.error().context;
    };
    CHECK(run_nccl_ranks(2, refused, [](int) { return NcclSetting{.hidden = true, .kernels = false}; }) == "");
}

}  // namespace muster
