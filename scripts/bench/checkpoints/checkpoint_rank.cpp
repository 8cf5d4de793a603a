// One rank of scripts/bench/checkpoint and scripts/bench/resume: so many MiB of state in tensors of 16 MiB, saved and
// loaded again and again, with a plain copy of the same state in between. Prints a line for each turn: "memcpy_ms
// blocked_ms persist_ms load_ms".
//
//     bench_checkpoint_rank DIRECTORY MIB TURNS
//     bench_checkpoint_rank DIRECTORY MIB resume    goes on where it can: "resumed memory|disk LOAD_MS"; else saves
//     once,
//                                                   says "ready PID" when that is everywhere, and waits to be killed
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "muster/checkpoint.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/shared_memory/shared_segment.h"

namespace {

using namespace muster;
using Clock = std::chrono::steady_clock;

constexpr std::size_t tensor_bytes = 16u << 20;

double milliseconds_since(Clock::time_point then) {
    return std::chrono::duration<double, std::milli>(Clock::now() - then).count();
}

struct Model {
    std::vector<std::vector<float>> tensors;

    explicit Model(std::size_t mib) : tensors((mib << 20) / tensor_bytes) {
        for (auto& tensor : tensors) tensor.assign(tensor_bytes / sizeof(float), 0);
    }
    /// As an optimizer's step leaves them: written by this core a moment ago.
    void touch(float value) {
        for (auto& tensor : tensors) {
            for (auto& each : tensor) each = value += 1;
        }
    }
    CheckpointState state() {
        CheckpointState state;
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            const auto count = static_cast<std::int64_t>(tensors[i].size());
            state.tensors.push_back(StateTensor::whole(cat("tensor", i), TensorType::f32, {count}, tensors[i].data()));
        }
        return state;
    }
};

double plain_copy(const Model& model, std::byte* to) {
    const auto began = Clock::now();
    for (std::size_t i = 0; i < model.tensors.size(); ++i) {
        std::memcpy(to + i * tensor_bytes, model.tensors[i].data(), tensor_bytes);
    }
    return milliseconds_since(began);
}

Result<Checkpointer> open(Context& context, const std::string& directory) {
    return Checkpointer::open(context, {.directory = directory, .keep_last = 1, .replicas = Replicas::spread});
}

Result<void> run(const std::string& directory, std::size_t mib, int turns) {
    auto context = MUSTER_TRY(Context::from_environment());
    auto checkpointer = MUSTER_TRY(open(context, directory));
    Model model(mib);
    const auto plain = MUSTER_TRY(runtime::SharedSegment::create(mib << 20, "the plain copy"));
    auto state = model.state();
    MUSTER_TRY(checkpointer.reserve(state));
    for (int turn = 0; turn < turns; ++turn) {
        model.touch(static_cast<float>(turn));
        const auto copied = plain_copy(model, plain.data());
        model.touch(static_cast<float>(turn));
        MUSTER_TRY(checkpointer.save(turn, state, WhenBusy::wait));
        MUSTER_TRY(checkpointer.finish());
        const auto report = checkpointer.reports().back();
        const auto loaded = MUSTER_TRY(checkpointer.load(state));
        if (context.rank() != 0) continue;
        std::printf("%.3f %.3f %.3f %.3f\n", copied, report.blocked_ms, report.persist_ms, loaded->load_ms);
        std::fflush(stdout);
    }
    return {};
}

Result<void> resume(const std::string& directory, std::size_t mib) {
    auto context = MUSTER_TRY(Context::from_environment());
    auto checkpointer = MUSTER_TRY(open(context, directory));
    Model model(mib);
    auto state = model.state();
    model.touch(1);
    if (const auto loaded = MUSTER_TRY(checkpointer.load(state))) {
        if (context.rank() == 0)
            std::printf("resumed %s %.3f\n", loaded->from_memory ? "memory" : "disk", loaded->load_ms);
        return {};
    }
    MUSTER_TRY(checkpointer.save(1, state, WhenBusy::wait));
    MUSTER_TRY(checkpointer.finish());
    const bool copies = context.snapshots() != nullptr && context.world_size() > context.local_world_size();
    while (copies && checkpointer.copied_step() < 1 && context.world().status())
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    MUSTER_TRY(context.world().run(barrier()));
    std::printf("ready %d\n", ::getpid());
    std::fflush(stdout);
    ::pause();
    return Error{Errc::cancelled, "a signal ended the pause"};
}

}  // namespace

int main(int argc, char** argv) {
    std::size_t mib = 0;
    int turns = 0;
    const bool resumes = argc == 4 && std::string_view(argv[3]) == "resume";
    if (argc != 4 || !parse_number(std::string_view(argv[2]), mib) ||
        !(resumes || parse_number(std::string_view(argv[3]), turns))) {
        std::fprintf(stderr, "usage: bench_checkpoint_rank DIRECTORY MIB TURNS|resume\n");
        return 2;
    }
    const auto done = resumes ? resume(argv[1], mib) : run(argv[1], mib, turns);
    if (!done) std::fprintf(stderr, "bench_checkpoint_rank: %s\n", done.error().context.c_str());
    return done ? 0 : 1;
}
