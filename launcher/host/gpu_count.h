// Counts the GPUs that CUDA shows to a worker, without linking CUDA: it loads NVML at run time and applies
// CUDA_VISIBLE_DEVICES as CUDA does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/diagnosis/visible_gpus.h"
#include "rendezvous/base/error.h"

namespace muster::launcher {

using agent::GpuDevice;
using agent::visible_gpus;

/// The GPUs of this host in NVML's order, which is the PCI order. `library` is the argument of dlopen. Fails with
/// not_found without the library (no NVIDIA driver), else with io and NVML's error text. The driver may start threads:
/// call it after the fork of the guardian.
Result<std::vector<GpuDevice>> list_gpus(const std::string& library = "libnvidia-ml.so.1");

/// The same, asked of muster-gpus with a limit of 5 s, because a faulty driver may hang. PCI addresses are unknown.
Result<std::vector<GpuDevice>> ask_for_gpus();
/// What muster-gpus prints. Error: its note.
Result<std::vector<GpuDevice>> read_gpus(std::string_view output);

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
