// Counting GPUs, with a library of our own in NVML's place.
#include "launcher/host/gpu_count.h"

#include <cstdlib>
#include <filesystem>

#include "launcher/host/environment_probe.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::launcher;

namespace {

const std::string usual_path = std::getenv("PATH");

/// What muster-gpus, found in PATH, gets to see.
void place_gpus(const char* devices, const char* library = FAKE_NVML_LIBRARY, const char* programs = PROGRAMS) {
    ::setenv("FAKE_NVML", devices, 1);
    ::setenv("MUSTER_NVML_LIBRARY", library, 1);
    ::setenv("PATH", cat(programs, ':', usual_path).c_str(), 1);
}

std::vector<GpuDevice> devices_of(const char* devices) {
    place_gpus(devices);
    const auto listed = ask_for_gpus(gpu_count_limit);
    REQUIRE(listed.has_value());
    return *listed;
}

std::uint32_t workers(const char* devices, WorkerCount count, const Environment& environment = {}) {
    place_gpus(devices);
    LaunchConfig config;
    config.worker_count = count;
    const auto resolved = resolve_worker_count(config, environment);
    if (!resolved) FAIL(resolved.error().context);
    return config.workers_per_node;
}

}  // namespace

TEST_CASE("without the variable every GPU counts, and a partitioned one as its parts") {
    CHECK(visible_gpu_count(devices_of(""), {}) == 0);
    CHECK(visible_gpu_count(devices_of("GPU-a;GPU-b"), {}) == 2);
    CHECK(visible_gpu_count(devices_of("GPU-a;GPU-b=MIG-x,MIG-y,MIG-z"), {}) == 4);
    CHECK(visible_gpu_count(devices_of("GPU-a="), {}) == 0);
}

TEST_CASE("what muster-gpus says is read as NVML's own list") {
    const auto devices =
        read_gpus(
            "gpu 0 GPU-a 12\naddress 0000:e0:00.0\nprocess 7 1\ngpu 1 GPU-b 0\npartitioned\npart MIG-x\n"
            "part MIG-y\nend\n",
            5s)
            .value();
    REQUIRE(devices.size() == 2);
    CHECK(devices[0].uuid == "GPU-a");
    CHECK(devices[0].pci_address == "0000:e0:00.0");
    CHECK_FALSE(devices[0].mig_enabled);
    CHECK(devices[1].mig_enabled);
    CHECK(devices[1].mig_uuids == std::vector<std::string>{"MIG-x", "MIG-y"});
    CHECK(read_gpus("note no driver\n", 5s).error().context == "no driver");
    CHECK(read_gpus("gpu 0 GPU-a 12\n", 5s).error().context ==
          "muster-gpus has not listed all GPUs within its 5 s: the NVIDIA driver hangs, or has crashed it; run "
          "nvidia-smi "
          "on this node");
}

TEST_CASE("the host's GPUs are counted where nothing hides them") {
    std::string name = std::filesystem::temp_directory_path() / "muster_gpus_XXXXXX";
    const std::filesystem::path root = ::mkdtemp(name.data());
    CHECK(host_gpu_count(root) == 0);
    for (const char* entry : {"proc/driver/nvidia/gpus/0000:17:00.0", "sys/bus/pci/drivers/nvidia/0000:17:00.0",
                              "sys/bus/pci/drivers/nvidia/0000:2a:00.0", "sys/bus/pci/drivers/nvidia/module"})
        std::filesystem::create_directories(root / entry);
    CHECK(host_gpu_count(root) == 2);
    std::filesystem::remove_all(root);
}

