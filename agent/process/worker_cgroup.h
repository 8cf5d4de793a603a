// A control group for the workers, if the system delegates one: one write then kills all of them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/file_descriptor.h"

namespace muster::agent {

/// An empty child of our own group, made for one agent's workers, each of which gets a group within it.
class WorkerCgroup {
  public:
    /// Nothing where there is no v2 hierarchy, it is not ours to write, or the kernel (before 5.14) has no cgroup.kill.
    static std::optional<WorkerCgroup> create(std::string_view name);

    /// The same at a path that is known to be good; an empty group that is there is replaced.
    static std::optional<WorkerCgroup> create_at(std::string path);

    /// An empty group in the place of this one, which must be empty. A group that has been killed must not be used
    /// again: in Linux 6.15 to (at least) 6.18 a process that is cloned into it (CLONE_INTO_CGROUP) dies at once,
    /// because the kernel compares the count of kills with that of the parent's group.
    static std::optional<WorkerCgroup> renew(WorkerCgroup used) { return create_at(std::move(used.path_)); }

    /// A group within this one. Nothing where the system has no further group to give.
    [[nodiscard]] std::optional<WorkerCgroup> child(std::string_view name) const;

    [[nodiscard]] const std::string& path() const { return path_; }
    /// For CLONE_INTO_CGROUP.
    [[nodiscard]] int directory() const { return directory_.get(); }
    /// Takes the pid (or "0": the writer itself) that moves in.
    [[nodiscard]] int procs() const { return procs_.get(); }

  private:
    std::string path_;
    FileDescriptor directory_;
    FileDescriptor procs_;
};

/// SIGKILL for every process in the group and below. False if the group is gone or does not take it.
bool kill_cgroup(const std::string& path);
/// Removes the group and the empty groups that workers made below it.
void remove_cgroup(const std::string& path);

/// The group of an agent's standby processes: beside that of its workers, which is killed with a round.
std::string standby_cgroup(const std::string& workers);
/// Removes both. Nothing happens where `workers` is empty.
void remove_cgroups(const std::string& workers);

}  // namespace muster::agent
