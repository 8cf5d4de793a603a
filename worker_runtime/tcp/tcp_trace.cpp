// Finds the ranks that delay a group: from a rank at its deadline, along the ranks that wait for each other.
#include <poll.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "worker_runtime/tcp/mesh/tcp_limits.h"
#include "worker_runtime/tcp/tcp_group.h"
#include "worker_runtime/transport/poll_timeout.h"

namespace muster::runtime {

void TcpGroup::waits_for(const void* wait, std::vector<int> ranks) {
    const std::lock_guard lock(mutex_);
    if (ranks.empty())
        waits_.erase(wait);
    else
        waits_[wait] = std::move(ranks);
}

void TcpGroup::also_waits_for(std::function<std::vector<int>()> ranks) {
    const std::lock_guard lock(mutex_);
    also_waits_for_ = std::move(ranks);
}

std::vector<int> TcpGroup::waited_for() const {
    std::set<int> all;
    for (const auto& [wait, ranks] : waits_) all.insert(ranks.begin(), ranks.end());
    if (also_waits_for_) {
        const auto more = also_waits_for_();
        all.insert(more.begin(), more.end());
    }
    if (terms_.waits && !terms_.is_part()) {
        const auto in_parts = terms_.waits->awaited();
        all.insert(in_parts.begin(), in_parts.end());
    }
    return {all.begin(), all.end()};
}

void TcpGroup::trace_for_parts() {
    if (terms_.waits && !terms_.is_part())
        terms_.waits->trace_with([this](const std::vector<int>& late) { return trace(late, 0); });
}

std::vector<int> TcpGroup::numbers_here(const std::vector<int>& root_ranks) const {
    std::vector<int> numbers;
    for (const int one : root_ranks) {
        const auto at = std::find(terms_.root_ranks.begin(), terms_.root_ranks.end(), one);
        numbers.push_back(at == terms_.root_ranks.end() ? -1 : static_cast<int>(at - terms_.root_ranks.begin()));
    }
    return numbers;
}

Result<FailedRanks> TcpGroup::trace(const std::vector<int>& late, std::uint64_t number, Witnesses witnesses) {
    const bool has_root = terms_.waits && terms_.is_part();
    if (size() == 2 && !has_root) return FailedRanks{.ranks = late, .names = who(late)};
    give_up(number);
    if (has_root) {
        auto by_root = terms_.waits->trace(terms_.in_root(late));
        if (by_root && !*by_root) return fail(by_root->error().code, by_root->error().context, number);
        if (by_root) return FailedRanks{.ranks = numbers_here((*by_root)->ranks), .names = (*by_root)->names};
    }
    auto failed_ranks = MUSTER_TRY(size() == 2 ? Result<std::vector<int>>(late) : trace_here(late, witnesses));
    return FailedRanks{.ranks = failed_ranks, .names = who(failed_ranks)};
}

/// Along the ranks of this group.
Result<std::vector<int>> TcpGroup::trace_here(const std::vector<int>& late, Witnesses witnesses) {
    std::set<int> seen{late.begin(), late.end()};
    seen.insert(rank());
    std::map<int, Question> open;
    if (witnesses == Witnesses::all)
        for (const int one : linked()) open[one].witness = true;
    for (auto& [one, question] : open) question.route = {rank(), one};
    for (const int one : late) open[one] = {.route = route_over({rank()}, one)};
    std::vector<int> idle;
    std::vector<int> mute;
    const Instant began = std::chrono::steady_clock::now();
    while (!open.empty()) {
        std::vector<pollfd> polled{{wake_.get(), POLLIN, 0}};
        {
            const std::lock_guard lock(mutex_);
            for (const int one : linked()) {  // others ask, too
                read(one);
                if (inbox(one).told == PeerState::nothing) polled.push_back({control(one).get(), POLLIN, 0});
            }
            if (failure_) return *failure_;
            for (auto one = open.begin(); one != open.end();) {
                const auto next = pursue(one->first, one->second, began);
                if (!next) {
                    ++one;
                    continue;
                }
                if (next->empty() && !one->second.witness) (one->second.answered ? idle : mute).push_back(one->first);
                for (const int rank : *next) {
                    if (rank < 0 || rank >= size() || !seen.insert(rank).second) continue;
                    open[rank].witness = false;
                    open[rank].route = route_over(one->second.route, rank);
                }
                one = open.erase(one);
            }
        }
        // Another thread may read the answers: then nothing wakes this one.
        const auto current = std::chrono::steady_clock::now();
        if (!open.empty())
            ::poll(polled.data(), polled.size(), poll_timeout_ms(current + answer_check_interval, current));
    }
    mute.insert(mute.end(), idle.begin(), idle.end());
    return mute.empty() ? late : mute;
}

/// Before anybody who is late comes, and all but this rank pass.
void TcpGroup::give_up(std::uint64_t number) {
    if (number == 0) return;
    const std::lock_guard lock(mutex_);
    for (const int one : linked())
        send(one, {.kind = ControlFrame::Kind::gives_up, .unfinished = number, .text = {}, .waits_for = {}});
}

/// Whom `rank` waits for; nobody, after a while of asking; nothing yet. Who waits for nobody is asked again: it may
/// have been on its way from one wait to the next.
std::optional<std::vector<int>> TcpGroup::pursue(int rank, Question& question, Instant began) {
    Inbox& box = inbox(rank);
    const Instant current = std::chrono::steady_clock::now();
    if (question.asked == Instant{}) question.asked = current;
    if (question.asked_last != Instant{} && box.waits_for) {
        question.answered = true;
        if (!box.waits_for->empty() || question.witness) return box.waits_for;
    }
    if (box.told != PeerState::nothing || current >= question.asked + answer_limit || current >= began + trace_limit)
        return std::vector<int>{};
    if (current >= question.asked_last + ask_again_after && (question.asked_last == Instant{} || box.waits_for)) {
        box.waits_for.reset();
        question.asked_last = current;
        if (question.route.size() <= 2 && control(rank).valid())
            send(rank, {.kind = ControlFrame::Kind::asks, .text = {}, .waits_for = {}});
        else
            pass_on({.kind = ControlFrame::Kind::asks, .text = {}, .route = question.route, .waits_for = {}});
    }
    return std::nullopt;
}

/// The way to `to` over a rank that waits for it, to which `route` leads: that one is alive, since it has answered.
std::vector<int> TcpGroup::route_over(const std::vector<int>& route, int to) const {
    if (control(to).valid()) return {rank(), to};
    auto longer = route;
    longer.push_back(to);
    return longer;
}

/// One step further on its route. Whoever has no connection with the next rank of it puts a partner between, the one
/// that leads nearest.
void TcpGroup::pass_on(ControlFrame frame) {
    const auto here = std::size_t{frame.place};
    const auto known = [this](int one) { return one >= 0 && one < size(); };
    if (frame.route.size() > route_ranks_max || here >= frame.route.size() || frame.route[here] != rank() ||
        !std::all_of(frame.route.begin(), frame.route.end(), known))
        return;
    if (here + 1 == frame.route.size()) {
        if (frame.kind == ControlFrame::Kind::answers) {
            inbox(frame.route.front()).waits_for = std::move(frame.waits_for);
            return;
        }
        std::reverse(frame.route.begin(), frame.route.end());
        return pass_on({.kind = ControlFrame::Kind::answers,
                        .text = {},
                        .route = std::move(frame.route),
                        .waits_for = waited_for()});
    }
    int next = frame.route[here + 1];
    if (!control(next).valid()) {
        const int ahead = (next - rank() + size()) % size();
        const int back = size() - ahead;
        const int step = static_cast<int>(std::bit_floor(static_cast<unsigned>(std::min(ahead, back))));
        next = (rank() + (ahead <= back ? step : size() - step)) % size();
        frame.route.insert(frame.route.begin() + static_cast<std::ptrdiff_t>(here) + 1, next);
    }
    ++frame.place;
    send(next, frame);
}

Error TcpGroup::failure_soon() {
    const int by = [this] {
        const std::lock_guard lock(mutex_);
        return given_up_by_;
    }();
    pollfd wake{wake_.get(), POLLIN, 0};
    Instant current = std::chrono::steady_clock::now();
    for (const Instant end = current + trace_limit + answer_limit; current < end;
         current = std::chrono::steady_clock::now()) {
        for (const int one : linked()) MUSTER_TRY(one == by ? receive_or_lose(one) : hear(one));
        if (::poll(&wake, 1, poll_timeout_ms(current + answer_check_interval, current)) > 0) return failure();
    }
    return fail(Errc::timed_out, "a rank stopped this operation without giving a reason");
}

}  // namespace muster::runtime
