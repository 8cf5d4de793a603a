#include "tests/transcripts/job_replay.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "rendezvous/base/text/text.h"

namespace muster::test {

namespace {

struct Comparison {
    void compare(std::string_view what, const auto& status, const auto& events) {
        if (status != events) text += cat(what, ": ", status, " in the status, ", events, " by the events; ");
    }
    std::string text{};
};

/// What is not UTF-8 is U+FFFD in the status.
std::string shown(const std::string& host) {
    return nlohmann::json(host).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

void JobReplay::move_all(std::string_view from, std::string_view to) {
    for (auto& [number, node] : nodes_)
        if (from.empty() || node.place == from) node.place = to;
}

void JobReplay::seal(const EventFacts& facts) {
    std::int64_t rank = 0, base = 0;
    for (auto& [number, node] : nodes_) node.group_rank = node.rank_base = -1;
    for (const auto range : split(facts.members, ',')) {
        const auto ends = split(range, '-');
        for (auto number = std::stoll(std::string(ends.front())); number <= std::stoll(std::string(ends.back()));
             ++number) {
            auto& node = nodes_.at(number);
            node.place = "running";
            node.may_return = false;
            node.group_rank = rank++;
            node.rank_base = base;
            base += node.slot_count;
        }
    }
}

void JobReplay::take(const Event& event) {
    const auto& facts = event.facts;
    if (facts.restart_count >= 0) restarts_used_ = facts.restart_count;
    switch (event.kind) {
        case EventKind::job_started:
            if (phase() == "over") *this = JobReplay();
            break;
        case EventKind::job_waiting: waiting_for_ = facts.waiting_for; return;
        case EventKind::node_joined:
            nodes_[facts.node] = {facts.host, facts.pid, facts.slot_count, facts.role};
            nodes_[facts.node].may_return = phase_ != "gathering";
            return;
        case EventKind::node_left:
        case EventKind::node_gone: nodes_.erase(facts.node); return;
        case EventKind::node_lost: nodes_.at(facts.node).place = "lost"; return;
        case EventKind::node_left_out: nodes_.at(facts.node).left_out = true; return;
        case EventKind::node_taken_back: nodes_.at(facts.node).left_out = false; return;
        case EventKind::round_sealed:
            seal(facts);
            waiting_for_.clear();
            phase_ = "running";
            round_ = event.round;
            knows_places_ = true;
            return;
        case EventKind::round_resumed:
            phase_ = "running";
            round_ = event.round;
            knows_places_ = false;
            return;
        case EventKind::round_ended:
            note_round(event);
            move_all("running", "draining");
            phase_ = facts.outcome.empty() ? "draining" : "ending";
            return;
        case EventKind::round_drained:
            note_round(event);
            move_all({}, "waiting");
            phase_ = "gathering";
            return;
        case EventKind::job_ended: phase_ = "over"; return;
        default: break;
    }
    if (facts.nodes_max >= 0) terms_ = facts;
}

/// Also where the next round is sealed in the same turn.
void JobReplay::note_round(const Event& event) {
    if (event.round != round_)
        misplaced_ += cat(type_name(event.kind), " of round ", round_, " has round ", event.round, "; ");
}

/// The last node of a round may be gone, and the next one is still awaited.
std::string JobReplay::phase() const {
    return phase_ == "draining" && nodes_.empty() ? "gathering" : phase_;
}

/// The status may be ahead for a second, and names the last of several refused nodes.
bool JobReplay::waits_for_else(const std::string& status, Instant now) {
    const auto kept = [](const std::string& text) {
        return text.substr(0, std::min(text.find("; the last node was refused"), text.find("; torchrun on")));
    };
    const bool is_moment = phase_ != "running" && phase_ != "gathering";
    if (is_moment || nodes_.empty() || kept(status) == kept(waiting_for_))
        differs_since_ = no_deadline;
    else
        differs_since_ = std::min(differs_since_, now);
    return differs_since_ != no_deadline && now > differs_since_ + 1s;
}

std::string JobReplay::difference(const nlohmann::json& job, Instant now) {
    Comparison told;
    told.text = misplaced_;
    told.compare("phase", job["phase"].get<std::string>(), phase());
    told.compare("round", job["round"].get<Round>(), round_);
    told.compare("restarts", job["restarts_used"].get<std::int64_t>(), restarts_used_);
    told.compare("restarts_max", job["restarts_max"].get<std::int64_t>(), terms_.restarts_max);
    told.compare("nodes_min", job["nodes_min"].get<std::int64_t>(), terms_.nodes_min);
    told.compare("nodes_max", job["nodes_max"].get<std::int64_t>(), terms_.nodes_max);
    const auto waiting_for = job["waiting_for"].get<std::string>();
    if (waits_for_else(waiting_for, now)) told.compare("waiting_for", waiting_for, waiting_for_);
    if (phase_ == "over") return told.text;
    told.compare("nodes", job["nodes"].size(), nodes_.size());
    for (const auto& one : job["nodes"]) {
        // Of several with one host and pid, which the status does not number, one is as it says.
        std::optional<std::string> least;
        const auto host = one["host"].dump();
        const auto pid = one["pid"].get<std::int64_t>();
        for (const auto& [number, node] : nodes_)
            if (pid == node.pid && host == shown(node.host) && (!least || !least->empty()))
                least = difference(one, node);
        told.text += least.value_or(cat(one["host"].get<std::string>(), " is in the status only"));
    }
    return told.text;
}

std::string JobReplay::difference(const nlohmann::json& one, const Node& node) const {
    Comparison told;
    const auto compare = [&](std::string_view what, const auto& status, const auto& events) {
        told.compare(cat(node.host, ".", what), status, events);
    };
    compare("slots", one["slots"].get<std::int64_t>(), node.slot_count);
    compare("role", one["role"].get<std::string>(), node.role);
    if (!knows_places_ || node.may_return) return told.text;
    compare("group_rank", one.value("group_rank", std::int64_t{-1}), node.group_rank);
    compare("rank_base", one.value("rank_base", std::int64_t{-1}), node.rank_base);
    if (phase_ == "draining" || phase_ == "ending") return told.text;
    const auto place = one["place"].get<std::string>();
    compare("left_out", one.value("left_out", false), node.left_out && node.place == "waiting");
    compare("place", place == "parked" ? "waiting" : place == "succeeded" ? "running" : place, node.place);
    return told.text;
}

}  // namespace muster::test
