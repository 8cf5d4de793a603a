// From a checkpoint's files into the tensors of one rank.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "muster/checkpoint.h"
#include "rendezvous/base/error.h"
#include "worker_runtime/checkpoint/files/verify.h"
#include "worker_runtime/checkpoint/format/manifest.h"

namespace muster::runtime {

/// The checkpoint is of the model that `tensors` are of: the same names, types and shapes. invalid_argument names the
/// first of `tensors` that differs, else the first of the checkpoint's that is not among them.
Result<void> match_model(const Manifest& manifest, const std::vector<StateTensor>& tensors);

/// Gives the bytes of some ranges of a rank's file to `sink`, in order. Called once for each file of the manifest, also
/// with no ranges.
using FileSource =
    std::function<Result<void>(std::uint64_t file, const std::vector<ByteRange>& ranges, const ByteSink& sink)>;

/// What is to be filled: the state's tensors, and memory for this rank's own bytes, which it takes anew (none where the
/// saved world has another size).
std::vector<StateTensor> with_rank_bytes(const Manifest& manifest, CheckpointState& state, int rank, int world);

/// Fills `tensors`, which must match, with what `source` gives. Every piece is compared with its checksum: bad_frame
/// names the tensor, and `place` in front of it.
Result<void> fill_tensors(const std::string& place, const Manifest& manifest, const std::vector<StateTensor>& tensors,
                          const FileSource& source);

/// Fills `tensors`, which must match, from the files in `folder`. Every piece that is read is compared with its
/// checksum: bad_frame names the file and the tensor; what was filled until then stays.
Result<void> load_tensors(const std::string& folder, const Manifest& manifest, const std::vector<StateTensor>& tensors);

}  // namespace muster::runtime
