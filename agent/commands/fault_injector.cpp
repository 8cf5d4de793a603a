#include "agent/commands/fault_injector.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>

#include "agent/process/process_tree.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/system/self_signals.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

/// The answer goes out before the agent falls silent.
constexpr Duration answer_time = 100ms;

Instant now() {
    return std::chrono::steady_clock::now();
}

Result<void> send(const FileDescriptor& process, int signal) {
    if (::syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0) == 0) return {};
    return error_from_errno(errno, cat("send ", signal_name(signal)));
}

}  // namespace

void FaultInjector::begin_round(Round round, std::uint32_t rank_base, const std::vector<std::uint32_t>& kept) {
    round_ = round;
    rank_base_ = rank_base;
    std::erase_if(workers_, [&](const auto& worker) { return std::ranges::count(kept, worker.first) == 0; });
}

void FaultInjector::worker_started(std::uint32_t local_rank, std::int32_t pid) {
    if (faults_ == Faults::refused) return;
    workers_.erase(local_rank);
    workers_.try_emplace(local_rank, loop_, pid, open_pidfd(pid));
}

Killer FaultInjector::killer_of(std::uint32_t local_rank) const {
    const auto found = workers_.find(local_rank);
    if (found == workers_.end() || found->second.injected.empty()) return Killer::unknown;
    return found->second.fault.kind == native::FaultKind::kill ? Killer::muster : Killer::unknown;
}

void FaultInjector::worker_ended(std::uint32_t local_rank, Instant at, FailureCause& cause) {
    const auto found = workers_.find(local_rank);
    if (found == workers_.end()) return;
    const auto& worker = found->second;
    if (worker.starved && worker.starved->was_killed())
        cause = {CauseKind::out_of_memory,
                 cat("memory ran out in its own cgroup, and the kernel killed it; ", worker.starved->words()),
                 {}};
    const bool explains = !worker.injected.empty() && may_explain(worker.fault, at - worker.injected_at);
    if (explains) cause.text += cat(cause.text.empty() ? "" : "; ", "injected by ", worker.injected);
    workers_.erase(found);
}

native::FaultAnswer FaultInjector::inject(const native::FaultOrdered& order) {
    FaultFacts facts{faults_ == Faults::allowed, round_, rank_base_, {}};
    for (const auto& [local_rank, worker] : workers_) facts.alive.insert(local_rank);
    if (auto why = objection(order, facts); !why.empty()) return {order.number, false, std::move(why)};
    const auto& fault = order.fault;
    const auto words = native::describe(fault);
    const bool on_worker = fault.target == native::FaultTarget::worker;
    const auto done = on_worker ? into_worker(workers_.at(fault.rank - rank_base_), fault) : into_agent(fault);
    if (!done) return {order.number, false, done.error().context};
    log(LogLevel::warning, "injected by ", words);
    const auto whom = on_worker ? cat("rank ", fault.rank, " (pid ", workers_.at(fault.rank - rank_base_).pid, ")")
                                : cat("the agent (pid ", ::getpid(), ")");
    return {order.number, true, cat("done to ", whom, ": ", words)};
}

Result<void> FaultInjector::into_worker(Worker& worker, const native::Fault& fault) {
    using native::FaultKind;
    if (!worker.pidfd.valid()) return Error{Errc::unsupported, "this kernel has no pidfd_open (it is older than 5.3)"};
    if (fault.kind == FaultKind::out_of_memory) {
        worker.starved.emplace(MUSTER_TRY(StarvedWorker::starve(worker.pid, worker.pidfd.get())));
    } else if (auto sent = send(worker.pidfd, fault.kind == FaultKind::kill ? SIGKILL : SIGSTOP); !sent) {
        return sent;
    }
    worker.injected = native::describe(fault);
    worker.injected_at = now();
    worker.fault = fault;
    worker.timer.cancel();
    if (fault.for_ms == 0) return {};
    worker.until = now() + std::chrono::milliseconds(fault.for_ms);
    worker.stopped = true;
    next_turn(fault.rank - rank_base_,
              fault.kind == FaultKind::slow ? native::slow_cycle(fault).first : worker.until - now());
    return {};
}

Result<void> FaultInjector::into_agent(const native::Fault& fault) {
    if (fault.kind != native::FaultKind::partition) return signal_self(native::self_signals(fault));
    const auto timer = std::make_shared<boost::asio::steady_timer>(loop_, answer_time);
    timer->async_wait(
        life_.guard([this, timer, length = Duration(std::chrono::milliseconds(fault.for_ms))](const auto&) {
            if (cut_off) cut_off(length);
        }));
    return {};
}

void FaultInjector::next_turn(std::uint32_t local_rank, Duration length) {
    call_after(workers_.at(local_rank).timer, length, life_.guard([this, local_rank] {
        if (workers_.contains(local_rank)) turn(local_rank);
    }));
}

/// A stopped worker goes on; one that is slowed down stands still again, until its time is up.
void FaultInjector::turn(std::uint32_t local_rank) {
    auto& worker = workers_.at(local_rank);
    worker.stopped = !worker.stopped;
    if (!send(worker.pidfd, worker.stopped ? SIGSTOP : SIGCONT)) return;  // it has ended
    const bool slow = worker.fault.kind == native::FaultKind::slow;
    if (!slow || (!worker.stopped && now() >= worker.until)) return;
    const auto [stopped, running] = native::slow_cycle(worker.fault);
    next_turn(local_rank, worker.stopped ? stopped : running);
}

}  // namespace muster::agent
