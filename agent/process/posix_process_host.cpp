// Commands go to the guardian through guardian_pair; pipes come from output_pump. An Ended from the guardian becomes a
// WorkerEnded when the pump has read the worker's last output. When the guardian is lost, the pair removes its tree and
// changes to the reserve; starts wait meanwhile.
#include "agent/process/posix_process_host.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <optional>

#include "agent/process/guardian_pair.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/system/replace_file.h"

namespace muster::agent {

namespace asio = boost::asio;
namespace wire = guardian_wire;

namespace {

/// The pump's own limit is 100 ms. This covers a pump that hangs in a write.
constexpr Duration pump_settle_max = 150ms;
constexpr Duration flush_max = 1s;

FileDescriptor image_file(const std::string& image) {
    FileDescriptor file(::memfd_create("muster-worker", MFD_CLOEXEC));
    if (file.valid() && !write_whole(file.get(), image)) return {};
    return file;
}

}  // namespace

class PosixProcessHost::Body : public std::enable_shared_from_this<PosixProcessHost::Body> {
  public:
    Body(PosixProcessHost& owner, asio::io_context& context, GuardianHandle guardian, Console console)
        : owner_(&owner),
          context_(context),
          guardians_(std::make_shared<GuardianPair>(context, std::move(guardian))),
          pump_(std::in_place, console) {}

    void begin();
    void end();
    void start_all(std::vector<WorkerCommand> commands);
    void keep_standbys(StandbyPlan plan);
    void expect(const std::vector<WorkerCommand>& commands, std::function<void()> when_ready) {
        if (standbys_)
            standbys_->expect(commands, std::move(when_ready));
        else if (when_ready)
            when_ready();
    }
    void end_standbys() {
        if (standbys_) standbys_->end();
    }
    void keep(const std::vector<std::uint32_t>& local_ranks);
    void change_owner(std::uint32_t local_rank, const LogOwner& owner);
    void signal_group(std::uint32_t local_rank, int signal);
    void kill_tree();
    void kill_guardian();
    GuardianPair& guardians() { return *guardians_; }

  private:
    struct Worker {
        std::uint32_t local_rank = 0;
        std::int32_t pid = 0;
        bool had_standby = false;  ///< Its standby process was to become it.
        /// Set when it has ended and only its output is waited for.
        std::optional<WorkerEnded> ended;
        std::unique_ptr<asio::steady_timer> settle_timer;
    };

    void start(WorkerCommand command);
    void send_spawn(wire::Spawn spawn, const WorkerCommand& command, std::vector<FileDescriptor> streams);
    void handle(const wire::Message& message);
    void ended(std::uint64_t id, WorkerEnded event);
    void group_emptied(std::uint64_t id);
    void settled(std::uint64_t id);
    void deliver(ProcessEvent event);
    void deliver_waiting();
    void post(ProcessEvent event);
    void refuse(std::uint64_t id, NotStarted why);
    void reaped(pid_t pid, WorkerEnd end);
    void guardian_lost(GuardianLost lost);

    PosixProcessHost* owner_;  // null after end()
    asio::io_context& context_;
    std::shared_ptr<GuardianPair> guardians_;
    std::optional<OutputPump> pump_;
    std::map<std::uint64_t, Worker> workers_;
    std::optional<Standbys> standbys_;
    /// Keyed by local rank: an ended worker whose process group is not empty.
    std::map<std::uint32_t, std::uint64_t> groups_;
    std::uint64_t next_id_ = 1;
    std::vector<ProcessEvent> waiting_;  ///< TreeEmpty and similar events, delivered when no ended worker is pending.
    std::vector<WorkerCommand> held_back_;  ///< Starts that wait while the guardian is replaced.
    bool kill_asked_ = false;               ///< True until TreeEmpty has been delivered.
    std::uint64_t kill_count_ = 0;          ///< Number of the newest Kill.
};

void PosixProcessHost::Body::begin() {
    guardians_->on_message = [this](const wire::Message& message) { handle(message); };
    guardians_->on_reaped = [this](pid_t pid, WorkerEnd end) { reaped(pid, std::move(end)); };
    guardians_->on_lost = [this](const std::string& why, Instant at, bool replaced) {
        guardian_lost(GuardianLost{.why = why, .at = at, .replaced = replaced});
    };
    guardians_->begin();
}

void PosixProcessHost::Body::end() {
    owner_ = nullptr;
    standbys_.reset();  // the guardian ends them
    for (auto& [id, worker] : workers_) worker.settle_timer.reset();
    guardians_->end();
    if (!pump_->flush(flush_max))
        log(LogLevel::warning,
            "stdout or stderr did not accept all output of the workers before muster exited; the rest is missing there "
            "(the files of --tee are complete)");
    pump_.reset();
}

void PosixProcessHost::Body::start(WorkerCommand command) {
    if (guardians_->state() == GuardianPair::State::changing) return held_back_.push_back(std::move(command));
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

void PosixProcessHost::Body::start_all(std::vector<WorkerCommand> commands) {
    guardians_->ask_for_reserve();
    for (auto& command : commands) start(std::move(command));
    if (standbys_) standbys_->round_begun();
}

void PosixProcessHost::Body::send_spawn(wire::Spawn spawn, const WorkerCommand& command,
                                        std::vector<FileDescriptor> streams) {
    const auto image = wire::image_bytes(command);
    if (image.empty()) return refuse(spawn.id, {E2BIG, "read argv and environment (16 MiB at most, no NUL bytes)"});
    auto file = image_file(image);
    if (!file.valid()) return refuse(spawn.id, {errno, "memfd_create"});
    streams.insert(streams.begin(), std::move(file));
    guardians_->send(spawn, std::move(streams));
}

void PosixProcessHost::Body::keep_standbys(StandbyPlan plan) {
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
                    if (owner_ != nullptr && owner_->on_notice) owner_->on_notice(std::move(line));
                },
            .seen =
                [this](native::StandbysSeen seen) {
                    if (owner_ != nullptr && owner_->on_standbys) owner_->on_standbys(seen);
                },
        });
}

