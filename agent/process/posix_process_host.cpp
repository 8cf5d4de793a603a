// How the parts meet: commands go to the guardian through guardian_link, pipes come from output_pump; an Ended from
// the guardian becomes a WorkerEnded when the pump has read the worker's last words. When the guardian is lost, its
// tree has become this process's own (a subreaper), and clean_up() does what the guardian would have done.
#include "agent/process/posix_process_host.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <optional>

#include "agent/process/guardian_link.h"
#include "agent/process/process_tree.h"
#include "agent/process/worker_cgroup.h"
#include "rendezvous/base/log.h"

namespace muster::agent {

namespace asio = boost::asio;
namespace wire = guardian_wire;

namespace {

constexpr Duration settle_max = 150ms;  ///< the pump's own limit is 100 ms; this is for a pump that hangs in a write
constexpr Duration clean_up_max = 2s;   ///< after the guardian's loss, until its tree must be gone
constexpr Duration clean_up_pause = 2ms;
constexpr Duration farewell_max = 2s;
constexpr Duration flush_max = 1s;

FileDescriptor image_file(const std::string& image) {
    FileDescriptor file(::memfd_create("muster-worker", MFD_CLOEXEC));
    std::string_view rest = image;
    while (file.valid() && !rest.empty()) {
        const auto written = ::write(file.get(), rest.data(), rest.size());
        if (written <= 0) return {};
        rest.remove_prefix(static_cast<std::size_t>(written));
    }
    return file;
}

WorkerEnd end_of_status(int status) {
    if (WIFEXITED(status)) return Exited{WEXITSTATUS(status)};
    return Signaled{.signal = WTERMSIG(status), .core_dumped = WCOREDUMP(status) != 0};
}

/// True when the child has ended within `limit`, and is reaped.
bool await_child(pid_t pid, int pidfd, Duration limit) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    for (;;) {
        const auto reaped = ::waitpid(pid, nullptr, WNOHANG);
        if (reaped == pid || (reaped < 0 && errno == ECHILD)) return true;
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
        if (left.count() <= 0) return false;
        // Without a pidfd (old kernels) the loop looks every 5 ms.
        pollfd ended{pidfd, POLLIN, 0};
        ::poll(&ended, 1, static_cast<int>(pidfd >= 0 ? left.count() : std::min<std::int64_t>(5, left.count())));
    }
}

}  // namespace

class PosixProcessHost::Body : public std::enable_shared_from_this<PosixProcessHost::Body> {
  public:
    Body(PosixProcessHost& owner, asio::io_context& context, GuardianHandle guardian, Console console)
        : owner_(&owner),
          context_(context),
          guardian_pid_(guardian.pid),
          pidfd_(std::move(guardian.pidfd)),
          cgroup_(std::move(guardian.cgroup)),
          link_(std::make_shared<GuardianLink>(context, std::move(guardian.socket))),
          pump_(std::in_place, console),
          clean_up_timer_(context) {}

    void begin();
    void end();
    void start(WorkerCommand command);
    void kill_tree();
    [[nodiscard]] bool lost() const { return lost_why_.has_value(); }
    GuardianLink& link() { return *link_; }

  private:
    struct Worker {
        std::uint32_t local_rank = 0;
        std::int32_t pid = 0;
        /// Set when it has ended and only its output is waited for.
        std::optional<WorkerEnded> ended;
        std::unique_ptr<asio::steady_timer> settle_timer;
    };

    void handle(const wire::Message& message);
    void ended(std::uint64_t id, WorkerEnded event);
    void settled(std::uint64_t id);
    void deliver(ProcessEvent event);
    void deliver_waiting();
    void post(ProcessEvent event);
    void refuse(std::uint64_t id, NotStarted why);
    void guardian_lost(std::string why);
    void clean_up(Instant deadline);
    bool kill_and_reap_orphans();

    PosixProcessHost* owner_;  // null after end()
    asio::io_context& context_;
    pid_t guardian_pid_;
    FileDescriptor pidfd_;
    std::string cgroup_;
    std::shared_ptr<GuardianLink> link_;
    std::optional<OutputPump> pump_;
    asio::steady_timer clean_up_timer_;
    std::map<std::uint64_t, Worker> workers_;
    std::uint64_t next_id_ = 1;
    std::vector<ProcessEvent> waiting_;  ///< TreeEmpty and the like, for the time when no ended worker is unsettled
    std::optional<std::string> lost_why_;
    bool cleaned_up_ = false;
};

