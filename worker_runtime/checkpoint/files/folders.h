// A checkpoint directory on disk: its content, and the steps by which a draft becomes a checkpoint.
//
//   LOCK                            directory_claim.h
//   IDENTITY                        the identity of the directory (identity.h)
//   LATEST                          the newest checkpoint's name, for people and scripts
//   step_00000120/                  a checkpoint: rank_00000.safetensors ..., manifest.json
//   step_00000140.tmp-7-5eed1234/   a draft: being written, or left by an ended round
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

/// Lists the directory, and ignores folders with other names.
Result<DirectoryListing> list_directory(const std::string& directory);

/// Reads a checkpoint's manifest and checks that its files exist with the listed sizes, but not their content.
Result<Manifest> read_manifest(const std::string& folder);

/// Reads the head of a rank file.
Result<RankFile> read_rank_file(const std::string& path);

/// Completes a draft whose rank files all exist and are flushed: writes the manifest, and flushes it and the folder.
/// The manifest's content comes from the files and from `checksums`. Errors name the rank whose file is missing or
/// wrong.
Result<void> complete_draft(const std::string& folder, const std::vector<std::uint32_t>& checksums);

/// Makes the draft a checkpoint and returns its name: renames it, flushes the directory and replaces LATEST, while no
/// other process can commit. `first` runs before the rename; its error ends the commit. already_exists: a visitor's
/// draft is not newer than every checkpoint, for example because another process has committed meanwhile.
Result<CheckpointName> commit_draft(const std::string& directory, const DraftName& draft, DirectoryClaim& claim,
                                    const std::function<Result<void>()>& first = {});

/// Commits the draft of an ended round if all files exist and are undamaged: flushes the files, then reads them. Calls
/// `interruption` before each file. After an error, which names what is missing, the draft stays.
Result<CheckpointName> finish_draft(const std::string& directory, const DraftName& draft, DirectoryClaim& claim,
                                    const Interruption& interruption = {});

/// Cleans up after ended rounds: commits a draft that is newer than every checkpoint and whose files are complete
/// (returns its name), and removes other drafts and trash. A draft that cannot be completed now, for example on a full
/// disk, stays. Flushes the directory, so that its checkpoints survive a power failure. refused: another claimant has
/// the directory by now, and the drafts are its.
Result<std::optional<CheckpointName>> tidy_up(const std::string& directory, DirectoryClaim& claim);

/// Renames the folder to trash, then deletes it. A folder that cannot be removed is logged and left.
void discard(const std::string& directory, const std::string& name);

}  // namespace muster::runtime
