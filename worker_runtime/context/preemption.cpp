#include "muster/preemption.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <span>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/context/notices.h"

namespace muster {

namespace {

/// Where the handler finds what it writes to; null while nobody watches.
std::atomic<runtime::Notices*> watched = nullptr;
static_assert(std::atomic<runtime::Notices*>::is_always_lock_free);
std::atomic<pid_t> watcher = 0;
std::atomic<int> launchers_signal = 0;

void note(int signal) {
    auto* const notices = watched.load();
    if (notices == nullptr) return;
    const bool in_child = ::getpid() != watcher.load();
    // A notice and never a stop: not after the round's end, and not in a data loader, as a scheduler sends it to all
    // processes of the job.
    if (signal == launchers_signal.load()) {
        if (!in_child) notices->add();
        return;
    }
    if (!in_child && notices->add_signal(signal)) return;
    // A stop, or a child that has inherited this handler: let the signal do what it would have done.
    struct sigaction usual {};
    usual.sa_handler = SIG_DFL;
    ::sigaction(signal, &usual, nullptr);
    ::raise(signal);  // delivered when this handler returns
}

}  // namespace

struct PreemptionNotice::Handlers {
    std::map<int, struct sigaction> before;

    Result<void> set(int signal) {
        struct sigaction action {};
        action.sa_handler = note;
        action.sa_flags = SA_RESTART;
        sigemptyset(&action.sa_mask);
        struct sigaction old {};
        if (::sigaction(signal, &action, &old) != 0) {
            return Error{Errc::invalid_argument, cat("signal ", signal, " cannot be handled")};
        }
        before.emplace(signal, old);
        return {};
    }
    ~Handlers() {
        for (const auto& [signal, action] : before) ::sigaction(signal, &action, nullptr);
        if (auto* const notices = watched.exchange(nullptr)) notices->forget_signal();
    }
};

Result<PreemptionNotice> PreemptionNotice::watch(const Context& context, std::vector<int> signals) {
    auto notices = context.notices();
    runtime::Notices* nobody = nullptr;
    if (!watched.compare_exchange_strong(nobody, notices.get())) {
        return Error{Errc::already_exists, "this process already has a PreemptionNotice"};
    }
    watcher.store(::getpid());
    // A scheduler sends it to all processes of a job, not to muster alone.
    const int launchers = context.preemption_signal();
    launchers_signal.store(launchers);
    if (launchers != 0 && std::find(signals.begin(), signals.end(), launchers) == signals.end())
        signals.push_back(launchers);
    auto handlers = std::make_unique<Handlers>();
    for (const int signal : signals) {
        if (auto set = handlers->set(signal); !set) return set.error();
    }
    return PreemptionNotice(std::move(notices), std::move(handlers));
}

PreemptionNotice::PreemptionNotice(std::shared_ptr<runtime::Notices> notices, std::unique_ptr<Handlers> handlers)
    : notices_(std::move(notices)), handlers_(std::move(handlers)) {}
PreemptionNotice::~PreemptionNotice() = default;
PreemptionNotice::PreemptionNotice(PreemptionNotice&&) noexcept = default;

PreemptionNotice& PreemptionNotice::operator=(PreemptionNotice&& other) noexcept {
    handlers_ = std::move(other.handlers_);  // first: they write to what goes next
    notices_ = std::move(other.notices_);
    return *this;
}

int PreemptionNotice::count() const {
    return notices_->count();
}

Result<bool> PreemptionNotice::agreed(Communicator& world) const {
    if (notices_->round_over())
        return Error{Errc::cancelled, "the round is over, so the ranks can no longer save together"};
    std::uint8_t told = notices_->count() > 0 ? 1 : 0;
    MUSTER_TRY(world.run(all_reduce(buffer(std::span(&told, 1)), ReduceOp::max)));
    return told != 0;
}

}  // namespace muster
