// Commands to a job: drain one node, or send a preemption notice to all workers. server.cpp has checked the permission.
#include <algorithm>

#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/job.h"

namespace muster::rendezvous {

namespace {

/// How many nodes an answer names; the rest is a count.
constexpr std::size_t nodes_named_max = 20;

/// HOST:PID, for hosts with several agents.
std::string name_of(const Member& member) {
    return cat(member.node.host, ':', member.node.pid);
}

std::string list(const std::vector<const Member*>& members) {
    std::vector<std::string> names;
    for (const auto* member : members) {
        if (names.size() == nodes_named_max) break;
        names.push_back(name_of(*member));
    }
    auto text = join(names, ", ");
    if (members.size() > names.size()) text += cat(" and ", members.size() - names.size(), " more");
    return text;
}

/// A scheduler signals all nodes of a job in turn, and each passes the signal on. This makes them one notice, because a
/// second one would hurry the workers.
constexpr Duration notices_are_one_within = 2s;

}  // namespace

void Job::on_command(ConnectionId from, const native::Command& command, const Turn& turn) {
    std::optional<native::CommandAnswer> answer;
    if (ending_)
        answer = {command.number, false, cat("the job is over: ", ending_->why)};
    else if (command.verb == native::CommandVerb::drain_node)
        answer = drain_node(command, turn);
    else if (command.verb == native::CommandVerb::inject_fault)
        answer = inject_fault(from, command, turn);
    else
        answer = notify(command, turn);
    if (answer) turn.send(from, *std::move(answer));
    settle(turn);
}

/// The member that HOST or HOST:PID names; else an error that lists the candidates.
Result<Member*> Job::find_node(const std::string& name) {
    std::vector<const Member*> all;
    std::vector<Member*> meant;
    for (auto& [incarnation, member] : members_) {
        all.push_back(&member);
        if (name == member.node.host || name == name_of(member)) meant.push_back(&member);
    }
    if (meant.empty())
        return Error{Errc::not_found,
                     cat("the job has no node '", name, "'; it has ", all.empty() ? "none" : list(all))};
    if (meant.size() > 1)
        return Error{Errc::invalid_argument, cat(meant.size(), " agents of the job run on ", name,
                                                 "; name one of them: ", list({meant.begin(), meant.end()}))};
    return meant.front();
}

native::CommandAnswer Job::drain_node(const native::Command& command, const Turn& turn) {
    const auto no = [&](std::string why) { return native::CommandAnswer{command.number, false, std::move(why)}; };
    const auto found = find_node(command.node);
    if (!found) return no(found.error().context);
    auto& member = **found;
    if (is_host(member))
        return no(cat(name_of(member),
                      " serves the rendezvous, which would be lost with it; stop its muster with a "
                      "signal instead, or run musterd and set --rdzv-endpoint to it"));
    if (!member.leaving) {
        count(member, -1);
        member.leaving = true;
        count(member, +1);
        member.leave_reason = command.why.empty() ? "requested with muster drain" : command.why;
        waiting_changed_ = true;
        turn.tell(EventKind::node_drained,
                  cat("job '", id_, "': ", label(member.node), " must leave: ", member.leave_reason), facts_of(member));
    }
    if (round_.running() && in_running_round(member)) round_.drained = true;
    turn.send(member.connection, native::Drain{member.leave_reason});
    const auto left =
        std::count_if(members_.begin(), members_.end(), [](const auto& one) { return !one.second.leaving; });
    const bool enough = static_cast<std::uint32_t>(left) >= nodes_needed();
    return {command.number, true,
            cat(name_of(member), " was ordered to stop its workers and leave",
                enough ? ""
                       : cat("; the job then waits for another node, because ", left, left == 1 ? " is" : " are",
                             " left and it needs ", nodes_needed()))};
}

native::CommandAnswer Job::notify(const native::Command& command, const Turn& turn) {
    if (!round_.running()) return {command.number, false, "no round of the job is running"};
    if (turn.now < notice_lasts_until_) return {command.number, true, "all workers have just received a notice"};
    noticed_at_ = turn.now;
    notice_why_ = command.why;
    notice_lasts_until_ = turn.now + notices_are_one_within;
    SendTo told{{}, native::NoticeGiven{command.why}};
    for (auto& [incarnation, member] : members_) {
        set_noticed(member, member.place == Place::running && member.connected());
        if (member.noticed) told.connections.push_back(member.connection);
    }
    const auto nodes = told.connections.size();
    turn.tell(EventKind::notice_given, cat("job '", id_, "': notice to all workers: ", command.why));
    if (nodes > 0) turn.step.actions.push_back(std::move(told));
    return {command.number, true, cat("notice sent to the workers of ", nodes, nodes == 1 ? " node" : " nodes")};
}

/// Sends the notice to a node that was disconnected when it was given.
void Job::pass_on_notice(Member& member, const Turn& turn) {
    if (noticed_at_ == no_deadline || member.place != Place::running || member.noticed) return;
    set_noticed(member, true);
    turn.send(member.connection, native::NoticeGiven{notice_why_});
}

void Job::set_noticed(Member& member, bool noticed) {
    if (member.noticed == noticed) return;
    member.noticed = noticed;
    if (config_.keep_records) unkept_nodes_.insert(member.node.incarnation);
}

/// A node that was never sealed into a round has only shown that it knows the job's name and terms, so it may command
/// only itself.
bool Job::may_command(Incarnation incarnation, const native::Command& command) const {
    const auto found = members_.find(incarnation);
    if (found == members_.end()) return false;
    const auto& member = found->second;
    const bool itself = command.verb == native::CommandVerb::drain_node &&
                        (command.node == member.node.host || command.node == name_of(member));
    const bool alone = command.verb == native::CommandVerb::notify_job && in_running_round(member) &&
                       tally_.running + tally_.succeeded == 1;
    return itself || alone || member.sealed;
}

/// The workers saved and left because a node is being drained: nothing has failed, and the job continues.
bool Job::left_for_drain() const {
    return round_.drained && !round_.failures.empty() &&
           saved_and_left(round_.failures.first_cause(config_.victim_window).end);
}

}  // namespace muster::rendezvous
