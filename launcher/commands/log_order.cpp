#include "launcher/commands/log_order.h"

#include <algorithm>

namespace muster::launcher {

namespace {

constexpr std::size_t line_bytes = 100;  // beside its text
/// So many times the patience a line waits at most for a node that is live.
constexpr int patiences_max = 40;

}  // namespace

LogOrder::NodeId LogOrder::add_node() {
    nodes_.emplace_back();
    ++unknown_;
    return nodes_.size() - 1;
}

bool LogOrder::begin_again(NodeId id) {
    auto& node = nodes_[id];
    if (!node.has_ended || !node.lines.empty()) return false;
    node = {};
    ++unknown_;
    return true;
}

void LogOrder::leave(NodeId id) {
    const auto& node = nodes_[id];
    if (!node.lines.empty())
        heads_.erase({node.lines.front().line.time_ns, id});
    else
        silent_.erase({node.reached_ns, id});
}

void LogOrder::enter(NodeId id) {
    const auto& node = nodes_[id];
    if (!node.lines.empty())
        heads_.emplace(node.lines.front().line.time_ns, id);
    else if (node.is_known && !node.has_ended)
        silent_.emplace(node.reached_ns, id);
}

void LogOrder::set_clock(NodeId id, std::int64_t ahead_ns) {
    leave(id);
    auto& node = nodes_[id];
    if (!node.is_known && !node.has_ended) --unknown_;
    node.is_known = true;
    node.ahead_ns = ahead_ns;
    enter(id);
}

void LogOrder::add(NodeId id, std::size_t file, agent::LogLine line, Instant now) {
    leave(id);
    auto& node = nodes_[id];
    // 0: its file does not say when it was written.
    if (line.time_ns != 0) line.time_ns -= node.ahead_ns;
    node.bytes += line_bytes + line.text.size();
    if (!node.is_live || line.time_ns > std::max(node.newest_ns, node.reached_ns)) node.heard = now;
    node.newest_ns = std::max(node.newest_ns, line.time_ns);
    node.lines.push_back({.file = file, .line = std::move(line), .since = now});
    enter(id);
}

void LogOrder::reached(NodeId id, std::int64_t time_ns, Instant now) {
    leave(id);
    auto& node = nodes_[id];
    node.is_live = true;
    if (const auto by_us = time_ns - node.ahead_ns; by_us > node.reached_ns) {
        node.heard = now;
        node.reached_ns = by_us;
    }
    enter(id);
}

void LogOrder::end(NodeId id) {
    leave(id);
    auto& node = nodes_[id];
    if (!node.is_known && !node.has_ended) --unknown_;
    node.has_ended = true;
    enter(id);
}

Instant LogOrder::may_show_at(const Node& first) const {
    const auto& waiting = first.lines.front();
    auto at = unknown_ > 0 ? clocks_until_ : Instant{};
    for (const auto& [reached_ns, id] : silent_) {
        if (reached_ns >= waiting.line.time_ns) break;
        const auto& node = nodes_[id];
        const auto until = std::max(waiting.since, node.heard) + patience_;
        at = std::max(at, node.is_live ? std::min(until, waiting.since + patiences_max * patience_) : until);
    }
    return at;
}

std::optional<LogOrder::Line> LogOrder::next(Instant now) {
    if (heads_.empty()) return std::nullopt;
    const auto id = heads_.begin()->second;
    auto& node = nodes_[id];
    if (now < may_show_at(node)) return std::nullopt;
    leave(id);
    auto& waiting = node.lines.front();
    Line shown{.node = id, .file = waiting.file, .line = std::move(waiting.line)};
    node.lines.pop_front();
    node.bytes -= line_bytes + shown.line.text.size();
    shown.is_late = shown.line.time_ns != 0 && shown.line.time_ns < shown_ns_;
    if (!node.is_live || shown.line.time_ns > node.reached_ns) node.heard = std::max(node.heard, now);
    enter(id);
    shown_ns_ = std::max(shown_ns_, shown.line.time_ns);
    return shown;
}

std::int64_t LogOrder::complete_ns() const {
    auto until = std::numeric_limits<std::int64_t>::max();
    if (!heads_.empty()) until = heads_.begin()->first;
    return silent_.empty() ? until : std::min(until, silent_.begin()->first);
}

}  // namespace muster::launcher
