#include "rendezvous/wire/native/fault.h"

#include <csignal>
#include <tuple>

#include "rendezvous/base/text/enumerator.h"
#include "rendezvous/base/text/text.h"

namespace muster::native {

namespace {

/// A rehearsal that is forgotten must not cost the night.
constexpr std::uint32_t for_ms_max = 3'600'000;
/// The answer to whoever asked goes out before.
constexpr Duration answer_time = 100ms;
constexpr Duration slow_period = 100ms;

std::string_view word(FaultKind kind) {
    return kind == FaultKind::out_of_memory ? "oom" : enumerator_name(kind, "");
}

std::string seconds_text(std::uint32_t ms) {
    auto text = cat(ms / 1000);
    if (ms % 1000 != 0) text += cat('.', ms % 1000 / 100, ms % 100 / 10, ms % 10);
    return text;
}

}  // namespace

std::string describe(const Fault& fault) {
    auto text = cat("muster fault ", word(fault.kind));
    if (fault.target == FaultTarget::worker) text += cat(" rank ", fault.rank);
    if (fault.target == FaultTarget::agent) text += " node";
    if (fault.target == FaultTarget::daemon) text += " daemon";
    if (fault.for_ms > 0) text += cat(" --for ", seconds_text(fault.for_ms));
    return text;
}

std::pair<Duration, Duration> slow_cycle(const Fault& fault) {
    const auto stopped = slow_period * fault.stopped_percent / 100;
    return {stopped, slow_period - stopped};
}

SelfSignals self_signals(const Fault& fault) {
    SelfSignals plan{.after = answer_time, .signal = SIGSTOP};
    const Duration length = std::chrono::milliseconds(fault.for_ms);
    if (fault.kind == FaultKind::kill) plan.signal = SIGKILL;
    if (fault.kind == FaultKind::stop) plan.stopped = length;
    if (fault.kind == FaultKind::slow) {
        std::tie(plan.stopped, plan.running) = slow_cycle(fault);
        plan.times = static_cast<std::uint32_t>(length / slow_period);
    }
    return plan;
}

std::string wrong_with(const Fault& fault) {
    if (fault.kind == FaultKind::partition && fault.target != FaultTarget::agent)
        return "only a node can be cut off: write partition node NAME";
    if (fault.kind == FaultKind::out_of_memory && fault.target != FaultTarget::worker)
        return "memory runs out for a worker alone: write oom rank N";
    const bool lasts = fault.kind == FaultKind::slow || fault.kind == FaultKind::partition;
    if (lasts && fault.for_ms == 0) return cat(word(fault.kind), " needs a time: --for SECONDS");
    if (!lasts && fault.kind != FaultKind::stop && fault.for_ms > 0)
        return cat("--for means nothing to ", word(fault.kind));
    if (fault.for_ms > for_ms_max) return "--for is an hour at most";
    if (fault.kind == FaultKind::slow && (fault.stopped_percent < 1 || fault.stopped_percent > 99))
        return "--stopped is 1 to 99, a percentage of the time";
    return {};
}

}  // namespace muster::native
