// TcpLanes' waits, and how they end.
#include <errno.h>
#include <sched.h>
#include <sys/epoll.h>

#include <array>
#include <optional>
#include <utility>

#include "rendezvous/base/text.h"
#include "worker_runtime/cpu/poll_timeout.h"
#include "worker_runtime/cpu/tcp_lanes.h"
#include "worker_runtime/cpu/tcp_limits.h"

namespace muster::runtime {

namespace {

Instant now() {
    return std::chrono::steady_clock::now();
}

}  // namespace

// ---- waiting ----

Result<void> TcpLanes::wait(const RunTerms& terms) {
    const Duration spin = group_.spin(terms.patience);
    const Instant began = now();
    Instant current = began;
    for (;; current = now()) {
        if (auto in_time = check_deadline(terms); !in_time) return in_time;
        const Instant until = current < terms.deadline ? terms.deadline : terms.deadline + witness_delay;
        const bool spinning = current - began < spin;
        std::array<epoll_event, 64> events;
        const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                       spinning ? 0 : poll_timeout_ms(until, current));
        if (count < 0 && errno != EINTR) return error_from_errno(errno, "wait for connections");
        std::optional<Error> failure;
        bool can_move = false;
        for (int i = 0; i < count; ++i) {
            const auto& event = events[static_cast<std::size_t>(i)];
            can_move = can_move || event.data.u64 < control_mark;
            if (auto noted = note(event.data.u64, event.events); !noted) failure = noted.error();
        }
        // What the others sent before the failure may be all that this operation needs: the failure's news comes again.
        if (failure && !can_move) return *failure;
        if (count > 0) return {};
        if (spinning) ::sched_yield();
    }
}

/// A late rank finds all that it needs and never waits: only this tells it that the others have given up meanwhile.
/// What ended them after this operation is the next one's business.
Result<void> TcpLanes::look_back() {
    std::array<epoll_event, 64> events;
    int count = 0;
    do {
        count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
        for (int i = 0; i < count; ++i) {
            const auto& event = events[static_cast<std::size_t>(i)];
            if (!note(event.data.u64, event.events) && group_.gave_up(operations_)) return group_.failure();
        }
    } while (count == static_cast<int>(events.size()));
    return {};
}

Result<void> TcpLanes::note(std::uint64_t what, std::uint32_t events) {
    if (what == wake_mark) return group_.failure();
    if (what >= control_mark) {
        const auto heard = group_.hear(static_cast<int>(what - control_mark));
        return heard ? Result<void>() : heard.error();
    }
    Stream& stream = streams_[what];
    if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) stream.ended = true;
    if (stream.ended || (events & EPOLLIN)) stream.readable = true;
    if (stream.ended || (events & EPOLLOUT)) stream.writable = true;
    return {};
}

// ---- failures ----

std::string TcpLanes::doing() const {
    return cat("operation ", operations_, " (", describe(header(rank())), ")");
}

Error TcpLanes::lost(const Stream& stream, int failure) {
    return group_.lost(stream.peer, failure, doing());
}

template <class Guilty>
std::string TcpLanes::accused(const Guilty& guilty) const {
    std::vector<std::string> names;
    for (const auto& one : streams_) {
        if (!guilty(one)) continue;
        auto who = group_.who(one.peer);
        if (names.empty() || names.back() != who) names.push_back(std::move(who));
    }
    return join(names, ", ");
}

/// Accuses those whose headers are missing. If all have come, those whose own data is, which depends on nobody else.
/// Whoever waits for answers alone accuses nobody at first, and then all of these: they may themselves wait for the one
/// that stopped.
Result<void> TcpLanes::check_deadline(const RunTerms& terms) {
    const Instant current = now();
    if (current < terms.deadline) return {};
    const auto fail = [this](const std::string& late, std::string_view how) {
        return group_.fail(Errc::timed_out,
                           cat(doing(), " on communicator ", group_.id(), " was not over by its deadline: ", late, how),
                           operations_);
    };
    auto late = accused([](const Stream& one) { return one.header_received < sizeof(HeaderBytes); });
    if (!late.empty()) return fail(late, " did not come");
    late = accused([](const Stream& one) { return one.lane == 0 && !one.in.next().empty(); });
    if (late.empty() && current - terms.deadline < witness_delay) return {};
    if (late.empty()) late = accused([](const Stream& one) { return !one.done(); });
    return fail(late, " came, but stopped in it");
}

}  // namespace muster::runtime
