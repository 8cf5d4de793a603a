// Standby processes: children of the guardian that have imported what a worker imports, and wait. They belong to no
// round, so the end of a round's tree (Cause::asked) leaves them alone; every other kill ends them.
//
// A Spawn that names a standby process gives it the worker's image and streams over its socket. It answers "g" when it
// is about to run the program. If it dies before, or does not answer within takeover_max, it is killed and the worker
// is started normally.
#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "agent/process/guardian_loop.h"
#include "agent/process/process_tree.h"
#include "rendezvous/base/sockets/datagram.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace wire = guardian_wire;

namespace {

/// It only sets variables and descriptors meanwhile, which takes about a millisecond.
constexpr Duration takeover_max = 500ms;
constexpr std::size_t answer_max_bytes = 16;

bool move_to(const WorkerCgroup& group, pid_t pid) {
    const auto text = cat(pid);
    return ::write(group.procs(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

}  // namespace

void GuardianLoop::start_standby(const wire::Spawn& spawn, std::vector<FileDescriptor>& fds) {
    int ends[2] = {-1, -1};
    SpawnResult result;
    if (cgroup_) ::mkdir(standby_cgroup(cgroup_path_).c_str(), 0755);  // may be there
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) result.failure = {errno, "socketpair"};
    FileDescriptor own(ends[0]);
    const FileDescriptor childs(ends[1]);
    if (own.valid()) result = try_spawn(spawn, fds, childs.get());
    if (result.pid == 0) {
        const auto at = std::chrono::steady_clock::now().time_since_epoch().count();
        return send(wire::Ended{.id = spawn.id, .end = std::move(result.failure), .at_ns = at});
    }
    standbys_.push_back({spawn.id, result.pid, std::move(own), std::move(result.report), {}, false});
    children_left_ = true;
}

void GuardianLoop::check_standbys() {
    for (auto& standby : standbys_) {
        if (standby.report.valid()) {
            if (read_start(standby)) send(wire::Spawned{.id = standby.id, .pid = standby.pid});
            continue;
        }
        if (standby.ready || !standby.socket.valid()) continue;
        const auto answer = receive_datagram(standby.socket.get(), answer_max_bytes, 0);
        if (!answer && errno == EAGAIN) continue;
        const bool of_own_slot = answer && answer->bytes == "R";
        standby.ready = of_own_slot || (answer && answer->bytes == "r");
        if (standby.ready)
            send(wire::StandbyReady{.id = standby.id, .of_own_slot = of_own_slot});
        else  // it ends, which is reported when it is reaped
            standby.socket.reset();
    }
}

void GuardianLoop::end_standby(std::uint64_t id) {
    const auto at = std::chrono::steady_clock::now().time_since_epoch().count();
    std::erase_if(standbys_, [&](const Standby& standby) {
        if (id != 0 && standby.id != id) return false;
        children_left_ = true;  // until it has been reaped, and what it has started
        ::kill(standby.pid, SIGKILL);
        if (cgroup_) kill_cgroup(cat(standby_cgroup(cgroup_path_), '/', standby.id));
        send(wire::Ended{.id = standby.id, .pid = standby.pid, .end = Signaled{.signal = SIGKILL}, .at_ns = at});
        return true;
    });
}

void GuardianLoop::report_standby_end(pid_t pid, const WorkerEnd& end, Instant now) {
    const auto standby = std::ranges::find(standbys_, pid, &Standby::pid);
    if (standby == standbys_.end()) return;
    read_start(*standby);
    wire::Ended ended{.id = standby->id, .pid = pid, .end = end, .at_ns = now.time_since_epoch().count()};
    if (standby->failure) ended.end = *standby->failure;
    send(ended);
    if (cgroup_) remove_cgroup(cat(standby_cgroup(cgroup_path_), '/', standby->id));
    standbys_.erase(standby);
}

bool GuardianLoop::take_over(const wire::Spawn& spawn, std::vector<FileDescriptor>& fds) {
    const auto standby = std::ranges::find(standbys_, spawn.standby, &Standby::id);
    if (standby == standbys_.end() || !standby->ready || killing_ || fds.size() != spawn_descriptors(spawn))
        return false;
    const auto own = cgroup_ ? cgroup_->child(cat("worker-", spawn.id)) : std::nullopt;
    const auto& group = own ? own : cgroup_;
    const std::array<int, 3> given{fds[0].get(), spawn.has_stdout ? fds[1].get() : STDOUT_FILENO,
                                   spawn.has_stderr ? fds.back().get() : STDERR_FILENO};
    if ((group && !move_to(*group, standby->pid)) || send_datagram(standby->socket.get(), "t", given) != 0) {
        end_standby(spawn.standby);
        if (own) kill_cgroup(own->path());
        return false;
    }
    if (cgroup_) remove_cgroup(cat(standby_cgroup(cgroup_path_), '/', standby->id));
    Takeover takeover{spawn, std::move(fds), std::chrono::steady_clock::now() + takeover_max, false};
    workers_.push_back({spawn.id, standby->pid, std::move(standby->socket), {}, std::move(takeover)});
    standbys_.erase(standby);
    children_left_ = true;
    return true;
}

void GuardianLoop::check_takeover(Worker& worker, Instant now) {
    const auto answer = receive_datagram(worker.report.get(), answer_max_bytes, 0);
    if (!answer && errno == EAGAIN && now < worker.takeover->until) return;
    const bool done = answer && answer->bytes == "g";
    if (done || killing_) return end_takeover(worker);
    start_normally(worker);
}

void GuardianLoop::end_takeover(Worker& worker) {
    worker.takeover.reset();
    worker.report.reset();
    send(wire::Spawned{.id = worker.id, .pid = worker.pid, .from_standby = true});
}

void GuardianLoop::start_normally(Worker& worker) {
    if (!worker.takeover->reaped) ::kill(worker.pid, SIGKILL);  // reaped as a process that is not known
    auto takeover = std::move(*worker.takeover);
    worker.takeover.reset();
    if (cgroup_) {
        // It may have started others.
        kill_cgroup(cat(standby_cgroup(cgroup_path_), '/', takeover.spawn.standby));
        kill_cgroup(cat(cgroup_->path(), "/worker-", worker.id));
    }
    auto result = try_spawn(takeover.spawn, takeover.fds);
    worker.pid = result.pid;
    worker.report = std::move(result.report);
    if (result.pid != 0) return;
    const auto at = std::chrono::steady_clock::now().time_since_epoch().count();
    send(wire::Ended{.id = worker.id, .end = std::move(result.failure), .at_ns = at});
}

bool GuardianLoop::has_other_children() const {
    if (const auto listed = listed_children(::getpid()))
        return std::ranges::any_of(*listed, [&](pid_t pid) { return !is_spared(pid); });
    return std::ranges::any_of(all_processes(), [&](const ProcessFacts& facts) {
        return facts.parent == ::getpid() && !is_spared(facts.pid);
    });
}

}  // namespace muster::agent
