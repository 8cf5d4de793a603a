#include "worker_runtime/checkpoint/files/folders.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/system/replace_file.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/checkpoint/files/verify.h"
#include "worker_runtime/checkpoint/format/safetensors.h"

namespace muster::runtime {

namespace {

/// Returns the first `size` bytes of a file, or fewer at its end.
Result<std::string> read_start(int file, std::size_t size, const std::string& path) {
    auto bytes = read_front(file, size);
    return bytes ? Result<std::string>(*std::move(bytes)) : error_from_errno(errno, cat("read ", path));
}

Result<std::uint64_t> file_size(const std::string& path) {
    struct stat facts {};
    if (::stat(path.c_str(), &facts) != 0) return error_from_errno(errno, path);
    return static_cast<std::uint64_t>(facts.st_size);
}

/// Reads the heads of all files of a draft.
Result<std::vector<RankFile>> read_rank_files(const std::string& folder, int world) {
    std::vector<RankFile> files;
    for (int rank = 0; rank < world; ++rank) {
        auto file = read_rank_file(cat(folder, '/', rank_file_name(rank)));
        if (!file) {
            return with_context(file.error(), cat("rank ", rank,
                                                  "'s part of the checkpoint (do all hosts share the "
                                                  "directory?)"));
        }
        files.push_back(std::move(*file));
    }
    return files;
}

/// Returns the first edition of this step that does not exist yet.
CheckpointName free_name(const std::string& directory, std::int64_t step) {
    CheckpointName name{.step = step};
    while (exists(cat(directory, '/', to_string(name)))) ++name.edition;
    return name;
}

Result<void> has_none_as_new(const std::string& directory, std::int64_t step) {
    auto listing = MUSTER_TRY(list_directory(directory));
    if (listing.checkpoints.empty() || listing.checkpoints.front().step < step) return {};
    return Error{Errc::already_exists, cat(directory, " has ", to_string(listing.checkpoints.front()),
                                           " already, and step ", step, " is not newer")};
}

/// True for a fault of the disk or of this process, such as a full disk: the files may be whole.
bool may_pass(const Error& error) {
    return error.code == Errc::io || error.code == Errc::limit_exceeded || error.code == Errc::permission_denied ||
           error.code == Errc::timed_out;
}

/// Updates LATEST, which is for people and scripts; muster only checks that it exists. So a failure does not affect the
/// checkpoint. It is flushed before an older checkpoint is removed, so it never names a removed one; if it cannot be
/// written it is deleted. Called under the commit lock, so of two committing processes the later one's name stays.
void point_latest(const std::string& directory, const CheckpointName& name) {
    const auto latest = directory + "/LATEST";
    if (auto told = replace_text(latest, to_string(name) + "\n"); !told) {
        ::unlink(latest.c_str());
        log(LogLevel::warning, told.error().context);
    }
}

}  // namespace

Result<DirectoryListing> list_directory(const std::string& directory) {
    auto names = MUSTER_TRY(names_in(directory));
    DirectoryListing listing;
    for (const auto& name : names) {
        if (const auto checkpoint = parse_checkpoint_name(name)) listing.checkpoints.push_back(*checkpoint);
        if (auto draft = parse_draft_name(name)) listing.drafts.push_back(std::move(*draft));
        if (name.starts_with(trash_prefix)) listing.trash.push_back(name);
    }
    std::sort(listing.checkpoints.rbegin(), listing.checkpoints.rend());
    return listing;
}

Result<Manifest> read_manifest(const std::string& folder) {
    auto text = MUSTER_TRY(read_text(cat(folder, '/', manifest_name), manifest_bytes_max));
    auto manifest = MUSTER_TRY(parse_manifest(text));
    for (const auto& file : manifest.files) {
        auto size = MUSTER_TRY(file_size(cat(folder, '/', file.name)));
        if (size != file.bytes) {
            return Error{Errc::bad_frame, cat(file.name, " has ", size, " bytes, not ", file.bytes)};
        }
    }
    return manifest;
}

Result<RankFile> read_rank_file(const std::string& path) {
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat facts {};
    if (!file.valid() || ::fstat(file.get(), &facts) != 0) return error_from_errno(errno, cat("open ", path));
    const auto file_bytes = static_cast<std::uint64_t>(facts.st_size);
    auto first = MUSTER_TRY(read_start(file.get(), safetensors_length_bytes, path));
    auto data_begin = safetensors_data_begin(first, file_bytes);
    if (!data_begin) return with_context(data_begin.error(), path);
    auto head = MUSTER_TRY(read_start(file.get(), *data_begin, path));
    if (head.size() < *data_begin) return Error{Errc::bad_frame, cat(path, ": cut short while it was read")};
    auto parsed = parse_rank_file(head, file_bytes);
    return parsed ? std::move(parsed) : with_context(parsed.error(), path);
}

Result<void> complete_draft(const std::string& folder, const std::vector<std::uint32_t>& checksums) {
    auto files = MUSTER_TRY(read_rank_files(folder, static_cast<int>(checksums.size())));
    auto manifest = MUSTER_TRY(make_manifest(files, checksums));
    MUSTER_TRY(write_new_text(cat(folder, '/', manifest_name), encode_manifest(manifest)));
    return flush_folder(folder);
}

Result<CheckpointName> commit_draft(const std::string& directory, const DraftName& draft, DirectoryClaim& claim,
                                    const std::function<Result<void>()>& first) {
    CheckpointName name;
    MUSTER_TRY(claim.exclusively([&]() -> Result<void> {
        MUSTER_TRY(claim.is_visitor() ? has_none_as_new(directory, draft.step) : Result<void>());
        MUSTER_TRY(first ? first() : Result<void>());
        name = free_name(directory, draft.step);
        const auto from = cat(directory, '/', to_string(draft)), to = cat(directory, '/', to_string(name));
        if (::rename(from.c_str(), to.c_str()) != 0) return error_from_errno(errno, cat("rename ", from));
        MUSTER_TRY(flush_folder(directory));
        point_latest(directory, name);
        return {};
    }));
    return name;
}

Result<void> is_our_draft(const std::string& directory, const DraftName& draft) {
    const auto folder = cat(directory, '/', to_string(draft));
    struct stat facts {};
    if (::lstat(folder.c_str(), &facts) != 0) return error_from_errno(errno, folder);
    if (S_ISDIR(facts.st_mode) && has_our_owner(facts, directory)) return {};
    return Error{Errc::refused, cat(folder, " is no folder of this user (uid ", facts.st_uid,
                                    " made it), so it is not completed; remove it if it is not needed")};
}

Result<CheckpointName> finish_draft(const std::string& directory, const DraftName& draft, DirectoryClaim& claim,
                                    const Interruption& interruption) {
    const auto folder = cat(directory, '/', to_string(draft));
    MUSTER_TRY(is_our_draft(directory, draft));
    const auto head = MUSTER_TRY(read_rank_file(cat(folder, '/', rank_file_name(0))));
    for (int rank = 0; rank < head.world; ++rank) {
        const auto path = cat(folder, '/', rank_file_name(rank));
        if (!exists(path)) return Error{Errc::not_found, cat(path, " is missing")};
    }
    std::vector<std::uint32_t> checksums;
    for (int rank = 0; rank < head.world; ++rank) {
        MUSTER_TRY(interruption ? interruption() : Result<void>());
        const auto path = cat(folder, '/', rank_file_name(rank));
        // The writer may have been killed before its flush: data that can be read need not be on disk.
        MUSTER_TRY(flush_file(path));
        checksums.push_back(MUSTER_TRY(verify_rank_file(path)));
    }
    return commit_draft(directory, draft, claim, [&]() -> Result<void> {
        // A manifest may exist already, possibly a partial one.
        ::unlink(cat(folder, '/', manifest_name).c_str());
        return complete_draft(folder, checksums);
    });
}

Result<std::optional<CheckpointName>> tidy_up(const std::string& directory, DirectoryClaim& claim) {
    auto listing = MUSTER_TRY(list_directory(directory));
    // The process that committed the newest may have been killed before its flush, and the job now continues from
    // there.
    if (!listing.checkpoints.empty()) {
        MUSTER_TRY(flush_folder(directory));
    }
    // Trash is removed first: a draft may need the space.
    for (const auto& name : listing.trash) {
        std::error_code failure;
        std::filesystem::remove_all(cat(directory, '/', name), failure);
    }
    std::sort(listing.drafts.begin(), listing.drafts.end(), [](const DraftName& a, const DraftName& b) {
        return std::pair(a.step, a.round) > std::pair(b.step, b.round);
    });
    std::optional<CheckpointName> adopted;
    for (const auto& draft : listing.drafts) {
        if (auto ours = is_our_draft(directory, draft); !ours) {
            log(LogLevel::warning, ours.error().context);
            continue;
        }
        const bool newest = listing.checkpoints.empty() || draft.step > listing.checkpoints.front().step;
        if (newest && !adopted) {
            auto finished = finish_draft(directory, draft, claim);
            if (finished) adopted = *finished;
            if (!finished && may_pass(finished.error())) {
                log(LogLevel::warning, directory, '/', to_string(draft),
                    " may be complete and stays for the next start: ", finished.error().context);
                continue;
            }
        }
        if (!adopted || adopted->step != draft.step || exists(cat(directory, '/', to_string(draft)))) {
            // Reading a draft may take minutes. A later round may own the directory by now, and these drafts with it.
            MUSTER_TRY(claim.exclusively([] { return Result<void>(); }));
            discard(directory, to_string(draft));
        }
    }
    return adopted;
}

void discard(const std::string& directory, const std::string& name) {
    const auto from = cat(directory, '/', name), to = cat(directory, '/', trash_prefix, name);
    std::error_code failure;
    std::filesystem::remove_all(to, failure);
    if (::rename(from.c_str(), to.c_str()) != 0) {
        if (errno != ENOENT) log(LogLevel::warning, error_from_errno(errno, cat("remove ", from)).context);
        return;
    }
    std::filesystem::remove_all(to, failure);
    if (failure) log(LogLevel::warning, "remove ", to, ": ", failure.message());
}

}  // namespace muster::runtime
