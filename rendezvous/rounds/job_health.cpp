// Nodes that their own health check found sick (Join::unhealthy). Such a node parks: it takes part in no round, no
// restart is charged for it, and a spare takes its place. When a later check passes its agent joins once more, and it
// waits as any other node does.
//
// Only so many nodes may park for one finding (ledgers/health_breaker.h). Beyond that the check is probably broken: the
// node goes on, and so that the job does not lack nodes because of such a check, those that are parked for the same
// finding take part where the minimum needs them.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/assignment.h"
#include "rendezvous/rounds/job.h"
#include "rendezvous/rounds/ledgers/health_breaker.h"

namespace muster::rendezvous {

namespace {

/// Thousands of nodes may have one, and each new one is compared with all of them.
const std::string& finding_of(Member& member) {
    if (member.finding.empty()) member.finding = finding_key(member.join.unhealthy, member.node.host);
    return member.finding;
}

}  // namespace

void Job::set_health(Member& member, Health health) {
    count(member, -1);
    member.health = health;
    count(member, +1);
    member.parked_at = 0;
    waiting_changed_ = true;
}

/// For a member that has just joined. An embedded daemon's own node is needed by the others: it goes on, but its
/// finding counts.
void Job::judge_health(Member& member, const Turn& turn) {
    const auto& finding = member.join.unhealthy;
    const auto before = member.health;
    member.finding.clear();
    if (finding.empty()) {
        if (before == Health::fit) return;
        set_health(member, Health::fit);
        if (before != Health::ignored)
            turn.tell(EventKind::node_taken_back,
                      cat("job '", id_, "': ", label(member.node), " may take part again: its health check passes"),
                      facts_of(member));
        return;
    }
    if (before != Health::fit) set_health(member, Health::fit);
    const auto key = finding_of(member);
    std::uint32_t parked = 0;
    bool is_ignored = false;
    for (auto& [incarnation, other] : members_) {
        if (other.health == Health::fit || finding_of(other) != key) continue;
        is_ignored = is_ignored || other.health == Health::ignored;
        if (other.health != Health::ignored) ++parked;
    }
    const auto nodes = std::max(static_cast<std::uint32_t>(members_.size()), nodes_needed());
    const auto most = parked_max(nodes);
    auto facts = facts_of(member);
    facts.reason = "unhealthy";
    if (parked < most && !is_host(member)) {
        set_health(member, is_ignored ? Health::doubted : Health::parked);
        if (before == Health::fit || before == Health::ignored)
            turn.tell(EventKind::node_left_out, cat("job '", id_, "': ", why_parked(member)), std::move(facts));
        return;
    }
    for (auto& [incarnation, other] : members_)
        if (other.health == Health::parked && finding_of(other) == key) set_health(other, Health::doubted);
    set_health(member, Health::ignored);
    if (before != Health::ignored)
        turn.tell(before == Health::fit ? EventKind::job_note : EventKind::node_taken_back,
                  cat("job '", id_, "': ", why_goes_on(member)), std::move(facts));
}

std::string Job::why_parked(const Member& member) {
    return cat(label(member.node), " is parked until its health check passes: ", member.join.unhealthy);
}

std::string Job::why_goes_on(const Member& member) const {
    if (is_host(member))
        return cat(label(member.node),
                   " goes on although its health check failed, because it hosts the rendezvous of the others: ",
                   member.join.unhealthy);
    return cat(label(member.node),
               " goes on although its health check failed, because more nodes report the same than "
               "may park for it; look at the check: ",
               member.join.unhealthy);
}

/// One note for each finding and what follows from it: a check that is broken everywhere must not fill the list, which
/// each node of the round gets.
std::vector<std::string> Job::notes_on_health(const std::vector<Member*>& sealed) {
    constexpr std::size_t findings_max = 8;
    std::set<const Member*> taking_part;
    std::ranges::copy_if(sealed, std::inserter(taking_part, taking_part.end()),
                         [](const Member* member) { return member->health != Health::fit; });
    std::map<std::pair<std::string_view, bool>, std::vector<const Member*>> groups;
    for (auto& [incarnation, member] : members_)
        if (member.health != Health::fit && member.place == Place::waiting)
            groups[{finding_of(member), taking_part.contains(&member)}].push_back(&member);
    std::vector<std::string> notes;
    for (const auto& [what, members] : groups) {
        if (notes.size() == findings_max) {
            notes.push_back(cat("health checks found ", groups.size() - findings_max,
                                " more things on nodes of this job; see `muster status`"));
            break;
        }
        const auto& first = *members.front();
        if (members.size() == 1) {
            notes.push_back(what.second ? why_goes_on(first) : why_parked(first));
            continue;
        }
        std::vector<std::string> hosts;
        for (const auto* member : members) hosts.push_back(member->node.host);
        notes.push_back(cat(some_hosts(hosts),
                            what.second ? " go on although their health check failed; look at the check: "
                                        : " are parked until their health check passes: ",
                            first.join.unhealthy));
    }
    return notes;
}

/// "; gpu07 (pid 4711) is parked ...", and of several how many more.
std::string Job::parked_nodes() const {
    if (tally_.parked == 0) return {};
    const auto first =
        std::ranges::find_if(members_, [](const auto& entry) { return entry.second.health == Health::parked; });
    return cat("; ", why_parked(first->second),
               tally_.parked > 1 ? cat(", and ", tally_.parked - 1, " more") : std::string());
}

}  // namespace muster::rendezvous
