// Checks the use of this node's GPUs before workers start: processes of others, and memory of dead workers that is not
// free yet. Pure; the input is the output of muster-gpus.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace muster::agent {

struct GpuUse {
    struct Process {
        std::int32_t pid = 0;
        std::uint64_t used_bytes = 0;
        friend bool operator==(const Process&, const Process&) = default;
    };
    std::uint32_t index = 0;
    std::string uuid;
    std::uint64_t used_bytes = 0;
    std::vector<Process> processes;
    std::optional<std::uint32_t> busy_percent{};  ///< Of the time in which a kernel ran.
    friend bool operator==(const GpuUse&, const GpuUse&) = default;
};

/// Of muster-gpus' output, those GPUs that CUDA_VISIBLE_DEVICES (nothing: not set) shows by index or UUID; where it
/// names parts of GPUs, all. Empty: there are none, or the driver does not answer. Output without "end" is no answer:
/// the driver was asked for a GPU that it did not return from.
std::vector<GpuUse> read_gpu_use(std::string_view output, std::optional<std::string_view> visible);

/// By UUID: bytes that no process claimed while none of our workers ran.
using GpuBaseline = std::map<std::string, std::uint64_t>;

class GpuWatch {
  public:
    /// Contexts and the driver's own tables come and go by some hundred MiB.
    static constexpr std::uint64_t slack_bytes = std::uint64_t{512} << 20;

    /// What there was when none of our workers ran yet, or what is taken as that from now on.
    void set_baseline(const std::vector<GpuUse>& gpus);
    /// For GPUs of the baseline: what is more than an earlier agent found is its workers'.
    void lower_baseline(const GpuBaseline& earlier);
    [[nodiscard]] const GpuBaseline& baseline() const { return baseline_; }
    /// Lines for those that compute there while none of our workers runs; each process once. `name_of` gives the name
    /// of a process, empty where it is not to be seen from here.
    std::vector<std::string> foreign(const std::vector<GpuUse>& gpus,
                                     const std::function<std::string(std::int32_t)>& name_of);
    /// Memory beyond the baseline that no process claims, in words; empty: what was held has come back.
    [[nodiscard]] std::string still_held(const std::vector<GpuUse>& gpus) const;

  private:
    GpuBaseline baseline_;
    std::set<std::pair<std::string, std::int32_t>> named_;  ///< GPU and process.
};

}  // namespace muster::agent