void PosixProcessHost::Body::keep(const std::vector<std::uint32_t>& local_ranks) {
    wire::Keep keep;
    for (const auto& [id, worker] : workers_) {
        const bool named = std::find(local_ranks.begin(), local_ranks.end(), worker.local_rank) != local_ranks.end();
        if (named && !worker.ended) keep.ids.push_back(id);
    }
    guardians_->send(keep);
}

void PosixProcessHost::Body::change_owner(std::uint32_t local_rank, const LogOwner& owner) {
    for (const auto& [id, worker] : workers_)
        if (worker.local_rank == local_rank && !worker.ended) pump_->change_owner(id, owner);
}

void PosixProcessHost::Body::signal_group(std::uint32_t local_rank, int signal) {
    for (const auto& [id, worker] : workers_)
        if (worker.local_rank == local_rank && !worker.ended) return guardians_->send(wire::SignalGroup{id, signal});
    const auto group = groups_.find(local_rank);
    if (group != groups_.end()) guardians_->send(wire::SignalGroup{group->second, signal});
}

void PosixProcessHost::Body::kill_tree() {
    if (guardians_->state() == GuardianPair::State::none) return post(TreeEmpty{});
    // An answer to the one before, which may have left workers alone that this one does not, is none.
    std::erase_if(waiting_, [](const auto& event) { return std::holds_alternative<TreeEmpty>(event); });
    kill_asked_ = true;
    if (standbys_) standbys_->rest();
    guardians_->send(wire::Kill{++kill_count_});
}

void PosixProcessHost::Body::kill_guardian() {
    asio::post(context_, [self = shared_from_this()] {
        if (self->owner_ != nullptr) self->guardians_->give_up();
    });
}

void PosixProcessHost::Body::refuse(std::uint64_t id, NotStarted why) {
    asio::post(context_, [self = shared_from_this(), id, why = std::move(why)] {
        if (self->owner_ == nullptr) return;
        WorkerEnded event;
        event.end = why;
        event.at = std::chrono::steady_clock::now();
        self->ended(id, std::move(event));
    });
}

