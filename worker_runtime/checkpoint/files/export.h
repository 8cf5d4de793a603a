// A checkpoint put together for other programs: safetensors files with whole tensors, and the index that Hugging Face's
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
    std::uint64_t file_bytes_max = std::uint64_t{5} << 30;  ///< of tensors; a larger tensor has a file of its own
    std::string prefix = {};  ///< only tensors whose names begin so, and without it; empty: all
};

/// Which tensors go into which file: in the order of names, a new file where the next one would not fit. Inside a file
/// those with larger elements come first, so that all are aligned. Pure.
std::vector<std::vector<ManifestTensor>> export_plan(const Manifest& manifest, const ExportOptions& options);

struct Exported {
    std::size_t file_count = 0, tensor_count = 0;
    std::uint64_t bytes = 0;
};

/// Writes the checkpoint in `folder` to the new folder `out`: all of it or nothing, there after a power cut. Each byte
/// is compared with its checksum on the way, and memory is a few buffers. already_exists: `out`. not_found: no tensor
/// begins with the prefix. bad_frame: a tensor is damaged. io: the system's words.
Result<Exported> export_checkpoint(const std::string& folder, const Manifest& manifest, const std::string& out,
                                   const ExportOptions& options);

}  // namespace muster::runtime
