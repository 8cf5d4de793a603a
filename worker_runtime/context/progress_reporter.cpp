#include "worker_runtime/context/progress_reporter.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <span>
#include <utility>

#include "muster/section.h"
#include "rendezvous/base/known_step.h"
#include "rendezvous/base/reserve_space.h"
#include "rendezvous/base/sockets/datagram.h"
#include "rendezvous/wire/local/codec.h"
#include "worker_runtime/context/agent_link.h"
#include "worker_runtime/transport/variable.h"

namespace muster {

namespace runtime {

namespace {

constexpr Duration heartbeat_pause = 100ms;

/// muster/torch/steps.py reports as this plus n that it has seen n steps of a training that may have more.
constexpr std::int64_t unnumbered = INT64_MIN;
/// A record's first step then: no number, and none will follow.
constexpr std::int64_t no_first_step = -2;

}  // namespace

ProgressReporter& ProgressReporter::of_process() {
    static auto& reporter = *new ProgressReporter;  // threads may speak until the process ends
    return reporter;
}

ProgressReporter::ProgressReporter() : owner_(::getpid()) {}

/// Asked before the lock, which a forked child may have inherited locked.
bool ProgressReporter::is_ours() const {
    return ::getpid() == owner_;
}

void ProgressReporter::heartbeat() {
    if (!is_ours()) return;
    const std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (now - heartbeat_at_ < heartbeat_pause) return;
    heartbeat_at_ = now;
    send(local::Heartbeat{});
}

void ProgressReporter::progress(std::int64_t step) {
    const bool is_numbered = step >= 0;
    if (!is_numbered) step -= unnumbered;
    if (!is_ours() || known_step(step) < 0) return;
    const std::lock_guard lock(mutex_);
    if (link_ == nullptr && !own_tried_) connect();
    const auto now = std::chrono::steady_clock::now();
    if (record_ != nullptr) {
        // A script that numbers its steps itself is heard after the hook of the first one's optimizer.
        const std::atomic_ref first(record_->first_step);
        if (!is_numbered || first.load(std::memory_order_relaxed) == no_first_step)
            first.store(is_numbered ? step : no_first_step, std::memory_order_relaxed);
        note_step(*record_, step, now);
    } else if (!is_numbered) {
        return;  // the message alone cannot say so
    }
    if (now - progress_at_ < heartbeat_pause) return;
    progress_at_ = now;
    send(local::Progress{step});
}

std::uint64_t ProgressReporter::enter(std::string name, Duration limit) {
    if (!is_ours() || name.empty()) return 0;
    const std::lock_guard lock(mutex_);
    const auto limit_ms = std::chrono::duration_cast<std::chrono::milliseconds>(limit).count();
    entered_.push_back({next_, {std::move(name), static_cast<std::uint64_t>(std::max<std::int64_t>(limit_ms, 0))}});
    send_section();
    return next_++;
}

void ProgressReporter::leave(std::uint64_t number) {
    if (!is_ours() || number == 0) return;
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(entered_.begin(), entered_.end(),
                                    [&](const Entered& entered) { return entered.number == number; });
    if (found == entered_.end()) return;
    const bool was_told = found + 1 == entered_.end();
    entered_.erase(found);
    if (was_told) send_section();
}

void ProgressReporter::close_own_connection() {
    if (!is_ours()) return;
    const std::lock_guard lock(mutex_);
    own_ = FileDescriptor();
    own_tried_ = true;
}

void ProgressReporter::use_channel(AgentLink& link) {
    const std::lock_guard lock(mutex_);
    link_ = &link;
    give_record();
    if (!entered_.empty()) send_section();
}

void ProgressReporter::drop_channel(const AgentLink& link) {
    if (!is_ours()) return;
    const std::lock_guard lock(mutex_);
    if (link_ == &link) link_ = nullptr;
    own_tried_ = false;
}

void ProgressReporter::send_section() {
    send(entered_.empty() ? local::Section{} : entered_.back().section);
}

/// Without memory for it (a limit, a full /dev/shm) the agent has the steps of the messages alone. A process that
/// enters another round counts anew.
void ProgressReporter::give_record() {
    auto round = variable("MUSTER_ROUND").value_or("");
    if (record_ == nullptr) {
        FileDescriptor memory(::memfd_create("muster steps", MFD_CLOEXEC));
        if (!memory.valid() || reserve_space(memory.get(), 0, sizeof(StepRecord)) != 0) return;
        void* const mapped = ::mmap(nullptr, sizeof(StepRecord), PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
        if (mapped == MAP_FAILED) return;
        memory_ = std::move(memory);
        record_ = new (mapped) StepRecord;
        set_live_step_record(record_);
    } else if (round != record_round_) {
        *record_ = StepRecord{};
    }
    record_round_ = std::move(round);
    send(local::Steps{}, &memory_);
}

void ProgressReporter::send(const local::Message& message, const FileDescriptor* gift) {
    if (link_ != nullptr) {
        (void)link_->send(message, gift);
        return;
    }
    if (!own_tried_) connect();
    if (!own_.valid()) return;
    const int descriptor = gift != nullptr ? gift->get() : -1;
    const std::span<const int> beside(&descriptor, gift != nullptr ? 1 : 0);
    (void)send_datagram(own_.get(), local::encode(message), beside);
}

void ProgressReporter::connect() {
    own_tried_ = true;
    const auto address = variable("MUSTER_AGENT_SOCKET");
    if (!address || address->empty()) return;
    auto reached = AgentLink::reach(*address);
    if (!reached) return;
    own_ = std::move(*reached);
    (void)send_datagram(own_.get(), local::encode(local::Hello{.pid = ::getpid(),
                                                               .runtime = "muster's words alone",
                                                               .token = variable("MUSTER_AGENT_TOKEN").value_or("")}));
    give_record();
}

}  // namespace runtime

void heartbeat() noexcept {
    runtime::ProgressReporter::of_process().heartbeat();
}

void progress(std::int64_t step) noexcept {
    runtime::ProgressReporter::of_process().progress(step);
}

Section::Section(std::string_view name, Duration limit) noexcept
    : number_(runtime::ProgressReporter::of_process().enter(std::string(name), limit)) {}

Section::~Section() {
    runtime::ProgressReporter::of_process().leave(number_);
}

}  // namespace muster
