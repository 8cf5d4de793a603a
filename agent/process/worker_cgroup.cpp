#include "agent/process/worker_cgroup.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "rendezvous/base/kernel/cgroup_mounts.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

/// Nested groups beyond this are somebody's mistake, or an attack on our stack.
constexpr int depth_max = 16;

void remove_tree(const std::string& path, int depth) {
    if (::rmdir(path.c_str()) == 0 || depth == 0) return;
    const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()), &::closedir);
    if (!directory) return;
    while (const auto* entry = ::readdir(directory.get())) {
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.') remove_tree(cat(path, '/', entry->d_name), depth - 1);
    }
    ::rmdir(path.c_str());
}

}  // namespace

std::optional<WorkerCgroup> WorkerCgroup::create(std::string_view name) {
    const auto own = own_cgroup_directory(read_file("/proc/self/mountinfo"), read_file("/proc/self/cgroup"));
    if (own.empty()) return std::nullopt;
    return create_at(cat(own, '/', name));
}

std::optional<WorkerCgroup> WorkerCgroup::child(std::string_view name) const {
    return create_at(cat(path_, '/', name));
}

std::optional<WorkerCgroup> WorkerCgroup::create_at(std::string path) {
    WorkerCgroup made;
    made.path_ = std::move(path);
    remove_cgroup(made.path_);  // the used one, or what a guardian that was killed long ago left under our number
    if (::mkdir(made.path_.c_str(), 0755) != 0) return std::nullopt;
    made.directory_ = FileDescriptor(::open(made.path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    made.procs_ = FileDescriptor(::open(cat(made.path_, "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
    const bool can_kill = ::access(cat(made.path_, "/cgroup.kill").c_str(), W_OK) == 0;
    if (made.directory_.valid() && made.procs_.valid() && can_kill) return made;
    ::rmdir(made.path_.c_str());
    return std::nullopt;
}

bool kill_cgroup(const std::string& path) {
    const FileDescriptor file(::open(cat(path, "/cgroup.kill").c_str(), O_WRONLY | O_CLOEXEC));
    return file.valid() && ::write(file.get(), "1", 1) == 1;
}

void remove_cgroup(const std::string& path) {
    remove_tree(path, depth_max);
}

std::string standby_cgroup(const std::string& workers) {
    return cat(workers, "-standby");
}

void remove_cgroups(const std::string& workers) {
    if (workers.empty()) return;
    remove_cgroup(standby_cgroup(workers));
    remove_cgroup(workers);
}

}  // namespace muster::agent
