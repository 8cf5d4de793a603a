#include "worker_runtime/checkpoint/local_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "rendezvous/base/log.h"
#include "rendezvous/base/system/lock_file.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/checkpoint/files/verify.h"
#include "worker_runtime/checkpoint/format/names.h"
#include "worker_runtime/shared_memory/shared_segment.h"

namespace muster::runtime {

namespace {

constexpr std::string_view fresh_mark = ".new";

/// Warns about files of an earlier checkpoint directory at the same path.
void tell_of_others(const std::string& directory, const std::string& word) {
    const auto names = names_in(directory);
    if (!names) return;
    const auto sum = word.substr(0, word.find('-'));
    for (const auto& name : *names) {
        if (name == word || name.substr(0, name.find('-')) != sum) continue;
        log(LogLevel::warning, directory, '/', name, " belongs to checkpoints from before the directory was emptied ",
            "or replaced, so it is ignored; remove it if it is not needed");
    }
}

/// Reads a whole file into memory that can be mapped like an agent's copy.
Result<OfferedSnapshot> read_copy(const std::string& path, int file) {
    struct stat facts {};
    if (::fstat(file, &facts) != 0) return error_from_errno(errno, cat("look at ", path));
    const auto bytes = static_cast<std::uint64_t>(facts.st_size);
    auto room =
        MUSTER_TRY(SharedSegment::create(in_whole_blocks(std::max<std::uint64_t>(bytes, 1)), cat("reading ", path)));
    std::size_t at = 0;
    MUSTER_TRY(read_ranges(path, {{0, bytes}}, [&](std::span<const std::byte> part) -> Result<void> {
        std::memcpy(room.data() + at, part.data(), part.size());
        at += part.size();
        return {};
    }));
    FileDescriptor memory(::fcntl(room.descriptor().get(), F_DUPFD_CLOEXEC, 3));
    if (!memory.valid()) return error_from_errno(errno, cat("keep ", path));
    return OfferedSnapshot{.memory = std::move(memory), .size_bytes = bytes};
}

}  // namespace

LocalDirectory LocalDirectory::open(const std::string& directory, const std::string& word) {
    const auto above = absolute_path(directory);
    LocalDirectory local(cat(above, '/', word));
    // The process that creates the folder warns, so there is one warning per host.
    if (!exists(local.folder_)) tell_of_others(above, word);
    if (auto made = make_folders(local.folder_); !made)
        log(LogLevel::warning, "make the local checkpoint directory: ", made.error().context);
    return local;
}

Result<void> LocalDirectory::put(const RankFile& file, std::span<const std::byte> memory,
                                 const Interruption& interruption) {
    if (!exists(folder_)) {
        MUSTER_TRY(make_folders(folder_));
    }
    const auto path = cat(folder_, '/', to_string(LocalName{.step = file.step, .rank = file.rank}));
    const auto fresh = cat(path, fresh_mark);
    if (::unlink(fresh.c_str()) != 0 && errno != ENOENT) return error_from_errno(errno, cat("remove ", fresh));
    if (auto written = write_new_file(fresh, memory, file.size_bytes, interruption); !written) {
        ::unlink(fresh.c_str());  // a partial file would only use space on a disk that may be full
        return written;
    }
    if (::rename(fresh.c_str(), path.c_str()) != 0) {
        auto refused = error_from_errno(errno, cat("rename ", fresh));
        ::unlink(fresh.c_str());
        return refused;
    }
    MUSTER_TRY(flush_folder(folder_));
    auto names = MUSTER_TRY(names_in(folder_));
    // After training has gone back, it is unknown whether the steps before this one are complete.
    const auto whole = last_step_ < file.step ? last_step_ : -1;
    const bool needed = put_before_ == whole || put_before_ == last_put_ || file.step <= last_put_;
    const auto given_up = needed ? -1 : put_before_;
    const auto own_fresh = cat('.', rank_file_name(file.rank), fresh_mark);
    const auto is_gone = [&](const std::string& name) {
        // This rank is not writing one now, but another rank may be.
        if (name.ends_with(own_fresh)) return true;
        const auto other = parse_local_name(name);
        // A later step of another rank is obsolete: that rank went back too and has not saved since.
        return other && (other->step < whole || other->step > file.step || other->step == given_up);
    };
    for (const auto& name : names) {
        if (is_gone(name)) ::unlink(cat(folder_, '/', name).c_str());
    }
    put_before_ = std::exchange(last_put_, file.step);
    return {};
}

std::int64_t LocalDirectory::newest() const {
    std::int64_t newest = -1;
    const auto names = names_in(folder_);
    if (!names) return newest;
    for (const auto& name : *names) {
        if (const auto file = parse_local_name(name)) newest = std::max(newest, file->step);
    }
    return newest;
}

std::vector<OfferedSnapshot> LocalDirectory::take(std::size_t most) {
    std::vector<OfferedSnapshot> copies;
    auto names = names_in(folder_);
    if (!names) return copies;
    std::erase_if(*names, [](const std::string& name) { return !parse_local_name(name); });
    std::stable_sort(names->begin(), names->end(), [](const std::string& a, const std::string& b) {
        return parse_local_name(a)->step > parse_local_name(b)->step;
    });
    for (const auto& name : *names) {
        if (copies.size() == most) break;
        const auto path = cat(folder_, '/', name);
        auto file = open_locked(path);
        if (!file.valid()) continue;  // removed, or in use elsewhere
        auto copy = read_copy(path, file.get());
        if (!copy) {
            log(LogLevel::warning, copy.error().context, "; the other sources are used");
            continue;
        }
        copies.push_back(std::move(*copy));
        taken_.push_back(std::move(file));
    }
    return copies;
}

}  // namespace muster::runtime
