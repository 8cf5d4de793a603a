// TcpLanes: its waits and their ends.
#include <errno.h>
#include <sched.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/tcp/mesh/tcp_limits.h"
#include "worker_runtime/tcp/tcp_lanes.h"
#include "worker_runtime/transport/poll_timeout.h"

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
    bool told = false;
    for (Instant current = began;; current = now()) {
        if (auto in_time = check_deadline(terms); !in_time) return in_time;
        const bool spinning = current - began < spin;
        const bool is_long = current - began >= wait_is_long_after;
        if (is_long && !std::exchange(told, true)) group_.waits_for(this, awaited());
        const Instant until = is_long ? terms.deadline : std::min(terms.deadline, began + wait_is_long_after);
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
        if (can_move) {
            if (told) group_.waits_for(this, {});
            return {};
        }
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
            (void)note(event.data.u64, event.events);
        }
    } while (count == static_cast<int>(events.size()));
    return group_.gave_up(operations_) ? Result<void>(group_.failure_soon()) : Result<void>();
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

std::vector<int> TcpLanes::ranks_that(const auto& owes) const {
    std::vector<int> ranks;
    for (const auto& one : streams_)
        if (owes(one) && (ranks.empty() || ranks.back() != one.peer)) ranks.push_back(one.peer);
    return ranks;
}

/// Those whose headers are missing. If all have come, those whose own data is; else those who owe an answer.
std::vector<int> TcpLanes::awaited() const {
    auto ranks = ranks_that([](const Stream& one) { return one.header_received < sizeof(HeaderBytes); });
    if (ranks.empty()) ranks = ranks_that([](const Stream& one) { return one.lane == 0 && !one.in.next().empty(); });
    if (ranks.empty()) ranks = ranks_that([](const Stream& one) { return !one.done(); });
    return ranks;
}

Result<void> TcpLanes::check_deadline(const RunTerms& terms) {
    if (now() < terms.deadline) return {};
    const auto owing = awaited();
    group_.waits_for(this, owing);
    const auto late = MUSTER_TRY(group_.trace(owing, operations_));
    const auto is_partner = [this](int peer) {
        return std::binary_search(group_.partners().begin(), group_.partners().end(), peer);
    };
    const bool came = std::all_of(late.ranks.begin(), late.ranks.end(), [&](int peer) {
        return is_partner(peer) && stream(peer, 0, 0).header_received == sizeof(HeaderBytes);
    });
    // Who is no partner has sent no header here, in whatever operation it is.
    const bool partners_only = std::all_of(late.ranks.begin(), late.ranks.end(), is_partner);
    return group_.fail(Errc::timed_out,
                       cat(doing(), " on communicator ", group_.id(), " timed out: ", late.names,
                           came                                 ? " reached it, but did not finish it"
                           : partners_only || group_.is_whole() ? " did not reach it"
                                                                : " did not reach it, or did not finish it"),
                       operations_);
}

}  // namespace muster::runtime