TEST_CASE("CUDA_VISIBLE_DEVICES is applied as CUDA does it") {
    const auto devices = devices_of("GPU-aa1;GPU-ab2;GPU-b=MIG-x1,MIG-x2;GPU-c");
    const auto count = [&](std::string_view visible) { return visible_gpu_count(devices, visible); };
    CHECK(count("0,1") == 2);
    CHECK(count(" 3 , 0 ") == 2);
    CHECK(count("") == 0);
    CHECK(count("-1") == 0);
    CHECK(count("0,-1,1") == 1);  // what follows the first that is not valid does not count
    CHECK(count("0,9,1") == 1);
    CHECK(count("NoDevFiles") == 0);
    CHECK(count("0,0") == 0);  // named twice: none
    CHECK(count("1gpu,2x") == 2);
    CHECK(count("GPU-aa1,GPU-c") == 2);
    CHECK(count("GPU-aa,GPU-ab") == 2);  // an unambiguous beginning is enough
    CHECK(count("GPU-a") == 0);          // this one fits two
    CHECK(count("MIG-x1,MIG-x2") == 2);
    CHECK(count("MIG-GPU-b/1/0") == 1);
    CHECK(count("GPU-zz,0") == 0);
}

TEST_CASE("auto takes GPUs before CPUs, gpu insists, cpu ignores them") {
    CHECK(workers("GPU-a;GPU-b;GPU-c", WorkerCount::automatic) == 3);
    CHECK(workers("GPU-a;GPU-b;GPU-c", WorkerCount::gpu, {{"CUDA_VISIBLE_DEVICES", "2,0"}}) == 2);
    CHECK(workers("", WorkerCount::automatic) == usable_cpu_count());
    CHECK(workers("GPU-a;GPU-b;GPU-c", WorkerCount::cpu) == usable_cpu_count());
    CHECK(workers("GPU-a", WorkerCount::automatic, {{"CUDA_VISIBLE_DEVICES", ""}}) == usable_cpu_count());
    CHECK(usable_cpu_count() >= 1);
}

TEST_CASE("gpu without a GPU says what was found") {
    LaunchConfig config;
    config.worker_count = WorkerCount::gpu;
    const auto why = [&](const char* devices, const char* library, const Environment& environment) {
        place_gpus(devices, library);
        const auto resolved = resolve_worker_count(config, environment);
        REQUIRE_FALSE(resolved.has_value());
        return resolved.error().context;
    };
    CHECK(why("", "/nowhere/libnvidia-ml.so.1", {}).find("no NVIDIA driver") != std::string::npos);
    CHECK(why("broken", FAKE_NVML_LIBRARY, {}).find("Driver Not Loaded") != std::string::npos);
    CHECK(why("GPU-a;GPU-b", FAKE_NVML_LIBRARY, {{"CUDA_VISIBLE_DEVICES", "7"}}).find("2 GPUs were found, but") !=
          std::string::npos);
    CHECK(why("", FAKE_NVML_LIBRARY, {}).find("--nproc-per-node: got 'gpu'") != std::string::npos);
}

TEST_CASE("where a driver cannot list its GPUs no worker is started for each CPU") {
    const Environment with_driver{{"MUSTER_NVML_LIBRARY", FAKE_NVML_LIBRARY}};
    LaunchConfig config;
    config.worker_count = WorkerCount::automatic;
    const auto refused = [&](const char* devices, Duration limit, const char* programs = PROGRAMS) {
        place_gpus(devices, FAKE_NVML_LIBRARY, programs);
        return resolve_worker_count(config, with_driver, limit).error();
    };
    CHECK(refused("broken", 60s).context ==
          "--nproc-per-node: this node has an NVIDIA driver, but nvmlInit: Driver Not Loaded; write the number of "
          "workers, or cpu for one on each CPU");
    CHECK(refused("GPU-a", 60s, "/nowhere").context.find("but start muster-gpus: No such file") != std::string::npos);
    const auto hung = refused("hang", 200ms);
    CHECK(hung.code == Errc::timed_out);
    CHECK(hung.context.find("but muster-gpus has not listed all GPUs within its 200 ms") != std::string::npos);

    place_gpus("broken");
    REQUIRE(resolve_worker_count(config, {}, 60s).has_value());  // no driver
    CHECK(config.workers_per_node == usable_cpu_count());
}
