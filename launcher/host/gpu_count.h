// Counts the GPUs that CUDA shows to a worker, without CUDA: it asks muster-gpus and applies CUDA_VISIBLE_DEVICES as
// CUDA does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/diagnosis/visible_gpus.h"
#include "launcher/config/environment.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster::launcher {

using agent::GpuDevice;
using agent::visible_gpus;

/// Whether this host has an NVIDIA driver, or MUSTER_NVML_LIBRARY names a library in its place.
bool has_gpu_driver(const Environment& environment);

/// Without persistence mode a driver starts each GPU anew, in up to 3 s.
inline constexpr Duration gpu_count_limit = std::chrono::seconds(60);

/// The GPUs of this host in NVML's order, which is the PCI order, asked of muster-gpus. Fails with timed_out where the
/// driver hangs for `limit` or crashes; else with io and the reason: no driver, NVML's own words, no muster-gpus. Logs
/// after 5 s, or half of a shorter `limit`, what it waits for.
Result<std::vector<GpuDevice>> ask_for_gpus(Duration limit);
/// What muster-gpus printed, within `limit`.
Result<std::vector<GpuDevice>> read_gpus(std::string_view output, Duration limit);

/// GPUs of the host that the driver has, also those that a scheduler or a container hides from this process. 0: not
/// known. `root` goes before the paths of the kernel's files.
std::size_t host_gpu_count(const std::string& root = {});

std::uint32_t visible_gpu_count(const std::vector<GpuDevice>& devices, std::optional<std::string_view> visible);

/// Those of `worker_count` workers, each once, in ascending order: local rank n uses the n-th visible device. A
/// partitioned GPU (MIG) is left out, because a part of it is not the whole.
std::vector<std::size_t> gpus_of_workers(const std::vector<GpuDevice>& devices, std::optional<std::string_view> visible,
                                         std::uint32_t worker_count);

/// A cheap estimate for hints: the number of device files /dev/nvidia0, 1, ..., limited by CUDA_VISIBLE_DEVICES.
std::uint32_t apparent_gpu_count(std::optional<std::string_view> visible);

}  // namespace muster::launcher
