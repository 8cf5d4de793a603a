#include "agent/diagnosis/worker_timers.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "agent/diagnosis/json_members.h"

namespace muster::agent {

namespace {

constexpr std::size_t scope_bytes_max = 200;
constexpr int signal_max = 64;
constexpr double left_max_s = 30.0 * 24 * 3600;  ///< A longer timer is not a watchdog, and would overflow the clock.

}  // namespace

std::size_t WorkerTimers::read(std::string_view bytes, TimerNow now) {
    std::size_t refused = 0;
    while (!bytes.empty()) {
        const auto end = bytes.find('\n');
        const auto piece = bytes.substr(0, end);
        if (!skipping_) rest_ += piece.substr(0, line_bytes_max + 1);
        if (rest_.size() > line_bytes_max) {
            ++refused;
            rest_.clear();
            skipping_ = true;
        }
        if (end == std::string_view::npos) break;
        if (!std::exchange(skipping_, false) && !read_line(rest_, now)) ++refused;
        rest_.clear();
        bytes.remove_prefix(end + 1);
    }
    return refused;
}

bool WorkerTimers::read_line(std::string_view line, TimerNow now) {
    // A request is flat: nesting is somebody's attempt on our stack.
    if (std::ranges::count(line, '{') > 1 || line.find('[') != std::string_view::npos) return false;
    const auto request = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!request.is_object()) return false;
    const auto pid = integer_of(request, "pid");
    const auto expiration = number_of(request, "expiration_time");
    const auto signal = integer_of(request, "signal");
    const auto* scope = member_of(request, "scope_id");
    if (!pid || *pid < 1 || *pid > 0x7fffffff || !expiration || !signal || *signal < 0 || *signal > signal_max)
        return false;
    if (scope == nullptr || !scope->is_string()) return false;
    const auto& words = scope->get_ref<const std::string&>();
    const std::pair name{static_cast<std::int32_t>(*pid), words.substr(0, scope_bytes_max)};
    if (*expiration < 0) {
        timers_.erase(name);
        return true;
    }
    if (timers_.size() >= timers_max && !timers_.contains(name)) return false;
    const std::chrono::duration<double> left(std::clamp(*expiration - now.wall_s, 0.0, left_max_s));
    timers_[name] = {now.steady + std::chrono::duration_cast<Duration>(left), static_cast<std::int32_t>(*signal)};
    return true;
}

std::vector<ExpiredTimer> WorkerTimers::take_expired(Instant now) {
    std::vector<ExpiredTimer> expired;
    for (const auto& [name, timer] : timers_) {
        if (timer.expires > now || timer.signal == 0) continue;
        const ExpiredTimer one{name.first, name.second, timer.signal, now - timer.expires};
        // The map's order keeps a process's timers together.
        if (expired.empty() || expired.back().pid != one.pid)
            expired.push_back(one);
        else if (one.late > expired.back().late)
            expired.back() = one;
    }
    for (const auto& one : expired) forget(one.pid);
    return expired;
}

void WorkerTimers::forget(std::int32_t pid) {
    std::erase_if(timers_, [pid](const auto& entry) { return entry.first.first == pid; });
}

Instant WorkerTimers::next_expiry() const {
    auto next = no_deadline;
    for (const auto& [name, timer] : timers_)
        if (timer.signal != 0) next = std::min(next, timer.expires);
    return next;
}

}  // namespace muster::agent
