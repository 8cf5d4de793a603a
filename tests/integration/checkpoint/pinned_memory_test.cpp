// Snapshots' memory is pinned where a process uses a GPU: with the stand-ins of tests/stand_ins, in processes.
#include <dlfcn.h>
#include <stdlib.h>

#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"
#include "tests/integration/checkpoint/saver.h"
#include "tests/integration/runtime/nccl/nccl_group.h"
#include "tests/integration/runtime/shared_group.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using namespace muster::test;

namespace {

/// Of the stand-in in this process; -2: there is none, -1: something was unpinned that was not pinned, or had gone.
long pinned_bytes() {
    void* const cuda = ::dlopen(STANDIN_CUDA, RTLD_NOW | RTLD_NOLOAD);
    if (cuda == nullptr) return -2;
    const auto ask = reinterpret_cast<long (*)()>(::dlsym(cuda, "standin_pinned_bytes"));
    return ask != nullptr ? ask() : -2;
}

/// A board is of no use where `world` has one rank.
std::string save_twice(Communicator& world, const std::string& directory, bool pins) {
    {
        auto opened = Checkpointer::open(world, nullptr, {.job = "job", .round = 0}, {.directory = directory});
        if (!opened) return opened.error().context;
        TinyModel model(0, 1);
        std::vector<float> more(1u << 20);
        auto state = model.state();
        long before = 0;
        for (std::int64_t step = 1; step <= 2; ++step) {
            auto done = opened->save(step, state);
            if (done) done = opened->finish();
            if (!done) return done.error().context;
            // The second save needs more memory.
            const long now = pinned_bytes();
            if (pins ? now <= before : now > 0) return cat("in step ", step, " so many bytes are pinned: ", now);
            before = now;
            const auto count = static_cast<std::int64_t>(more.size());
            state.tensors.push_back(StateTensor::whole("more", TensorType::f32, {count}, more.data()));
        }
    }
    return pinned_bytes() <= 0 && pinned_bytes() != -1 ? "" : cat("at last: ", pinned_bytes());
}

}  // namespace

TEST_CASE("a snapshot's memory is pinned as long as it is there, and no longer") {
    const ScratchFolder scratch;
    CHECK(run_nccl_ranks(1, [&](Communicator& world, int) { return save_twice(world, scratch / "c", true); }) == "");
}

TEST_CASE("memory that cannot be pinned takes checkpoints all the same") {
    const ScratchFolder scratch;
    CHECK(run_nccl_ranks(1, [&](Communicator& world, int) -> std::string {
              set_log_level(LogLevel::error);
              ::setenv("MUSTER_STANDIN_PINS", "0", 1);
              if (auto wrong = save_twice(world, scratch / "c", false); !wrong.empty()) return wrong;
              // It would be taken for one of the trainer's own, at its next launch of a kernel.
              const int left = call_stand_in<int>("cudaGetLastError");
              return left == 0 ? "" : cat("CUDA's last error is left behind: ", left);
          }) == "");
}

TEST_CASE("a process that does not use its GPU loads neither the plugin nor CUDA for a checkpoint") {
    const ScratchFolder scratch;
    ::setenv("MUSTER_NCCL_PLUGIN", NCCL_PLUGIN, 1);
    ::setenv("MUSTER_CUDA_LIBRARY", STANDIN_CUDA, 1);
    auto alone = join_shared_group({.rank = 0, .size = 1, .id = "alone", .place = nullptr});
    CHECK(save_twice(alone, scratch / "c", false) == "");
    CHECK(pinned_bytes() == -2);
    CHECK(::dlopen(NCCL_PLUGIN, RTLD_NOW | RTLD_NOLOAD) == nullptr);
}
