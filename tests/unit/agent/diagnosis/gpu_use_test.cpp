#include "agent/diagnosis/gpu_use.h"

#include "tests/support/catch.h"

using namespace muster::agent;

namespace {

constexpr std::uint64_t gib = std::uint64_t{1} << 30;

std::vector<GpuUse> one_gpu(std::uint64_t used_bytes, std::vector<GpuUse::Process> processes = {}) {
    return {{0, "GPU-a", used_bytes, std::move(processes)}};
}

std::string train(std::int32_t) {
    return "train";
}

}  // namespace

TEST_CASE("what muster-gpus says is read, lines that are none are left out, and only visible GPUs count") {
    const std::string output =
        "busy 1\n"
        "gpu 0 GPU-a 100\n"
        "busy 97\n"
        "process 7 60\n"
        "process x 1\n"
        "warning of a driver\n"
        "gpu 1 GPU-b 200\n"
        "busy 101\n"
        "busy -1\n"
        "gpu none GPU-c 1\n"
        "busy 3\n"
        "process 9 1\n"
        "end\n";
    const std::vector<GpuUse> both{{0, "GPU-a", 100, {{7, 60}}, 97}, {1, "GPU-b", 200, {}}};
    CHECK(read_gpu_use(output, {}) == both);
    CHECK(read_gpu_use(output, "0,1") == both);
    CHECK(read_gpu_use(output, " 1 ").size() == 1);
    CHECK(read_gpu_use(output, "GPU-b").at(0).index == 1);
    CHECK(read_gpu_use(output, "MIG-x").size() == 2);
    CHECK(read_gpu_use(output, "").empty());
    // As CUDA: the list ends at the first entry that names no GPU, and a GPU that is named twice empties it.
    CHECK(read_gpu_use(output, "0,-1,1").size() == 1);
    CHECK(read_gpu_use(output, "1,1").empty());
    CHECK(read_gpu_use(output, "GPU-").empty());  // ambiguous
    CHECK(read_gpu_use("note nvmlInit: Driver Not Loaded\n", {}).empty());
    CHECK(read_gpu_use("process 7 60\nend\n", {}).empty());
    CHECK(read_gpu_use("gpu 0 GPU-a 100\nbusy 97\n", {}).empty());  // The driver hung at the second GPU.
    CHECK(read_gpu_use("gpu 0 GPU-a 100\nbusy 97\nend\n", {}).size() == 1);
}

TEST_CASE("others' processes are named once, the server that shares a GPU is not") {
    GpuWatch watch;
    const auto gpus = one_gpu(3 * gib, {{7, 2 * gib}, {8, 0}});
    CHECK(watch.foreign(gpus, train) ==
          std::vector<std::string>{"GPU 0 (GPU-a) is used by another process, pid 7 (train) with 2048 MiB",
                                   "GPU 0 (GPU-a) is used by another process, pid 8 (train)"});
    CHECK(watch.foreign(gpus, train).empty());
    GpuWatch other;
    CHECK(other.foreign(one_gpu(0, {{9, 0}}), [](std::int32_t) { return "nvidia-cuda-mps-server"; }).empty());
    CHECK(other.foreign(one_gpu(0, {{10, 0}}), [](std::int32_t) { return ""; }) ==
          std::vector<std::string>{"GPU 0 (GPU-a) is used by another process, pid 10 (not visible from here)"});
}

TEST_CASE("memory is held while more than before is taken that nobody claims") {
    GpuWatch watch;
    CHECK(watch.still_held(one_gpu(60 * gib)).empty());  // what was before is not known
    watch.set_baseline(one_gpu(gib));
    CHECK(watch.still_held(one_gpu(gib + GpuWatch::slack_bytes)).empty());
    CHECK(watch.still_held(one_gpu(5 * gib)) == "4096 MiB of GPU 0");
    CHECK(watch.still_held(one_gpu(5 * gib, {{7, 4 * gib}})).empty());  // another's, which does not go
    CHECK(watch.still_held(one_gpu(0, {{7, 4 * gib}})).empty());
    watch.set_baseline(one_gpu(5 * gib));
    CHECK(watch.still_held(one_gpu(5 * gib)).empty());
    watch.lower_baseline({{"GPU-a", 6 * gib}, {"GPU-b", 0}});
    CHECK(watch.still_held(one_gpu(5 * gib)).empty());
    watch.lower_baseline({{"GPU-a", gib}});
    CHECK(watch.still_held(one_gpu(5 * gib)) == "4096 MiB of GPU 0");
}
