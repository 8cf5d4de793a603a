#include "worker_runtime/core/step_control.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>

#include "rendezvous/base/check.h"

namespace muster::runtime {

namespace {
constexpr int named_rank_max = 253;
constexpr std::size_t rank_bytes = sizeof(std::uint32_t) + sizeof(float);
}  // namespace

std::size_t StepControl::size_bytes(std::size_t parameter_count, int world) {
    return 1 + parameter_count + rank_bytes * static_cast<std::size_t>(world);
}

StepControl::StepControl(std::span<std::uint8_t> bytes, std::size_t parameter_count, int world)
    : bytes_(bytes), parameter_count_(parameter_count) {
    MUSTER_CHECK(bytes.size() == size_bytes(parameter_count, world), bytes.size(), parameter_count, world);
}

void StepControl::clear() {
    std::fill(bytes_.begin(), bytes_.end(), std::uint8_t{0});
}

void StepControl::set_not_finite(std::size_t parameter, int rank) {
    bytes_[1 + parameter] = static_cast<std::uint8_t>(2 + std::min(rank, named_rank_max));
}

void StepControl::set_waited(int rank, Duration waited) {
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(waited).count();
    const auto value =
        static_cast<std::uint32_t>(std::clamp<std::int64_t>(us, 0, std::numeric_limits<std::uint32_t>::max()));
    std::memcpy(of_rank(rank), &value, sizeof value);
}

void StepControl::set_samples(int rank, float samples) {
    std::memcpy(of_rank(rank) + sizeof(std::uint32_t), &samples, sizeof samples);
}

std::uint8_t* StepControl::of_rank(int rank) const {
    return &bytes_[1 + parameter_count_ + rank_bytes * static_cast<std::size_t>(rank)];
}

Duration StepControl::waited(int rank) const {
    std::uint32_t us = 0;
    std::memcpy(&us, of_rank(rank), sizeof us);
    return std::chrono::microseconds(us);
}

float StepControl::samples(int rank) const {
    float samples = 0;
    std::memcpy(&samples, of_rank(rank) + sizeof(std::uint32_t), sizeof samples);
    return samples;
}

std::optional<StepControl::NotFinite> StepControl::first_not_finite() const {
    const auto states = bytes_.subspan(1, parameter_count_);
    const auto found = std::find_if(states.begin(), states.end(), [](std::uint8_t state) { return state >= 2; });
    if (found == states.end()) return std::nullopt;
    return NotFinite{static_cast<std::size_t>(found - states.begin()), *found - 2};
}

}  // namespace muster::runtime
