#include "tests/integration/checkpoint/disk_recorder.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <optional>

#include "rendezvous/base/check.h"
#include "rendezvous/base/text/text.h"

namespace muster::test {

namespace {

constexpr std::uint64_t page_bytes = 4096;

std::string text_at(pid_t process, std::uint64_t address) {
    std::string text;
    while (text.size() < PATH_MAX) {
        std::array<char, page_bytes> part;
        const iovec here{part.data(), page_bytes - (address + text.size()) % page_bytes};
        const iovec there{reinterpret_cast<void*>(address + text.size()), here.iov_len};
        const auto got = ::process_vm_readv(process, &here, 1, &there, 1, 0);
        if (got <= 0) break;
        const auto end = std::find(part.begin(), part.begin() + got, '\0');
        text.append(part.begin(), end);
        if (end != part.begin() + got) break;
    }
    return text;
}

std::string path_of(pid_t process, std::uint64_t descriptor) {
    std::array<char, PATH_MAX> path;
    const auto link = cat("/proc/", process, "/fd/", static_cast<int>(descriptor));
    const auto size = ::readlink(link.c_str(), path.data(), path.size());
    return size > 0 ? std::string(path.data(), static_cast<std::size_t>(size)) : "";
}

std::string path_at(pid_t process, std::uint64_t folder, std::uint64_t address) {
    auto path = text_at(process, address);
    const bool relative = !path.starts_with('/') && static_cast<int>(folder) != AT_FDCWD;
    return relative ? cat(path_of(process, folder), '/', path) : path;
}

std::string parent_of(const std::string& path) {
    return path.substr(0, path.rfind('/'));
}

std::string name_of(const std::string& path) {
    return path.substr(path.rfind('/') + 1);
}

std::optional<unsigned long> inode_of(const std::string& path) {
    struct stat facts {};
    if (::lstat(path.c_str(), &facts) != 0) return std::nullopt;
    return facts.st_ino;
}

std::string contents_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

/// What a call means, whichever of its forms it has.
enum class Call { open, write, rename, make_folder, remove, flush, strange, other };

Call meaning(std::uint64_t number) {
    switch (number) {
        case SYS_open:
        case SYS_openat:
        case SYS_creat: return Call::open;
        case SYS_write:
        case SYS_pwrite64:
        case SYS_writev:
        case SYS_pwritev:
        case SYS_pwritev2:
        case SYS_ftruncate:
        case SYS_fallocate: return Call::write;
        case SYS_rename:
        case SYS_renameat:
        case SYS_renameat2: return Call::rename;
        case SYS_mkdir:
        case SYS_mkdirat: return Call::make_folder;
        case SYS_unlink:
        case SYS_unlinkat:
        case SYS_rmdir: return Call::remove;
        case SYS_fsync:
        case SYS_fdatasync: return Call::flush;
        // Nobody here uses them; who begins to must have them recorded.
        case SYS_truncate:
        case SYS_link:
        case SYS_linkat:
        case SYS_symlink:
        case SYS_symlinkat:
        case SYS_sendfile:
        case SYS_copy_file_range:
        case SYS_sync:
        case SYS_syncfs:
        case SYS_sync_file_range:
        case SYS_openat2:
        case SYS_io_uring_setup: return Call::strange;
        default: return Call::other;
    }
}

}  // namespace

DiskRecorder::DiskRecorder(std::string root, const SharedBoard& board) : root_(std::move(root)), board_(board) {
    struct stat facts {};
    MUSTER_CHECK(::stat(root_.c_str(), &facts) == 0, root_);
    numbers_[facts.st_ino] = 0;
}

bool DiskRecorder::below(const std::string& path) const {
    return path == root_ || path.starts_with(root_ + "/");
}

int DiskRecorder::number(const std::string& path) {
    const auto inode = inode_of(path);
    MUSTER_CHECK(inode, path);
    // It is there, but the stop behind the call that has made it may be seen later than what others do with it.
    for (auto at = under_way_.begin(); !numbers_.contains(*inode) && at != under_way_.end(); ++at) {
        if (at->second.path != path || !has_happened(at->second)) continue;
        const auto maker = std::move(at->second);
        under_way_.erase(at);
        record(maker);
        break;
    }
    const auto found = numbers_.find(*inode);
    MUSTER_CHECK(found != numbers_.end(), path);
    return found->second;
}

void DiskRecorder::watch(const SyscallStop& stop) {
    if (meaning(stop.number) == Call::strange) misunderstood_ = cat("system call ", stop.number);
    if (stop.moment == Moment::entry) return enter(stop);
    const auto call = under_way_.extract(stop.thread);
    if (!call.empty() && stop.result >= 0) record(call.mapped());
}

void DiskRecorder::settle() {
    while (!under_way_.empty()) {
        const auto call = under_way_.extract(under_way_.begin());
        if (has_happened(call.mapped())) record(call.mapped());
    }
}

bool DiskRecorder::has_happened(const Before& before) const {
    if (!below(before.path)) return false;
    const auto inode = inode_of(before.path);
    switch (meaning(before.stop.number)) {
        case Call::open:
        case Call::make_folder: return !before.inode && inode && !numbers_.contains(*inode);
        case Call::write: return inode.has_value();
        case Call::rename: return !inode && inode_of(before.new_path);
        case Call::remove: return before.inode && !inode;
        case Call::flush:
        case Call::strange:
        case Call::other: return false;
    }
    return false;
}

std::string DiskRecorder::path_of_call(const SyscallStop& stop) {
    switch (stop.number) {
        case SYS_openat:
        case SYS_mkdirat:
        case SYS_unlinkat:
        case SYS_renameat:
        case SYS_renameat2: return path_at(stop.process, stop.arguments[0], stop.arguments[1]);
        case SYS_open:
        case SYS_creat:
        case SYS_mkdir:
        case SYS_unlink:
        case SYS_rmdir:
        case SYS_rename: return path_at(stop.process, static_cast<std::uint64_t>(AT_FDCWD), stop.arguments[0]);
        default: break;
    }
    const auto call = meaning(stop.number);
    return call == Call::write || call == Call::flush ? path_of(stop.process, stop.arguments[0]) : "";
}

void DiskRecorder::enter(const SyscallStop& stop) {
    auto& before = under_way_[stop.thread];
    before = {.stop = stop, .path = {}, .new_path = {}};
    before.safe = board_.acknowledged();
    before.path = path_of_call(stop);
    before.inode = inode_of(before.path);
    if (stop.number == SYS_rename) {
        before.new_path = path_at(stop.process, static_cast<std::uint64_t>(AT_FDCWD), stop.arguments[1]);
    } else if (meaning(stop.number) == Call::rename) {
        before.new_path = path_at(stop.process, stop.arguments[2], stop.arguments[3]);
    }
    before.replaced = inode_of(before.new_path);
}

void DiskRecorder::add(DiskEvent event, const Before& before) {
    event.safe_before = before.safe;
    events_.push_back(std::move(event));
}

void DiskRecorder::add_name(DiskEvent::Kind kind, const Before& before) {
    const auto folder = number(parent_of(before.path));
    int node = 0;
    if (kind == DiskEvent::Kind::remove) {
        numbers_.erase(before.inode.value());  // the next file may get it
    } else {
        node = next_++;
        numbers_[inode_of(before.path).value()] = node;
    }
    add({.kind = kind, .folder = folder, .node = node, .name = name_of(before.path)}, before);
}

void DiskRecorder::record(const Before& before) {
    const auto& stop = before.stop;
    if (!below(before.path)) return;
    switch (meaning(stop.number)) {
        case Call::open: {
            const auto flags = stop.number == SYS_open ? stop.arguments[1] : stop.arguments[2];
            if ((flags & O_TRUNC) != 0 || stop.number == SYS_creat) misunderstood_ = cat("O_TRUNC on ", before.path);
            if ((flags & O_CREAT) != 0 && !before.inode) add_name(DiskEvent::Kind::make_file, before);
            return;
        }
        case Call::write:
            return add({.kind = DiskEvent::Kind::contents,
                        .folder = number(before.path),
                        .contents = contents_of(before.path)},
                       before);
        case Call::rename:
            if (parent_of(before.path) != parent_of(before.new_path)) misunderstood_ = "a rename between folders";
            if (before.replaced) numbers_.erase(*before.replaced);
            return add({.kind = DiskEvent::Kind::rename,
                        .folder = number(parent_of(before.path)),
                        .node = number(before.new_path),
                        .name = name_of(before.path),
                        .new_name = name_of(before.new_path)},
                       before);
        case Call::make_folder: return add_name(DiskEvent::Kind::make_folder, before);
        case Call::remove: return add_name(DiskEvent::Kind::remove, before);
        case Call::flush:
            return add({.kind = DiskEvent::Kind::flush, .folder = number(before.path), .what = flush_of(stop)}, before);
        case Call::strange:
        case Call::other: return;
    }
}

std::string DiskRecorder::flush_of(const SyscallStop& stop) const {
    if (meaning(stop.number) != Call::flush) return {};
    const auto path = path_of(stop.process, stop.arguments[0]);
    if (!below(path)) return {};
    const auto name = name_of(path);
    if (name.starts_with("rank_")) return "a rank's file";
    if (name.find(".tmp-") != std::string::npos) return "the draft's folder";
    struct stat facts {};
    if (::stat(path.c_str(), &facts) != 0 || !S_ISDIR(facts.st_mode)) return name;
    const auto folder = numbers_.at(facts.st_ino);
    const auto last = std::find_if(events_.rbegin(), events_.rend(), [&](const DiskEvent& event) {
        return event.folder == folder && event.kind != DiskEvent::Kind::flush;
    });
    if (last == events_.rend()) return "a folder in which nothing was done";
    if (last->kind != DiskEvent::Kind::rename) {
        return inode_of(path + "/LOCK") ? "the directory at the start" : "a folder above";
    }
    const bool text = last->new_name == "LATEST" || last->new_name == "IDENTITY";
    return text ? cat("the directory behind ", last->new_name) : "the directory behind a commit";
}

}  // namespace muster::test
