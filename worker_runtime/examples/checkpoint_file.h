// One checkpoint in one file, replaced whole: a reader finds the old one or the new one, never a half.
//
// Bytes: "MUSTERCK", u32 version (3), u64 step, u64 count, count f32, u32 size and the sampler's state, u64 FNV-1a of
// everything before; little-endian.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster::runtime {

struct Checkpoint {
    std::uint64_t step = 0;     ///< steps already taken: training goes on with this one
    std::vector<float> values;  ///< parameters, then their velocities
    std::string sampler = {};   ///< what ElasticSampler::state() said at that step

    friend bool operator==(const Checkpoint&, const Checkpoint&) = default;
};

/// Writes to "`path`.new", flushes it to the disk, renames it over `path` and flushes the folder. After success the
/// checkpoint survives a power cut; after a failure, or a kill at any point, the previous one is still there.
Result<void> save_checkpoint(const std::string& path, const Checkpoint& checkpoint);

/// The checkpoint at `path`; nothing when there is no such file; bad_frame when it is damaged or of another kind.
Result<std::optional<Checkpoint>> load_checkpoint(const std::string& path);

/// Eight bytes that tell damaged or different data from equal data (FNV-1a; no defence against intent).
std::uint64_t fingerprint(std::string_view bytes);

}  // namespace muster::runtime
