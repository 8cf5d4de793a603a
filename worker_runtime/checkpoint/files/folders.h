// A checkpoint directory as it lies on the disk: what is in it, and the steps by which a draft becomes a checkpoint.
//
//   LOCK                            directory_claim.h
//   IDENTITY                        which directory it is (identity.h)
//   LATEST                          the newest checkpoint's name, for people and scripts
//   step_00000120/                  a checkpoint: rank_00000.safetensors ..., manifest.json
//   step_00000140.tmp-7-5eed1234/   a draft: being written, or what a round that ended left of it
//   .trash-step_00000080/           being removed
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "worker_runtime/checkpoint/files/directory_claim.h"
#include "worker_runtime/checkpoint/files/durable_file.h"
#include "worker_runtime/checkpoint/format/manifest.h"
#include "worker_runtime/checkpoint/format/names.h"

namespace muster::runtime {

struct DirectoryListing {
    std::vector<CheckpointName> checkpoints;  ///< newest first
    std::vector<DraftName> drafts;
    std::vector<std::string> trash;  ///< names of folders
};

/// Folders of other names are nobody's business here.
Result<DirectoryListing> list_directory(const std::string& directory);

/// The manifest of a checkpoint whose files are there with the sizes it names; their bytes are not looked at.
Result<Manifest> read_manifest(const std::string& folder);

/// The head of a rank's file.
Result<RankFile> read_rank_file(const std::string& path);

/// Makes a draft whose rank files are all there and flushed a whole one: writes the manifest and flushes both. What it
/// says of the files comes from the files and `checksums`. Errors name the rank whose file is missing or wrong.
Result<void> complete_draft(const std::string& folder, const std::vector<std::uint32_t>& checksums);

/// The draft becomes the checkpoint that is returned: one rename, the directory flushed, LATEST replaced, all of it
/// while nobody else can commit. `first` comes before the rename; its error ends it. already_exists: a visitor's draft
/// is not newer than every checkpoint; it never goes back behind what others have committed meanwhile.
Result<CheckpointName> commit_draft(const std::string& directory, const DraftName& draft, DirectoryClaim& claim,
                                    const std::function<Result<void>()>& first = {});

/// Commits what a round that ended has left in a draft, when all files are there and whole; their bytes are flushed,
/// and then read. `interruption` is asked before each file. An error says what is missing, and the draft stays.
Result<CheckpointName> finish_draft(const std::string& directory, const DraftName& draft, DirectoryClaim& claim,
                                    const Interruption& interruption = {});

/// What rounds that ended left: a draft newer than every checkpoint whose files are all there and whole is committed
/// (its name is returned), the others go, and so does trash. Checkpoints that are there stay there after a power cut.
Result<std::optional<CheckpointName>> tidy_up(const std::string& directory, DirectoryClaim& claim);

/// Out of the directory at once, off the disk when that is done. What cannot be removed is logged and left.
void discard(const std::string& directory, const std::string& name);

}  // namespace muster::runtime
