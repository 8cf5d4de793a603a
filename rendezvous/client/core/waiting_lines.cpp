#include "rendezvous/client/core/waiting_lines.h"

#include <algorithm>

#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

namespace {

constexpr Duration quiet_at_first = 1s;
constexpr Duration line_interval_min = 1s;
constexpr Duration repeated_every = 30s;
/// Without progress for this long, the line includes advice.
constexpr Duration advice_after = 10s;

std::int64_t seconds(Duration duration) {
    return std::max<std::int64_t>(0, std::chrono::ceil<std::chrono::seconds>(duration).count());
}

}  // namespace

void WaitingLines::begin(Instant now) {
    began_ = now;
    gathering_.reset();
    parked_.reset();
    changed_ = true;
    next_line_ = now + quiet_at_first;
    stands_since_ = now;
}

void WaitingLines::answered(Instant now) {
    if (answering_) return;
    answering_ = true;
    stands_since_ = now;
    tried_.clear();
}

void WaitingLines::no_answer(Reached reached, std::string what, Instant now) {
    if (answering_ || (reached == Reached::store && reached_ != reached)) {
        stands_since_ = now;
        changed_ = true;
    }
    answering_ = false;
    reached_ = reached;
    tried_ = std::move(what);
}

void WaitingLines::gathering(const native::Gathering& news, Instant now) {
    parked_.reset();
    gathering_ = news;
    gathering_at_ = stands_since_ = now;
    changed_ = true;
}

void WaitingLines::parked(const native::Parked& parked, Instant now) {
    if (!parked_) next_line_ = std::min(next_line_, now);
    parked_ = parked;
    changed_ = true;
}

void WaitingLines::stalled(const std::string& why) {
    if (stalled_ == why) return;
    stalled_ = why;
    changed_ = true;
}

std::string WaitingLines::state() const {
    const auto where = cat(is_etcd_ ? "etcd " : "", describe(endpoint_));
    if (!answering_) {
        if (is_etcd_ && tried_.empty()) return cat("no daemon of this job is the leader yet at ", where);
        if (reached_ != Reached::nothing) return cat(where, ": ", tried_);
        return cat(where, " did not answer", tried_.empty() ? "" : " (", tried_, tried_.empty() ? "" : ")");
    }
    if (!stalled_.empty())
        return cat("the daemon at ", where, " holds back its decisions, because it cannot write its state: ", stalled_);
    if (parked_ && !parked_->why.empty()) return cat(parked_->why, "; waiting at ", where);
    if (parked_) {
        const auto before = parked_->position;
        return cat("this node is a spare of job '", job_, "' at ", where,
                   before == 0 ? std::string(" (first in the queue)") : cat(" (", before, " before it)"),
                   " and starts its workers only when a node is lost");
    }
    if (!gathering_) return cat("connected to ", where);
    const auto& count = *gathering_;
    const auto size =
        count.nodes_min == count.nodes_max ? cat(count.nodes_max) : cat(count.nodes_min, "..", count.nodes_max);
    return cat(count.joined, " of ", size, " nodes joined at ", where,
               count.waiting_for.empty() ? "" : "; waiting for ", count.waiting_for);
}

std::string WaitingLines::text(Instant now, Instant gives_up_at) const {
    auto line = state();
    if (gathering_ && answering_ && stalled_.empty() && gathering_->last_call_left_ms >= 0) {
        const Duration left = std::chrono::milliseconds(gathering_->last_call_left_ms) - (now - gathering_at_);
        line += cat("; last call ends in ", seconds(left), " s");
    }
    if (!parked_ || !answering_) line += cat("; timeout in ", seconds(gives_up_at - now), " s");
    if (now >= advice_at()) line += advice();
    return line;
}

/// When advice is due if nothing changes. A wait for enough nodes or for the daemon may be a mistake of the user; that
/// of a spare or for the last call is not.
Instant WaitingLines::advice_at() const {
    const bool stuck =
        !answering_ || (stalled_.empty() && !parked_ && gathering_ && gathering_->joined < gathering_->nodes_min);
    if (stuck && !answering_ && reached_ == Reached::store) return stands_since_;  // nothing will change by itself
    return stuck ? stands_since_ + advice_after : no_deadline;
}

std::string WaitingLines::advice() const {
    if (!answering_ && reached_ == Reached::follower) return {};
    if (is_etcd_)
        return answering_ ? cat(". Check that the other nodes are started with the same --rdzv-id and the same etcd")
                          : cat(". Check that this node can reach etcd, and that the other nodes can reach this one "
                                "(--local-addr)");
    if (!answering_ && reached_ == Reached::store)
        return ". muster and torchrun cannot form one job: start all nodes with muster, or all with torchrun. If the "
               "port belongs to another job, choose another port";
    std::string advice;
    if (!answering_ && reached_ == Reached::a_peer)
        advice = cat(". Check the name '", endpoint_.host, "' and the port ", endpoint_.port,
                     ", because another program may listen there, and that no firewall blocks it. If the "
                     "daemon is there, check that it is not stopped, and see its log");
    else if (!answering_)
        advice = cat(". Check that the name '", endpoint_.host,
                     "' is correct on this node, that muster runs there with port ", endpoint_.port,
                     ", and that no firewall blocks it");
    else if (!is_loopback(endpoint_.host))
        advice = cat(". Check that the other nodes are started with the same --rdzv-id and the same endpoint '",
                     endpoint_.host, "', port ", endpoint_.port, ", and that no firewall blocks it");
    const bool is_static = option_ == "--master-addr";
    if (is_loopback(endpoint_.host))
        advice += cat(". '", endpoint_.host, "' is a loopback address: for nodes on several hosts set ", option_,
                      "=HOST", is_static ? " --master-port=" : ":", endpoint_.port);
    if (is_static && answering_) advice += ". Each node needs its own --node-rank";
    return advice;
}

std::optional<std::string> WaitingLines::line(Instant now, Instant gives_up_at) {
    if (now < deadline()) return std::nullopt;
    next_line_ = now + line_interval_min;
    changed_ = false;
    // The next line comes no later than the advice.
    const auto advised = advice_at();
    repeat_at_ = now < advised ? std::min(advised, now + repeated_every) : now + repeated_every;
    return text(now, gives_up_at);
}

Instant WaitingLines::deadline() const {
    if (!began_) return no_deadline;
    return changed_ ? next_line_ : std::max(next_line_, repeat_at_);
}

}  // namespace muster::rendezvous