void PosixProcessHost::Body::begin() {
    link_->on_message = [this](const wire::Message& message) { handle(message); };
    link_->on_lost = [this](std::string why) { guardian_lost(std::move(why)); };
    link_->begin();
}

void PosixProcessHost::Body::end() {
    owner_ = nullptr;
    link_->send(wire::Farewell{});
    link_->close();
    clean_up_timer_.cancel();
    for (auto& [id, worker] : workers_) worker.settle_timer.reset();
    if (!await_child(guardian_pid_, pidfd_.get(), farewell_max)) {
        log(LogLevel::warning, "the guardian (pid ", guardian_pid_, ") is still killing what the workers left behind");
    }
    pump_->flush(flush_max);
    pump_.reset();
}

void PosixProcessHost::Body::start(WorkerCommand command) {
    const auto id = next_id_++;
    workers_[id].local_rank = command.local_rank;
    if (lost()) return refuse(id, {EPIPE, "the guardian is gone"});
    const auto image = wire::image_bytes(command.argv, command.environment);
    if (image.empty()) return refuse(id, {E2BIG, "read argv and environment (16 MiB at most, no NUL bytes)"});
    auto file = image_file(image);
    if (!file.valid()) return refuse(id, {errno, "memfd_create"});
    auto streams = pump_->open(id, command);
    if (streams.has_error()) return refuse(id, streams.error());
    const wire::Spawn spawn{
        .id = id, .has_stdout = streams->stdout_fd.valid(), .has_stderr = streams->stderr_fd.valid()};
    std::vector<FileDescriptor> fds;
    fds.push_back(std::move(file));
    if (spawn.has_stdout) fds.push_back(std::move(streams->stdout_fd));
    if (spawn.has_stderr) fds.push_back(std::move(streams->stderr_fd));
    link_->send(spawn, std::move(fds));
}

