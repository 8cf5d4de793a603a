#include "agent/probes/gpus/gpu_watch.h"

#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <thread>

#include "agent/probes/gpus/gpu_health.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

using Device = GpuDriver::Device;

constexpr auto load_pause = std::chrono::milliseconds(50);
/// A process that uses a GPU takes more, and the driver itself takes less.
constexpr unsigned long long used_bytes_max = 512ULL << 20;
// Numbers of nvml.h.
constexpr int sm_clock = 1, gpu_temperature = 0;

struct MemoryUse {  // nvmlDeviceGetMemoryInfo_v2
    unsigned version;
    unsigned long long total, reserved, free, used;
};
constexpr unsigned memory_use_version = sizeof(MemoryUse) | 2U << 24;

/// What was seen while the GPU was busy.
struct Load {
    unsigned samples = 0;
    std::array<unsigned, slow_reasons.size()> slowed{};
    unsigned clock_mhz = 0, celsius = 0, watts = 0, link_generation = 0, link_width = 0;

    void sample(const GpuDriver& driver, Device device) {
        const auto reasons = clock_reasons(driver, device);
        if ((reasons & idle_clocks) != 0) return;
        ++samples;
        for (std::size_t i = 0; i < slow_reasons.size(); ++i)
            if ((reasons & slow_reasons[i].bit) != 0) ++slowed[i];
        const auto raise = [&](unsigned& most, const char* name, auto... arguments) {
            unsigned now = 0;
            if (driver.ask(name, device, arguments..., &now)) most = std::max(most, now);
        };
        raise(clock_mhz, "nvmlDeviceGetClockInfo", sm_clock);
        raise(celsius, "nvmlDeviceGetTemperature", gpu_temperature);
        raise(link_generation, "nvmlDeviceGetCurrPcieLinkGeneration");
        raise(link_width, "nvmlDeviceGetCurrPcieLinkWidth");
        unsigned milliwatts = 0;
        if (driver.ask("nvmlDeviceGetPowerUsage", device, &milliwatts)) watts = std::max(watts, milliwatts / 1000);
    }
    void print() const {
        std::printf("load\tsamples=%u", samples);
        for (std::size_t i = 0; i < slow_reasons.size(); ++i) std::printf("\t%s=%u", slow_reasons[i].field, slowed[i]);
        std::printf("\tsm-mhz=%u\tcelsius=%u\twatts=%u\tlink-generation=%u\tlink-width=%u\n", clock_mhz, celsius, watts,
                    link_generation, link_width);
    }
};

Device device_of(const GpuDriver& driver, const std::string& uuid) {
    unsigned count = 0;
    if (driver.device_count(&count) != GpuDriver::success) return nullptr;
    for (unsigned index = 0; index < count; ++index) {
        Device device = nullptr;
        if (driver.device_by_index(index, &device) == GpuDriver::success && driver.uuid_of(device) == uuid)
            return device;
    }
    return nullptr;
}

/// Who uses it, in words; empty: nobody.
std::string user_of(const GpuDriver& driver, Device device) {
    unsigned mig = 0, pending = 0;
    if (driver.ask("nvmlDeviceGetMigMode", device, &mig, &pending) && mig == 1)
        return "its MIG instances, which are not tested";
    for (const auto& process : driver.processes_of(device)) {
        const std::string name(trim(read_file(cat("/proc/", process.pid, "/comm"))));
        return cat("process ", process.pid, name.empty() ? "" : cat(" (", name, ")"));
    }
    MemoryUse memory{};
    memory.version = memory_use_version;
    if (driver.ask("nvmlDeviceGetMemoryInfo_v2", device, &memory) && memory.used > used_bytes_max)
        return cat("a process that is not visible here, with ", memory.used >> 20, " MiB");
    return {};
}

void print_failure(const char* kind, const std::string& text) {
    std::printf("failure\tkind=%s\ttext=%s\n", kind, text.c_str());
}

/// Samples until the program has ended.
void run_and_sample(const GpuDriver& driver, Device device, std::vector<std::string> words, Load& load) {
    std::vector<char*> arguments;
    for (auto& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_t pid = -1;
    if (const int failure = ::posix_spawnp(&pid, arguments[0], nullptr, nullptr, arguments.data(), environ))
        return print_failure("missing", cat("start ", words[0], ": ", ::strerror(failure)));
    int status = 0;
    for (pid_t ended = 0; ended == 0 || (ended < 0 && errno == EINTR);) {
        std::this_thread::sleep_for(load_pause);
        load.sample(driver, device);
        ended = ::waitpid(pid, &status, WNOHANG);
    }
    if (WIFSIGNALED(status)) print_failure("program", cat("the test was ended by signal ", WTERMSIG(status)));
}

}  // namespace

void watch_gpu_test(const GpuDriver& driver, const std::string& uuid, std::vector<std::string> words) {
    const auto device = device_of(driver, uuid);
    if (device == nullptr) return print_failure("gpu", cat("the driver does not list ", uuid));
    std::array<char, 96> name{};
    if (!driver.ask("nvmlDeviceGetName", device, name.data(), static_cast<unsigned>(name.size()))) name = {};
    std::printf("target\tuuid=%s\tname=%s\n", uuid.c_str(), name.data());
    if (const auto user = user_of(driver, device); !user.empty()) {
        std::printf("busy\tby=%s\n", user.c_str());
        return;
    }
    std::printf("before%s\n", gpu_memory_health(driver, device).c_str());
    std::fflush(stdout);  // the program writes there too
    ::setenv("CUDA_VISIBLE_DEVICES", uuid.c_str(), 1);
    Load load;
    run_and_sample(driver, device, std::move(words), load);
    load.print();
    std::printf("after%s\n", gpu_memory_health(driver, device).c_str());
}

}  // namespace muster::agent
