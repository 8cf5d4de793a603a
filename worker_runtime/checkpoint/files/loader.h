// Loads a checkpoint's files into the tensors of one rank.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "muster/checkpoint.h"
#include "rendezvous/base/error.h"
#include "worker_runtime/checkpoint/files/verify.h"
#include "worker_runtime/checkpoint/format/manifest.h"

namespace muster::runtime {

/// Checks that names, types and shapes of `tensors` are those of the checkpoint. invalid_argument names the first of
/// `tensors` that differs, else the first tensor of the checkpoint that is not in `tensors`.
Result<void> match_model(const Manifest& manifest, const std::vector<StateTensor>& tensors);

/// Passes the bytes of some ranges of a rank's file to `sink`, in order. Called once for each file of the manifest,
/// also without ranges.
using FileSource =
    std::function<Result<void>(std::uint64_t file, const std::vector<ByteRange>& ranges, const ByteSink& sink)>;

/// Returns the tensors to fill: the state's, and memory for this rank's own bytes, which is allocated here (empty if
/// the saved world has another size).
std::vector<StateTensor> with_rank_bytes(const Manifest& manifest, CheckpointState& state, int rank, int world);

/// Fills `tensors`, which must match the manifest, from `source`. Every piece is compared with its checksum; bad_frame
/// begins with `place` and names the tensor.
Result<void> fill_tensors(const std::string& place, const Manifest& manifest, const std::vector<StateTensor>& tensors,
                          const FileSource& source);

/// Fills `tensors`, which must match the manifest, from the files in `folder`. Every piece that is read is compared
/// with its checksum; bad_frame names the file and the tensor. Tensors filled before the error stay changed.
Result<void> load_tensors(const std::string& folder, const Manifest& manifest, const std::vector<StateTensor>& tensors);

}  // namespace muster::runtime
