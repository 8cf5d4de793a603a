// Exports a checkpoint for other programs: safetensors files with whole tensors, and the index that Hugging Face's
// libraries read.
//
//   OUT/model-00001-of-00003.safetensors ...
//   OUT/model.safetensors.index.json     {"metadata": {"total_size": BYTES}, "weight_map": {"NAME": "FILE", ...}}
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "worker_runtime/checkpoint/format/manifest.h"

namespace muster::runtime {

struct ExportOptions {
    std::uint64_t file_bytes_max = std::uint64_t{5} << 30;  ///< per file; a larger tensor has its own file
    std::string prefix = {};  ///< exports only tensors whose names begin with it, without it; empty: all
};

/// Decides which tensors go into which file, in order of names; a new file begins if the next tensor does not fit. In a
/// file, tensors with larger elements come first, so that all are aligned. Pure.
std::vector<std::vector<ManifestTensor>> export_plan(const Manifest& manifest, const ExportOptions& options);

struct Exported {
    std::size_t file_count = 0, tensor_count = 0;
    std::uint64_t bytes = 0;
};

/// Writes the checkpoint in `folder` to the new folder `out`, which appears complete or not at all and survives a power
/// failure. Checks the checksum of every byte, and uses only a few buffers of memory. Errors: already_exists: `out`
/// exists. not_found: no tensor begins with the prefix. bad_frame: a tensor is damaged. io: the system's message.
Result<Exported> export_checkpoint(const std::string& folder, const Manifest& manifest, const std::string& out,
                                   const ExportOptions& options);

}  // namespace muster::runtime
