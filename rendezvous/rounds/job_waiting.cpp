// Progress messages to waiting nodes: what they wait for; sent on change, at most once per gathering_interval.
#include <algorithm>
#include <tuple>
#include <utility>

#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/assignment.h"
#include "rendezvous/rounds/job.h"
#include "rendezvous/rounds/missing_hosts.h"

namespace muster::rendezvous {

namespace {

/// Addresses of waiting torchrun agents that are told; more are not.
constexpr std::size_t torchruns_max = 64;

std::string more_nodes(std::uint32_t count) {
    return cat(count, " more ", count == 1 ? "node" : "nodes");
}

}  // namespace

/// How many more nodes the running round would accept. None once a node has finished: a nearly finished round is not
/// restarted for a late joiner.
std::uint32_t Job::room() const {
    if (!round_.running() || round_.unfinished < round_.node_count || round_.node_count >= terms_.nodes_max) return 0;
    return terms_.nodes_max - round_.node_count;
}

/// How many nodes the gathering waits for; the first one includes the spares.
std::uint32_t Job::wanted() const {
    return terms_.nodes_max + (round_.number == no_round ? terms_.spares : 0);
}

std::string Job::waiting_for(Instant now) const {
    return awaited(now) + strangers();
}

std::string Job::awaited(Instant now) const {
    if (ending_) return "agents to acknowledge the end";
    if (round_.running())
        return room() > 0 && tally_.gathered > tally_.excluded ? "more nodes, before the round restarts with them" : "";
    const auto one_of = [this](Place place) {
        const auto found = std::find_if(members_.begin(), members_.end(),
                                        [place](const auto& entry) { return entry.second.place == place; });
        return found == members_.end() ? std::string{} : label(found->second.node);
    };
    const auto others = [](std::uint32_t count) {
        return count > 1 ? cat(" and ", count - 1, " more") : std::string{};
    };
    if (tally_.draining > 0) return cat(one_of(Place::draining), others(tally_.draining), " to stop its workers");
    if (tally_.lost > 0)
        return cat("confirmation that ", one_of(Place::lost), others(tally_.lost), ", lost, has stopped");
    const auto parked = parked_nodes();
    const auto missing = tally_.gathered < wanted() ? missing_hosts(members_) : std::string();
    const auto named = missing.empty() ? std::string() : cat(" (missing: ", missing, ")");
    if (tally_.gathered < nodes_needed()) return cat(more_nodes(nodes_needed() - tally_.gathered), named, parked);
    const auto hold = hold_at(now);
    if (hold == Hold::given_up) return "confirmation that the workers of lost or refused nodes have stopped";
    if (tally_.gathered < wanted())
        return cat("up to ", more_nodes(wanted() - tally_.gathered), named, ", until the last call ends", parked);
    if (lacks_host()) return "the node whose muster serves this rendezvous; it has not joined, or has left";
    if (hold == Hold::start) return "nodes of an earlier round, which may reconnect after the daemon's start";
    return tally_.away > 0 ? "a node that lost its connection" : "";
}

/// Who cannot join it while it gathers.
std::string Job::strangers() const {
    const bool gathers = !ending_ && !round_.running() && tally_.draining + tally_.lost == 0;
    if (!gathers || tally_.gathered >= wanted()) return {};
    auto out = last_refusal_.empty() ? std::string{} : cat("; the last node was refused: ", last_refusal_);
    if (!torchruns_at_.empty())
        out += cat("; torchrun on ", some_hosts(torchruns_at_),
                   " waits here for a job with this name, but muster and torchrun cannot form one job: start all nodes "
                   "with muster, or all with torchrun");
    return out;
}

/// For the events, on change. A node that is refused again and again is one change, though its words differ.
std::string Job::note_waiting(const Turn& turn) {
    const auto others = strangers();
    auto told = awaited(turn.now);
    auto whole = told + others;
    if (!others.empty()) told += ";";
    if (told != std::exchange(waiting_told_, told))
        turn.note(EventKind::job_waiting, cat("job '", id_, "' waits for ", whole.empty() ? "no more nodes" : whole),
                  {.waiting_for = whole});
    return whole;
}

/// Each of them comes once a second.
void Job::on_torchrun(const std::string& peer, const Turn& turn) {
    if (round_.running() || ending_ || tally_.gathered == 0 || torchruns_at_.size() == torchruns_max) return;
    if (std::ranges::find(torchruns_at_, peer) != torchruns_at_.end()) return;
    torchruns_at_.push_back(peer);
    waiting_changed_ = true;
    turn.tell(EventKind::node_waiting, cat("job '", id_, "': torchrun on ", peer, " waits for it in the store"));
    send_waiting(turn);
}

void Job::send_waiting(const Turn& turn) {
    if (!waiting_changed_) return;
    if (tally_.gathered + tally_.parked == 0) {
        // Nobody is to be told, but the events say so. Not while each node that drains would be a change.
        waiting_changed_ = false;
        if (tally_.draining + tally_.lost == 0) note_waiting(turn);
        return;
    }
    if (waiting_sent_at_ != Instant::min() && turn.now < waiting_sent_at_ + config_.gathering_interval) return;
    waiting_changed_ = false;
    waiting_sent_at_ = turn.now;

    std::vector<Member*> waiting;
    for (auto& [incarnation, member] : members_)
        if (member.place == Place::waiting && member.connected() && !member.leaving) waiting.push_back(&member);
    std::sort(waiting.begin(), waiting.end(), [](const auto* a, const auto* b) {
        const auto order = [](const Member* one) {
            return std::tuple(one->health == Health::parked, one->set_aside(), one->arrival);
        };
        return order(a) < order(b);
    });
    const std::size_t joiners = tally_.gathered - tally_.excluded;
    // Without a round and without any other node, those that are parked wait for nodes, and not without a limit.
    const auto able = tally_.gathered > 0 ? waiting.size() - tally_.parked : waiting.size();
    const auto gathered = round_.running() ? std::min<std::size_t>(room(), joiners) : able;

    native::Gathering news{.joined = tally_.gathered + (round_.running() ? round_.node_count : 0),
                           .nodes_min = nodes_needed(),
                           .nodes_max = terms_.nodes_max,
                           .last_call_left_ms = -1,
                           .waiting_for = note_waiting(turn)};
    // A daemon that has just started seals nothing in its quiet time, so nodes may come until that ends too.
    if (call_open_)
        news.last_call_left_ms = std::max<std::int64_t>(
            0, std::chrono::duration_cast<std::chrono::milliseconds>(std::max(call_ends_, no_seal_before_) - turn.now)
                   .count());
    SendTo told{{}, news};
    for (std::size_t i = 0; i < gathered; ++i) {
        waiting[i]->parked_at = 0;
        told.connections.push_back(waiting[i]->connection);
    }
    if (!told.connections.empty()) turn.step.actions.push_back(std::move(told));
    for (std::size_t i = gathered; i < waiting.size(); ++i) {
        const auto position = static_cast<std::uint32_t>(i - gathered);
        if (waiting[i]->parked_at == position + 1) continue;
        waiting[i]->parked_at = position + 1;
        auto why = waiting[i]->excluded ? exclusion_reason(*waiting[i]) : std::string();
        // One that goes on in spite of its finding is a spare like any other.
        if (waiting[i]->health == Health::parked || waiting[i]->health == Health::doubted)
            why = why_parked(*waiting[i]);
        turn.send(waiting[i]->connection, native::Parked{position, std::move(why)});
    }
}

}  // namespace muster::rendezvous
