#include "launcher/node/signal_reason.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "launcher/scheduler/slurm_reason.h"
#include "launcher/scheduler/slurm_task.h"
#include "rendezvous/base/call_later.h"
#include "rendezvous/base/time.h"

namespace muster::launcher {

namespace {

using namespace std::chrono_literals;

constexpr Duration slurm_limit = 4s;
/// Slurm signals every process of the step. This one ignores signals, but may be killed before it does.
/// Without scontrol (a container) it is not asked again.
constexpr const char* deaf_scontrol =
    "trap '' HUP INT QUIT TERM USR1 USR2; command -v scontrol >/dev/null || { echo none; exit; }; "
    "exec scontrol -o show job \"$0\" 2>/dev/null";
/// A busy controller may be slow. The end of a job waits for fewer tries than a notice does.
constexpr int tries_max = 12;
constexpr int tries_at_end = 3;
constexpr Duration retry_pause = 100ms, pause_max = 5s;

std::chrono::seconds wall_clock() {
    return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch());
}

}  // namespace

SignalReason::SignalReason(boost::asio::io_context& loop, const Environment& environment)
    : environment_(environment), runs_(loop), pause_(loop) {}

void SignalReason::ask() {
    if (is_awaited_ || !is_slurm_task(environment_)) return;
    if (value_or_empty(environment_, "SLURM_PROCID") != "0") return tell(slurm_reason(environment_, wall_clock()));
    is_awaited_ = true;
    ask_slurm(1);
}

void SignalReason::ask_slurm(int number) {
    runs_.start({"sh", "-c", deaf_scontrol, slurm_job_name(environment_)}, slurm_limit,
                [this, number](const std::string& said) {
                    if (said.empty() && number < (go_ ? tries_at_end : tries_max)) return ask_again(number + 1);
                    is_awaited_ = false;
                    auto by_slurm = slurm_reason(said);
                    tell(by_slurm.empty() ? slurm_reason(environment_, wall_clock()) : std::move(by_slurm));
                    if (auto go = std::exchange(go_, nullptr)) go();
                });
}

void SignalReason::ask_again(int number) {
    // A controller that is away fails at once: the pauses grow, so that the tries outlast half a minute.
    call_after(pause_, std::min<Duration>(retry_pause * (1 << (number - 2)), pause_max),
               [this, number] { ask_slurm(number); });
}

void SignalReason::when_known(std::function<void()> go) {
    if (!is_awaited_) return go();
    go_ = std::move(go);
}

void SignalReason::tell(std::string text) {
    if (text.empty() || text == text_) return;
    text_ = std::move(text);
    if (on_reason) on_reason(text_);
}

}  // namespace muster::launcher
