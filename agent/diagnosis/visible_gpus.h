// The GPUs that CUDA shows to a worker: CUDA_VISIBLE_DEVICES as CUDA reads it. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster::agent {

struct GpuDevice {
    std::string uuid;                    ///< "GPU-5c1e..."
    std::vector<std::string> mig_uuids;  ///< Its MIG devices if it is partitioned.
    bool mig_enabled = false;
    std::string pci_address = {};  ///< "0000:dc:00.0". Empty: unknown.
};

/// The visible devices in CUDA's order, as indices into `devices`. `visible` is CUDA_VISIBLE_DEVICES (nothing: not
/// set): indices, UUIDs, their unambiguous prefixes, and MIG-... The list ends at the first entry that names no device;
/// a device named twice makes it empty. Without the variable a partitioned GPU counts as its MIG devices. An index
/// beyond `devices` is a MIG device whose GPU is unknown.
std::vector<std::size_t> visible_gpus(const std::vector<GpuDevice>& devices, std::optional<std::string_view> visible);

/// For a list of GPUs of which no parts are known, by UUID: whether each is visible. All are where a part of a GPU
/// (MIG) is named.
std::vector<bool> are_visible(const std::vector<std::string>& uuids, std::optional<std::string_view> visible);

}  // namespace muster::agent