void PosixProcessHost::Body::kill_tree() {
    if (!lost())
        link_->send(wire::Kill{});
    else if (cleaned_up_)
        post(TreeEmpty{});
    else
        waiting_.emplace_back(TreeEmpty{});
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
    if (const auto* spawned = std::get_if<wire::Spawned>(&message)) {
        const auto worker = workers_.find(spawned->id);
        if (worker == workers_.end()) return;
        worker->second.pid = spawned->pid;
        deliver(WorkerStarted{.local_rank = worker->second.local_rank, .pid = spawned->pid});
    } else if (const auto* end = std::get_if<wire::Ended>(&message)) {
        WorkerEnded event;
        event.pid = end->pid;
        event.end = end->end;
        event.at = Instant(Duration(end->at_ns));
        event.unfed = end->unfed;
        ended(end->id, std::move(event));
    } else if (std::holds_alternative<wire::Emptied>(message)) {
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
    worker.ended = std::move(event);
    worker.settle_timer = std::make_unique<asio::steady_timer>(context_, settle_max);
    worker.settle_timer->async_wait([weak = weak_from_this(), id](auto failure) {
        if (const auto self = weak.lock(); self && !failure) self->settled(id);
    });
    pump_->settle(id, [weak = weak_from_this(), &context = context_, id] {
        asio::post(context, [weak, id] {
            if (const auto self = weak.lock()) self->settled(id);
        });
    });
}

void PosixProcessHost::Body::settled(std::uint64_t id) {
    const auto found = workers_.find(id);
    if (owner_ == nullptr || found == workers_.end()) return;  // the timer and the pump may both say it
    auto event = std::move(*found->second.ended);
    workers_.erase(found);
    auto tails = pump_->take_tails(id);
    event.stdout_tail = std::move(tails.stdout_tail);
    event.stderr_tail = std::move(tails.stderr_tail);
    deliver(std::move(event));
    deliver_waiting();
}

void PosixProcessHost::Body::deliver(ProcessEvent event) {
    if (owner_ != nullptr && owner_->on_event) owner_->on_event(std::move(event));
}

void PosixProcessHost::Body::deliver_waiting() {
    const bool unsettled =
        std::any_of(workers_.begin(), workers_.end(), [](const auto& entry) { return entry.second.ended.has_value(); });
    if (unsettled || (lost() && !cleaned_up_)) return;
    const auto keep = shared_from_this();  // the owner may end us in its handler
    for (auto& event : std::exchange(waiting_, {})) deliver(std::move(event));
}

void PosixProcessHost::Body::post(ProcessEvent event) {
    asio::post(context_, [self = shared_from_this(), event = std::move(event)] { self->deliver(event); });
}

void PosixProcessHost::Body::guardian_lost(std::string why) {
    lost_why_ = std::move(why);
    // It may be stopped instead of dead: then its workers have to go all the same.
    if (guardian_pid_ > 0) ::kill(guardian_pid_, SIGKILL);
    clean_up(std::chrono::steady_clock::now() + clean_up_max);
}

void PosixProcessHost::Body::clean_up(Instant deadline) {
    const bool empty = kill_and_reap_orphans();
    if (!empty && std::chrono::steady_clock::now() < deadline) {
        clean_up_timer_.expires_after(clean_up_pause);
        clean_up_timer_.async_wait([self = shared_from_this(), deadline](auto failure) {
            if (!failure && self->owner_ != nullptr) self->clean_up(deadline);
        });
        return;
    }
    if (!cgroup_.empty()) remove_cgroup(cgroup_);
    cleaned_up_ = true;
    waiting_.emplace_back(GuardianLost{*lost_why_});
    // Those whose status was not seen here died with the guardian, or were reaped by it in its last moment.
    for (auto& [id, worker] : workers_) {
        if (worker.ended) continue;
        WorkerEnded event;
        event.pid = worker.pid;
        event.end = worker.pid != 0 ? WorkerEnd(Signaled{.signal = SIGKILL})
                                    : WorkerEnd(NotStarted{EPIPE, "the guardian is gone"});
        event.at = std::chrono::steady_clock::now();
        ended(id, std::move(event));
    }
    deliver_waiting();
}

bool PosixProcessHost::Body::kill_and_reap_orphans() {
    if (!cgroup_.empty()) kill_cgroup(cgroup_);
    bool empty = true;
    const auto own_session = ::getsid(0);
    for (const auto& facts : descendants_of(::getpid(), all_processes())) {
        // The guardian and each worker began sessions of their own; what is in ours was started by somebody else.
        if (facts.session == own_session) continue;
        empty = false;
        if (facts.alive()) kill_process(facts);
        int status = 0;
        if (facts.parent != ::getpid() || ::waitpid(facts.pid, &status, WNOHANG) != facts.pid) continue;
        for (auto& [id, worker] : workers_) {
            if (worker.pid != facts.pid || worker.ended) continue;
            WorkerEnded event;
            event.pid = facts.pid;
            event.end = end_of_status(status);
            event.at = std::chrono::steady_clock::now();
            ended(id, std::move(event));
        }
    }
    return empty;
}

PosixProcessHost::PosixProcessHost(asio::io_context& context, GuardianHandle guardian, Console console)
    : body_(std::make_shared<Body>(*this, context, std::move(guardian), console)) {
    body_->begin();
}

PosixProcessHost::~PosixProcessHost() {
    body_->end();
}

void PosixProcessHost::start(std::vector<WorkerCommand> commands) {
    for (auto& command : commands) body_->start(std::move(command));
}

void PosixProcessHost::signal_all(int signal, SignalTarget target) {
    body_->link().send(wire::Signal{signal, target});
}

void PosixProcessHost::kill_tree() {
    body_->kill_tree();
}

void PosixProcessHost::feed() {
    body_->link().send(wire::Feed{});
}

void PosixProcessHost::set_testament(std::string bytes) {
    if (bytes.size() <= wire::testament_max_bytes)
        body_->link().send(wire::Testament{std::move(bytes)});
    else
        log(LogLevel::error, "a testament of ", bytes.size(), " bytes is too long for the guardian; the old one stays");
}

}  // namespace muster::agent
