#include "worker_runtime/gpu_test/gpu_between.h"

#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker_runtime/gpu_test/record.h"
#include "worker_runtime/gpu_test/test_device.h"
#include "worker_runtime/kernels/check_kernels.h"

namespace muster::runtime {

namespace {

constexpr std::size_t pair_bytes = std::size_t{32} << 20;
constexpr std::size_t pair_words = pair_bytes / sizeof(std::uint64_t);
constexpr int pair_copies = 4;

struct Gpu {
    std::string name;
    std::unique_ptr<TestDevice> device;
    DeviceMemory sent, received;
    std::uint64_t seed = 0;
};

std::uint64_t word_of(const Gpu& gpu, std::size_t place) {
    return kernels::mixed(gpu.seed + place);
}

Result<Gpu> open_gpu(std::string name, int number, std::uint64_t seed) {
    Gpu gpu{.name = std::move(name), .device = nullptr, .sent = {}, .received = {}, .seed = kernels::mixed(seed)};
    gpu.device = MUSTER_TRY(TestDevice::open(number));
    gpu.sent = MUSTER_TRY(gpu.device->allocate(pair_bytes));
    gpu.received = MUSTER_TRY(gpu.device->allocate(pair_bytes));
    std::vector<std::uint64_t> words(pair_words);
    for (std::size_t i = 0; i < pair_words; ++i) words[i] = word_of(gpu, i);
    MUSTER_TRY(gpu.device->copy(gpu.sent.as<void>(), words.data(), pair_bytes));
    MUSTER_TRY(gpu.device->finish());
    return gpu;
}

/// The first copy makes what CUDA needs for this pair. Prints the record.
Result<void> copy_from_to(Gpu& from, Gpu& to, std::vector<std::uint64_t>& words) {
    print_record(cat("step", field("name", cat("copies from ", from.name, " to ", to.name))));
    const bool is_direct = from.device->reaches(*to.device);
    double best_s = 0;
    for (int i = 0; i < pair_copies; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        MUSTER_TRY(from.device->copy(to.received.as<void>(), from.sent.as<void>(), pair_bytes));
        MUSTER_TRY(from.device->finish());
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        if (i > 0) best_s = i == 1 ? took.count() : std::min(best_s, took.count());
    }
    MUSTER_TRY(to.device->copy(words.data(), to.received.as<void>(), pair_bytes));
    MUSTER_TRY(to.device->finish());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < pair_words; ++i) wrong += words[i] != word_of(from, i) ? 1 : 0;
    print_record(cat("between", field("from", from.name), field("to", to.name), field("direct", is_direct ? 1 : 0),
                     field("wrong", wrong), field("mib", pair_bytes >> 20),
                     field("mbytes-per-s", static_cast<std::uint64_t>(pair_bytes / best_s / 1e6))));
    return {};
}

}  // namespace

Result<void> copy_between_gpus(std::uint64_t seed) {
    const char* const visible = ::getenv("CUDA_VISIBLE_DEVICES");
    std::vector<Gpu> gpus;
    for (const auto name : split(visible != nullptr ? visible : "", ',')) {
        print_record(cat("step", field("name", cat("the start of CUDA on ", name))));
        gpus.push_back(MUSTER_TRY(open_gpu(std::string(name), static_cast<int>(gpus.size()), seed + gpus.size())));
    }
    std::vector<std::uint64_t> words(pair_words);
    for (auto& from : gpus)
        for (auto& to : gpus)
            if (&from != &to) MUSTER_TRY(copy_from_to(from, to, words));
    return {};
}

}  // namespace muster::runtime
