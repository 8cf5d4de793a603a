#include "worker_runtime/checkpoint/files/durable_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "rendezvous/base/check.h"
#include "rendezvous/base/hmac_sha256.h"
#include "rendezvous/base/system/replace_file.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/checkpoint/format/rank_file.h"

namespace muster::runtime {

namespace {

/// Large enough for a disk's full rate, small enough to be interrupted within milliseconds.
constexpr std::size_t write_bytes_max = 16u << 20;
constexpr mode_t folder_mode = 0750;

Error trouble(std::string_view what, const std::string& path) {
    return error_from_errno(errno, cat(what, ' ', path));
}

/// Opens a new file; without O_DIRECT if the file system does not support it.
Result<FileDescriptor> create(const std::string& path, int flags) {
    FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | flags, file_mode));
    if (file.valid()) return file;
    if (errno == EINVAL && (flags & O_DIRECT) != 0) return create(path, flags & ~O_DIRECT);
    return trouble("create", path);
}

Result<void> write_all(int file, std::span<const std::byte> bytes, const std::string& path,
                       const Interruption& interruption) {
    std::size_t at = 0;
    while (at < bytes.size()) {
        if (interruption) {
            if (auto go_on = interruption(); !go_on) return go_on;
        }
        const auto written =
            ::pwrite(file, bytes.data() + at, std::min(write_bytes_max, bytes.size() - at), static_cast<off_t>(at));
        if (written < 0 && (errno == EINTR || (errno == EINVAL && give_up_direct(file)))) continue;
        if (written < 0) return trouble("write", path);
        at += static_cast<std::size_t>(written);
        // After a short write, the offset is not aligned for direct writes.
        if (at < bytes.size() && at % file_alignment != 0) give_up_direct(file);
    }
    return {};
}

/// Returns the folder that contains `path`.
std::string parent_of(const std::string& path) {
    const auto slash = path.rfind('/', path.find_last_not_of('/'));
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}

/// Some file systems (NFS) report a failed write only when the file is closed.
Result<void> flush_and_close(FileDescriptor file, const std::string& path) {
    if (::fsync(file.get()) != 0) return trouble("flush", path);
    if (::close(file.release()) != 0 && errno != EINTR) return trouble("close", path);
    return {};
}

}  // namespace

bool give_up_direct(int file) {
    const int flags = ::fcntl(file, F_GETFL);
    return flags >= 0 && (flags & O_DIRECT) != 0 && ::fcntl(file, F_SETFL, flags & ~O_DIRECT) == 0;
}

Result<void> write_new_file(const std::string& path, std::span<const std::byte> memory, std::uint64_t size_bytes,
                            const Interruption& interruption) {
    const auto rounded = in_whole_blocks(size_bytes);
    MUSTER_CHECK(rounded <= memory.size(), rounded, memory.size());
    auto file = MUSTER_TRY(create(path, O_DIRECT));
    if (auto written = write_all(file.get(), memory.first(rounded), path, interruption); !written) return written;
    if (rounded != size_bytes && ::ftruncate(file.get(), static_cast<off_t>(size_bytes)) != 0) {
        return trouble("cut to size", path);
    }
    return flush_and_close(std::move(file), path);
}

Result<void> write_new_text(const std::string& path, std::string_view text) {
    auto file = MUSTER_TRY(create(path, 0));
    if (auto written = write_all(file.get(), std::as_bytes(std::span(text)), path, {}); !written) return written;
    return flush_and_close(std::move(file), path);
}

GrowingFile::GrowingFile(FileDescriptor file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

Result<GrowingFile> GrowingFile::create(const std::string& path) {
    auto file = MUSTER_TRY(runtime::create(path, 0));
    return GrowingFile(std::move(file), path);
}

Result<void> GrowingFile::append(std::span<const std::byte> bytes) {
    if (!write_whole(file_.get(), {reinterpret_cast<const char*>(bytes.data()), bytes.size()}))
        return trouble("write", path_);
    return {};
}

Result<void> GrowingFile::finish() {
    return flush_and_close(std::move(file_), path_);
}

Result<void> replace_text(const std::string& path, std::string_view text) {
    const auto fresh = path + ".new";
    if (::unlink(fresh.c_str()) != 0 && errno != ENOENT) return trouble("remove", fresh);
    if (auto written = write_new_text(fresh, text); !written) return written;
    if (::rename(fresh.c_str(), path.c_str()) != 0) return trouble("rename to", path);
    return flush_folder(parent_of(path));
}

Result<std::string> read_text(const std::string& path, std::uint64_t size_max) {
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat facts {};
    if (!file.valid() || ::fstat(file.get(), &facts) != 0) return trouble("open", path);
    if (!S_ISREG(facts.st_mode)) return Error{Errc::io, cat(path, " is no regular file")};
    if (static_cast<std::uint64_t>(facts.st_size) > size_max) {
        return Error{Errc::limit_exceeded, cat(path, " has ", facts.st_size, " bytes, more than ", size_max)};
    }
    auto text = read_front(file.get(), static_cast<std::size_t>(facts.st_size));
    return text ? Result<std::string>(*std::move(text)) : trouble("read", path);
}

Result<void> flush_file(const std::string& path) {
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file.valid() || ::fsync(file.get()) != 0) return trouble("flush", path);
    return {};
}

Result<void> flush_folder(const std::string& path) {
    const FileDescriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder.valid() || ::fsync(folder.get()) != 0) return trouble("flush the folder", path);
    return {};
}

Result<void> make_folder(const std::string& path) {
    if (::mkdir(path.c_str(), folder_mode) == 0) return {};
    auto refused = trouble("make the folder", path);
    struct stat facts {};
    if (::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode)) return {};
    return refused;
}

Result<void> make_folders(const std::string& path) {
    if (path.find_first_not_of('/') == std::string::npos) return {};  // the root
    const auto parent = parent_of(path);
    const bool made_now = !exists(path);
    if (made_now) {
        if (auto above = make_folders(parent); !above) return above;
    }
    if (auto made = make_folder(path); !made) return made;
    auto flushed = flush_folder(parent);
    // If the folder existed, its parent may not be readable for this user; then its creator must have flushed it.
    return made_now ? flushed : Result<void>();
}

std::string absolute_path(const std::string& path) {
    std::error_code failure;  // if the working directory was removed, the path is returned as it is
    const auto absolute = std::filesystem::absolute(path, failure);
    return failure ? path : absolute.lexically_normal().string();
}

bool has_our_owner(const struct stat& facts, const std::string& directory) {
    if (facts.st_uid == ::geteuid()) return true;
    struct stat other {};
    if (::stat(directory.c_str(), &other) == 0 && facts.st_uid == other.st_uid) return true;
    const auto probe = cat(directory, "/.owner-", hexadecimal(random_bytes(8)));
    const FileDescriptor made(::open(probe.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!made.valid()) return false;
    const bool same = ::fstat(made.get(), &other) == 0 && facts.st_uid == other.st_uid;
    ::unlink(probe.c_str());
    return same;
}

bool exists(const std::string& path) {
    return ::access(path.c_str(), F_OK) == 0;
}

Result<std::vector<std::string>> names_in(const std::string& path) {
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), ::closedir);
    if (!folder) return trouble("look into", path);
    std::vector<std::string> names;
    for (errno = 0; const auto* entry = ::readdir(folder.get()); errno = 0) {
        const std::string_view name = entry->d_name;
        if (name != "." && name != "..") names.emplace_back(name);
    }
    if (errno != 0) return trouble("look into", path);
    std::sort(names.begin(), names.end());
    return names;
}

}  // namespace muster::runtime
