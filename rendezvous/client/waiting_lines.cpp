#include "rendezvous/client/waiting_lines.h"

#include <algorithm>

#include "rendezvous/base/text.h"

namespace muster::rendezvous {

namespace {

constexpr Duration quiet_at_first = 1s;
constexpr Duration line_interval_min = 1s;
constexpr Duration repeated_every = 30s;
/// So long without a connection, and it is time to say what to look at.
constexpr Duration advice_after = 10s;

std::int64_t seconds(Duration duration) {
    return std::max<std::int64_t>(0, std::chrono::ceil<std::chrono::seconds>(duration).count());
}

}  // namespace

void WaitingLines::begin(Instant now, Instant gives_up_at) {
    began_ = now;
    gives_up_at_ = gives_up_at;
    gathering_.reset();
    parked_.reset();
    changed_ = true;
    next_line_ = now + quiet_at_first;
    if (!connected_) disconnected_since_ = now;
}

void WaitingLines::connected() {
    connected_ = true;
    tried_.clear();
}

void WaitingLines::disconnected(std::string tried, Instant now) {
    if (connected_) disconnected_since_ = now;
    if (connected_ || tried_.empty()) changed_ = changed_ || connected_;
    connected_ = false;
    tried_ = std::move(tried);
}

void WaitingLines::gathering(const native::Gathering& news, Instant now) {
    parked_.reset();
    gathering_ = news;
    gathering_at_ = now;
    changed_ = true;
}

void WaitingLines::parked(const native::Parked& parked) {
    parked_ = parked;
    changed_ = true;
}

std::string WaitingLines::state() const {
    const auto where = describe(endpoint_);
    if (!connected_)
        return cat(where, " did not answer", tried_.empty() ? "" : " (", tried_, tried_.empty() ? "" : ")");
    if (parked_) return cat("this node is a spare at ", where, " (", parked_->position, " before it)");
    if (!gathering_) return cat("connected to ", where);
    const auto& news = *gathering_;
    const auto size =
        news.nodes_min == news.nodes_max ? cat(news.nodes_max) : cat(news.nodes_min, "..", news.nodes_max);
    return cat(news.joined, " of ", size, " nodes joined at ", where, news.waiting_for.empty() ? "" : "; waiting for ",
               news.waiting_for);
}

std::string WaitingLines::text(Instant now) const {
    auto line = state();
    if (gathering_ && connected_ && gathering_->last_call_left_ms >= 0) {
        const Duration left = std::chrono::milliseconds(gathering_->last_call_left_ms) - (now - gathering_at_);
        line += cat("; last call ends in ", seconds(left), " s");
    }
    if (!parked_) line += cat("; gives up in ", seconds(gives_up_at_ - now), " s");
    if (!connected_ && now - disconnected_since_ >= advice_after)
        line += cat(". Check that the name '", endpoint_.host,
                    "' is the right one on this node, that muster runs there with port ", endpoint_.port,
                    ", and that no firewall is in between");
    if (is_loopback(endpoint_.host) && now - *began_ >= advice_after)
        line +=
            cat(". '", endpoint_.host,
                "' is each machine itself: for nodes on several machines give --rdzv-endpoint=HOST:", endpoint_.port);
    return line;
}

std::optional<std::string> WaitingLines::line(Instant now) {
    if (now < deadline()) return std::nullopt;
    // Without a connection the next thing to say is the advice, when it is due.
    const auto advice = disconnected_since_ + advice_after;
    const auto repeated = now + repeated_every;
    next_line_ = now + line_interval_min;
    changed_ = false;
    auto said = text(now);
    repeat_at_ = !connected_ && now < advice ? advice : repeated;
    return said;
}

Instant WaitingLines::deadline() const {
    if (!began_) return no_deadline;
    return changed_ ? next_line_ : std::max(next_line_, repeat_at_);
}

}  // namespace muster::rendezvous
