#include "agent/diagnosis/visible_gpus.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

/// The device of one entry of CUDA_VISIBLE_DEVICES.
struct Visible {
    std::string name;       ///< A device's UUID or index. Empty: no device.
    std::size_t index = 0;  ///< Index of the GPU.
};

Visible by_uuid(std::string_view entry, const std::vector<GpuDevice>& devices) {
    Visible found;
    for (std::size_t index = 0; index < devices.size(); ++index) {
        std::vector<std::string> names = devices[index].mig_uuids;
        names.push_back(devices[index].uuid);
        for (const auto& name : names) {
            if (!name.starts_with(entry)) continue;
            if (!found.name.empty()) return {};  // ambiguous
            found = {name, index};
        }
    }
    // Names of drivers before R470, "MIG-GPU-<uuid>/<gi>/<ci>", cannot be looked up. CUDA checks them.
    if (found.name.empty() && entry.starts_with("MIG-GPU-")) found = {std::string(entry), devices.size()};
    return found;
}

Visible resolve_visible(std::string_view entry, const std::vector<GpuDevice>& devices) {
    if (entry.starts_with("GPU-") || entry.starts_with("MIG-")) return by_uuid(entry, devices);
    if (entry.starts_with('+')) entry.remove_prefix(1);
    std::size_t index = 0;
    // As strtoul: text after the digits is ignored.
    if (std::from_chars(entry.data(), entry.data() + entry.size(), index).ec != std::errc{}) return {};
    if (index >= devices.size()) return {};
    return {cat("index ", index), index};
}

bool names_part(std::string_view entry) {
    return trim(entry).starts_with("MIG-");
}

}  // namespace

std::vector<std::size_t> visible_gpus(const std::vector<GpuDevice>& devices, std::optional<std::string_view> visible) {
    std::vector<std::size_t> found;
    if (!visible) {
        for (std::size_t index = 0; index < devices.size(); ++index)
            found.insert(found.end(), devices[index].mig_enabled ? devices[index].mig_uuids.size() : 1, index);
        return found;
    }
    std::vector<std::string> seen;
    for (const auto entry : split(*visible, ',')) {
        auto device = resolve_visible(trim(entry), devices);
        if (device.name.empty()) break;
        if (std::ranges::find(seen, device.name) != seen.end()) return {};
        seen.push_back(std::move(device.name));
        found.push_back(device.index);
    }
    return found;
}

std::vector<bool> are_visible(const std::vector<std::string>& uuids, std::optional<std::string_view> visible) {
    const bool are_all = !visible || std::ranges::any_of(split(*visible, ','), names_part);
    std::vector<bool> found(uuids.size(), are_all);
    if (are_all) return found;
    std::vector<GpuDevice> devices;
    for (const auto& uuid : uuids) devices.push_back({.uuid = uuid, .mig_uuids = {}});
    for (const auto index : visible_gpus(devices, visible))
        if (index < found.size()) found[index] = true;
    return found;
}

}  // namespace muster::agent
