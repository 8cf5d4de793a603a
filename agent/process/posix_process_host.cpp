// Commands go to the guardian through guardian_pair; pipes come from output_pump. An Ended from the guardian becomes a
// WorkerEnded when the pump has read the worker's last output. When the guardian is lost, the pair removes its tree and
// changes to the reserve; starts wait meanwhile, and so does what is to end the workers.
#include "agent/process/posix_process_host.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>

#include "rendezvous/base/log.h"
#include "rendezvous/base/system/replace_file.h"

namespace muster::agent {

namespace asio = boost::asio;
namespace wire = guardian_wire;

namespace {

/// The pump's own limit is 100 ms. This one covers a pump that hangs in a write. It is longer, because the thread of a
/// busy machine may come late to the worker's last words.
constexpr Duration pump_settle_max = 2s;

FileDescriptor image_file(const std::string& image) {
    FileDescriptor file(::memfd_create("muster-worker", MFD_CLOEXEC));
    if (file.valid() && !write_whole(file.get(), image)) return {};
    return file;
}

}  // namespace

PosixProcessHost::PosixProcessHost(asio::io_context& context, GuardianHandle guardian, Console console)
    : context_(context),
      guardians_(std::make_shared<GuardianPair>(context, std::move(guardian))),
      pump_(OutputPump::make(console)) {}

ClosingPtr<PosixProcessHost> PosixProcessHost::make(asio::io_context& context, GuardianHandle guardian,
                                                    Console console) {
    std::shared_ptr<PosixProcessHost> made(new PosixProcessHost(context, std::move(guardian), console));
    made->begin();
    return closing(std::move(made));
}

void PosixProcessHost::begin() {
    guardians_->on_message = [this](const wire::Message& message) { handle(message); };
    guardians_->on_reaped = [this](pid_t pid, WorkerEnd end) { reaped(pid, std::move(end)); };
    guardians_->on_lost = [this](const std::string& why, Instant at, bool replaced) {
        guardian_lost(GuardianLost{.why = why, .at = at, .replaced = replaced});
    };
    guardians_->begin();
}

void PosixProcessHost::close() {
    closed_ = true;
    standbys_.reset();  // the guardian ends them
    for (auto& [id, worker] : workers_) worker.settle_timer.reset();
    guardians_->end();
    pump_.reset();
}

/// True while the guardian is replaced: then `call` is made when that is over.
bool PosixProcessHost::held_back(std::function<void()> call) {
    if (guardians_->state() != GuardianPair::State::changing) return false;
    held_back_.push_back(std::move(call));
    return true;
}

void PosixProcessHost::start_one(const WorkerCommand& command) {
    const auto id = next_id_++;
    workers_[id].local_rank = command.local_rank;
    if (guardians_->state() == GuardianPair::State::none) return refuse(id, {EPIPE, "the guardian is gone"});
    auto streams = pump_->open(id, command);
    if (streams.has_error()) return refuse(id, streams.error());
    wire::Spawn spawn{.id = id, .has_stdout = streams->stdout_fd.valid(), .has_stderr = streams->stderr_fd.valid()};
    if (standbys_) spawn.standby = standbys_->choose(command);
    workers_[id].had_standby = spawn.standby != 0;
    std::vector<FileDescriptor> fds;
    if (spawn.has_stdout) fds.push_back(std::move(streams->stdout_fd));
    if (spawn.has_stderr) fds.push_back(std::move(streams->stderr_fd));
    send_spawn(spawn, command, std::move(fds));
}

void PosixProcessHost::start(std::vector<WorkerCommand> commands) {
    if (held_back([this, commands] { start(commands); })) return;
    guardians_->ask_for_reserve();
    for (const auto& command : commands) start_one(command);
    if (standbys_) standbys_->round_begun();
}

void PosixProcessHost::signal_leaders(int signal) {
    if (held_back([this, signal] { signal_leaders(signal); })) return;
    guardians_->send(wire::Signal{signal});
}

void PosixProcessHost::send_spawn(wire::Spawn spawn, const WorkerCommand& command,
                                  std::vector<FileDescriptor> streams) {
    const auto image = wire::image_bytes(command);
    if (image.empty()) return refuse(spawn.id, {E2BIG, "read argv and environment (16 MiB at most, no NUL bytes)"});
    auto file = image_file(image);
    if (!file.valid()) return refuse(spawn.id, {errno, "memfd_create"});
    streams.insert(streams.begin(), std::move(file));
    guardians_->send(spawn, std::move(streams));
}

void PosixProcessHost::keep_standbys(StandbyPlan plan) {
    if (plan.count_max == 0) return;
    standbys_.emplace(
        context_, std::move(plan),
        Standbys::Owner{
            .next_id = [this] { return next_id_++; },
            .spawn =
                [this](std::uint64_t id, const WorkerCommand& command, std::vector<FileDescriptor> streams) {
                    send_spawn({.id = id, .has_stdout = true, .has_stderr = true, .stands_by = true}, command,
                               std::move(streams));
                },
            .end = [this](std::uint64_t id) { guardians_->send(wire::EndStandby{id}); },
            .notice =
                [this](std::string line) {
                    if (!closed_ && on_notice) on_notice(std::move(line));
                },
            .seen =
                [this](native::StandbysSeen seen) {
                    if (!closed_ && on_standbys) on_standbys(seen);
                },
        });
}

void PosixProcessHost::keep(const std::vector<std::uint32_t>& local_ranks) {
    wire::Keep keep;
    for (const auto& [id, worker] : workers_) {
        const bool named = std::ranges::find(local_ranks, worker.local_rank) != local_ranks.end();
        if (named && !worker.ended) keep.ids.push_back(id);
    }
    guardians_->send(keep);
}

void PosixProcessHost::change_owner(std::uint32_t local_rank, const LogOwner& owner) {
    for (const auto& [id, worker] : workers_)
        if (worker.local_rank == local_rank && !worker.ended) pump_->change_owner(id, owner);
}

void PosixProcessHost::signal_group(std::uint32_t local_rank, int signal) {
    for (const auto& [id, worker] : workers_)
        if (worker.local_rank == local_rank && !worker.ended) return guardians_->send(wire::SignalGroup{id, signal});
    const auto group = groups_.find(local_rank);
    if (group != groups_.end()) guardians_->send(wire::SignalGroup{group->second, signal});
}

void PosixProcessHost::kill_tree() {
    if (held_back([this] { kill_tree(); })) return;
    // An answer to the one before, which may have left workers alone that this one does not, is none.
    std::erase_if(waiting_, [](const auto& event) { return std::holds_alternative<TreeEmpty>(event); });
    if (guardians_->state() == GuardianPair::State::none) {
        waiting_.emplace_back(TreeEmpty{});
        return asio::post(context_, [self = shared_from_this()] { self->deliver_waiting(); });
    }
    kill_asked_ = true;
    if (standbys_) standbys_->rest();
    guardians_->send(wire::Kill{++kill_count_});
}

void PosixProcessHost::kill_guardian() {
    asio::post(context_, [self = shared_from_this()] {
        if (!self->closed_) self->guardians_->give_up();
    });
}

void PosixProcessHost::refuse(std::uint64_t id, NotStarted why) {
    // As the guardian says it, because a standby process may have this id.
    asio::post(context_, [self = shared_from_this(), id, why = std::move(why)] {
        const auto at_ns = std::chrono::steady_clock::now().time_since_epoch().count();
        if (!self->closed_) self->handle(wire::Ended{.id = id, .end = why, .at_ns = at_ns});
    });
}

void PosixProcessHost::handle(const wire::Message& message) {
    if (standbys_ && standbys_->handle(message)) return;
    if (const auto* spawned = std::get_if<wire::Spawned>(&message)) {
        const auto worker = workers_.find(spawned->id);
        if (worker == workers_.end()) return;
        worker->second.pid = spawned->pid;
        if (standbys_ && worker->second.had_standby && !spawned->from_standby)
            standbys_->refused(worker->second.local_rank);
        deliver(WorkerStarted{.local_rank = worker->second.local_rank, .pid = spawned->pid});
    } else if (const auto* end = std::get_if<wire::Ended>(&message)) {
        ended(end->id, {.pid = end->pid,
                        .end = end->end,
                        .at = Instant(Duration(end->at_ns)),
                        .unfed = end->unfed,
                        .group_left = end->group_left});
    } else if (const auto* group = std::get_if<wire::GroupEmptied>(&message)) {
        group_emptied(group->id);
    } else if (const auto* emptied = std::get_if<wire::Emptied>(&message)) {
        if (emptied->number != kill_count_) return;
        kill_asked_ = false;
        groups_.clear();
        waiting_.emplace_back(TreeEmpty{});
        deliver_waiting();
    } else if (const auto* stuck = std::get_if<wire::Stuck>(&message)) {
        waiting_.emplace_back(TreeStuck{stuck->pids});
        deliver_waiting();
    }
}

void PosixProcessHost::ended(std::uint64_t id, WorkerEnded event) {
    const auto found = workers_.find(id);
    if (found == workers_.end() || found->second.ended) return;
    auto& worker = found->second;
    event.local_rank = worker.local_rank;
    if (event.group_left) groups_[worker.local_rank] = id;
    worker.ended = std::move(event);
    worker.settle_timer = std::make_unique<asio::steady_timer>(context_, pump_settle_max);
    worker.settle_timer->async_wait([weak = weak_from_this(), id](auto failure) {
        if (const auto self = weak.lock(); self && !failure) self->settled(id);
    });
    pump_->settle(id, [weak = weak_from_this(), &context = context_, id] {
        asio::post(context, [weak, id] {
            if (const auto self = weak.lock()) self->settled(id);
        });
    });
}

void PosixProcessHost::group_emptied(std::uint64_t id) {
    const auto group = std::ranges::find_if(groups_, [&](const auto& one) { return one.second == id; });
    if (group == groups_.end()) return;
    waiting_.emplace_back(GroupEmpty{group->first});  // after the worker's own end
    groups_.erase(group);
    deliver_waiting();
}

void PosixProcessHost::settled(std::uint64_t id) {
    const auto found = workers_.find(id);
    if (closed_ || found == workers_.end()) return;  // the timer and the pump may both say it
    auto event = std::move(*found->second.ended);
    workers_.erase(found);
    event.stderr_tail = pump_->take_tail(id);
    deliver(std::move(event));
    deliver_waiting();
}

void PosixProcessHost::deliver(ProcessEvent event) {
    if (!closed_ && on_event) on_event(std::move(event));
}

void PosixProcessHost::deliver_waiting() {
    const bool unsettled =
        std::ranges::any_of(workers_, [](const auto& entry) { return entry.second.ended.has_value(); });
    if (unsettled || guardians_->state() == GuardianPair::State::changing) return;
    const auto keep = shared_from_this();  // the owner may end us in its handler
    for (auto& event : std::exchange(waiting_, {})) deliver(std::move(event));
}

void PosixProcessHost::reaped(pid_t pid, WorkerEnd end) {
    const auto found = std::ranges::find_if(
        workers_, [&](const auto& entry) { return entry.second.pid == pid && !entry.second.ended; });
    if (found == workers_.end()) return;
    const auto* by_signal = std::get_if<Signaled>(&end);
    const bool is_killed = by_signal != nullptr && by_signal->signal == SIGKILL;
    ended(found->first,
          {.pid = pid, .end = std::move(end), .at = std::chrono::steady_clock::now(), .orphaned = is_killed});
}

void PosixProcessHost::guardian_lost(GuardianLost lost) {
    // Those whose status was not seen died with the guardian, or were reaped by it in its last moment.
    for (auto& [id, worker] : workers_) {
        if (worker.ended) continue;
        WorkerEnd end = Signaled{.signal = SIGKILL};
        if (worker.pid == 0) end = NotStarted{EPIPE, "the guardian is gone"};
        ended(id, {.pid = worker.pid, .end = std::move(end), .at = lost.at, .orphaned = true});
    }
    groups_.clear();
    if (standbys_) standbys_->forget();
    const bool replaced = lost.replaced;
    waiting_.emplace_back(std::move(lost));
    if (std::exchange(kill_asked_, false)) waiting_.emplace_back(TreeEmpty{});
    if (standbys_ && replaced) standbys_->round_begun();
    for (const auto& call : std::exchange(held_back_, {})) call();
    deliver_waiting();
}

void PosixProcessHost::follow_up(int signal, AwaitedTimeouts patience) {
    if (held_back([this, signal, patience] { follow_up(signal, patience); })) return;
    guardians_->send(
        wire::FollowUp{.signal = signal, .idle_ns = patience.idle.count(), .busy_ns = patience.busy.count()});
}

void PosixProcessHost::remove_after_death(std::string folder) {
    if (folder.size() <= wire::path_max_bytes) guardians_->remove_after_death(std::move(folder));
}

void PosixProcessHost::expect(const std::vector<WorkerCommand>& commands, std::function<void()> when_ready) {
    if (standbys_)
        standbys_->expect(commands, std::move(when_ready));
    else if (when_ready)
        when_ready();
}

void PosixProcessHost::set_death_notice(std::string bytes) {
    if (bytes.size() <= wire::death_notice_max_bytes)
        guardians_->set_death_notice(std::move(bytes));
    else
        log(LogLevel::error, "a death notice of ", bytes.size(),
            " bytes is too long for the guardian; the previous one stays");
}

}  // namespace muster::agent