void PosixProcessHost::Body::handle(const wire::Message& message) {
    if (standbys_ && standbys_->handle(message)) return;
    if (const auto* spawned = std::get_if<wire::Spawned>(&message)) {
        const auto worker = workers_.find(spawned->id);
        if (worker == workers_.end()) return;
        worker->second.pid = spawned->pid;
        if (standbys_ && worker->second.had_standby && !spawned->from_standby)
            standbys_->refused(worker->second.local_rank);
        deliver(WorkerStarted{.local_rank = worker->second.local_rank, .pid = spawned->pid});
    } else if (const auto* end = std::get_if<wire::Ended>(&message)) {
        WorkerEnded event;
        event.pid = end->pid;
        event.end = end->end;
        event.at = Instant(Duration(end->at_ns));
        event.unfed = end->unfed;
        event.group_left = end->group_left;
        ended(end->id, std::move(event));
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

void PosixProcessHost::Body::ended(std::uint64_t id, WorkerEnded event) {
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

void PosixProcessHost::Body::group_emptied(std::uint64_t id) {
    const auto group = std::find_if(groups_.begin(), groups_.end(), [&](const auto& one) { return one.second == id; });
    if (group == groups_.end()) return;
    waiting_.emplace_back(GroupEmpty{group->first});  // after the worker's own end
    groups_.erase(group);
    deliver_waiting();
}

void PosixProcessHost::Body::settled(std::uint64_t id) {
    const auto found = workers_.find(id);
    if (owner_ == nullptr || found == workers_.end()) return;  // the timer and the pump may both say it
    auto event = std::move(*found->second.ended);
    workers_.erase(found);
    auto tail = pump_->take_tail(id);
    event.stderr_tail = std::move(tail);
    deliver(std::move(event));
    deliver_waiting();
}

void PosixProcessHost::Body::deliver(ProcessEvent event) {
    if (owner_ != nullptr && owner_->on_event) owner_->on_event(std::move(event));
}

void PosixProcessHost::Body::deliver_waiting() {
    const bool unsettled =
        std::any_of(workers_.begin(), workers_.end(), [](const auto& entry) { return entry.second.ended.has_value(); });
    if (unsettled || guardians_->state() == GuardianPair::State::changing) return;
    const auto keep = shared_from_this();  // the owner may end us in its handler
    for (auto& event : std::exchange(waiting_, {})) deliver(std::move(event));
}

void PosixProcessHost::Body::post(ProcessEvent event) {
    asio::post(context_, [self = shared_from_this(), event = std::move(event)] { self->deliver(event); });
}

void PosixProcessHost::Body::reaped(pid_t pid, WorkerEnd end) {
    const auto found = std::find_if(workers_.begin(), workers_.end(),
                                    [&](const auto& entry) { return entry.second.pid == pid && !entry.second.ended; });
    if (found == workers_.end()) return;
    WorkerEnded event;
    event.pid = pid;
    const auto* by_signal = std::get_if<Signaled>(&end);
    event.orphaned = by_signal != nullptr && by_signal->signal == SIGKILL;
    event.end = std::move(end);
    event.at = std::chrono::steady_clock::now();
    ended(found->first, std::move(event));
}

void PosixProcessHost::Body::guardian_lost(GuardianLost lost) {
    // Those whose status was not seen died with the guardian, or were reaped by it in its last moment.
    for (auto& [id, worker] : workers_) {
        if (worker.ended) continue;
        WorkerEnded event;
        event.pid = worker.pid;
        event.end = worker.pid != 0 ? WorkerEnd(Signaled{.signal = SIGKILL})
                                    : WorkerEnd(NotStarted{EPIPE, "the guardian is gone"});
        event.at = lost.at;
        event.orphaned = true;
        ended(id, std::move(event));
    }
    groups_.clear();
    if (standbys_) standbys_->forget();
    waiting_.emplace_back(std::move(lost));
    if (std::exchange(kill_asked_, false)) waiting_.emplace_back(TreeEmpty{});
    for (auto& command : std::exchange(held_back_, {})) start(std::move(command));
    if (standbys_) standbys_->round_begun();
    deliver_waiting();
}

PosixProcessHost::PosixProcessHost(asio::io_context& context, GuardianHandle guardian, Console console)
    : body_(std::make_shared<Body>(*this, context, std::move(guardian), console)) {
    body_->begin();
}

PosixProcessHost::~PosixProcessHost() {
    body_->end();
}

void PosixProcessHost::start(std::vector<WorkerCommand> commands) {
    body_->start_all(std::move(commands));
}

void PosixProcessHost::signal_leaders(int signal) {
    body_->guardians().send(wire::Signal{signal});
}

void PosixProcessHost::follow_up(int signal, AwaitedTimeouts patience) {
    body_->guardians().send(
        wire::FollowUp{.signal = signal, .idle_ns = patience.idle.count(), .busy_ns = patience.busy.count()});
}

void PosixProcessHost::keep(const std::vector<std::uint32_t>& local_ranks) {
    body_->keep(local_ranks);
}

void PosixProcessHost::change_owner(std::uint32_t local_rank, const LogOwner& owner) {
    body_->change_owner(local_rank, owner);
}

void PosixProcessHost::signal_group(std::uint32_t local_rank, int signal) {
    body_->signal_group(local_rank, signal);
}

void PosixProcessHost::kill_tree() {
    body_->kill_tree();
}

void PosixProcessHost::kill_guardian() {
    body_->kill_guardian();
}

void PosixProcessHost::feed() {
    body_->guardians().send(wire::Feed{});
}

void PosixProcessHost::remove_after_death(std::string folder) {
    if (folder.size() <= wire::path_max_bytes) body_->guardians().remove_after_death(std::move(folder));
}

void PosixProcessHost::end_standbys() {
    body_->end_standbys();
}

void PosixProcessHost::expect(const std::vector<WorkerCommand>& commands, std::function<void()> when_ready) {
    body_->expect(commands, std::move(when_ready));
}

void PosixProcessHost::keep_standbys(StandbyPlan plan) {
    body_->keep_standbys(std::move(plan));
}

void PosixProcessHost::set_death_notice(std::string bytes) {
    if (bytes.size() <= wire::death_notice_max_bytes)
        body_->guardians().set_death_notice(std::move(bytes));
    else
        log(LogLevel::error, "a death notice of ", bytes.size(),
            " bytes is too long for the guardian; the previous one stays");
}

}  // namespace muster::agent
