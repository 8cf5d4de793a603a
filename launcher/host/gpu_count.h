// How many GPUs a worker of CUDA would see, without linking CUDA: NVML is loaded at run time, and CUDA_VISIBLE_DEVICES
// is applied as CUDA does it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster::launcher {

struct GpuDevice {
    std::string uuid;                    ///< "GPU-5c1e..."
    std::vector<std::string> mig_uuids;  ///< its MIG devices, when it is partitioned
    bool mig_enabled = false;
    std::string pci_address = {};  ///< "0000:dc:00.0"; empty: the driver does not say
};

/// The GPUs of this host in NVML's order, which is the PCI order. `library` is what is given to dlopen. not_found when
/// there is no such library (no NVIDIA driver); io with NVML's own words otherwise. May start threads of the driver, so
/// call it after the guardian has been forked.
Result<std::vector<GpuDevice>> list_gpus(const std::string& library = "libnvidia-ml.so.1");

/// Devices for workers in CUDA's order, as indices into `devices`, given CUDA_VISIBLE_DEVICES (nothing: not set).
/// Indices, UUIDs and their unambiguous beginnings, and MIG-...; the list ends at the first entry that names no device;
/// a device named twice makes it empty. Without the variable a partitioned GPU counts as its MIG devices. An index
/// beyond all of them stands for a part whose GPU cannot be told.
std::vector<std::size_t> visible_gpus(const std::vector<GpuDevice>& devices, std::optional<std::string_view> visible);

std::uint32_t visible_gpu_count(const std::vector<GpuDevice>& devices, std::optional<std::string_view> visible);

/// A guess that costs a microsecond: the device files /dev/nvidia0, 1, ... limited by CUDA_VISIBLE_DEVICES. For hints.
std::uint32_t apparent_gpu_count(std::optional<std::string_view> visible);

}  // namespace muster::launcher
