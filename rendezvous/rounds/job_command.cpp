// What people ask of a job: to let one node go, or to tell all workers that they will be stopped soon. server.cpp has
// made sure that whoever asks may.
#include <algorithm>

#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/job.h"

namespace muster::rendezvous {

namespace {

/// Named in an answer; the rest is a count.
constexpr std::size_t nodes_named_max = 20;

/// As a command names it where its host alone is not enough.
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

/// A scheduler signals all nodes of a job, one after the other, and each passes it on: one notice, not a second one,
/// which would hurry the workers.
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

/// The one member that is meant by HOST or HOST:PID; else an error that lists those that there are.
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
                      " serves the rendezvous, and the job would lose that with it; stop its muster with a "
                      "signal instead, or run a musterd and name it with --rdzv-endpoint"));
    if (!member.leaving) {
        count(member, -1);
        member.leaving = true;
        count(member, +1);
        member.leaves_because = command.why.empty() ? "somebody asked for it (muster drain)" : command.why;
        waiting_changed_ = true;
        turn.step.why.push_back(cat("job '", id_, "': ", label(member.node), " is to leave: ", member.leaves_because));
    }
    if (round_.running() && in_running_round(member)) round_.drained = true;
    turn.send(member.connection, native::Drain{member.leaves_because});
    const auto left =
        std::count_if(members_.begin(), members_.end(), [](const auto& one) { return !one.second.leaving; });
    const bool enough = static_cast<std::uint32_t>(left) >= nodes_needed();
    return {command.number, true,
            cat(name_of(member), " was told to stop its workers and leave",
                enough ? ""
                       : cat("; the job then waits for another node, because ", left, left == 1 ? " is" : " are",
                             " left and it needs ", nodes_needed()))};
}

native::CommandAnswer Job::notify(const native::Command& command, const Turn& turn) {
    if (!round_.running()) return {command.number, false, "no round of the job is running"};
    if (turn.now < notice_lasts_until_) return {command.number, true, "all workers have just been told"};
    noticed_at_ = turn.now;
    notice_why_ = command.why;
    notice_lasts_until_ = turn.now + notices_are_one_within;
    SendTo told{{}, native::NoticeGiven{command.why}};
    for (auto& [incarnation, member] : members_) {
        set_noticed(member, member.place == Place::running && member.connected());
        if (member.noticed) told.connections.push_back(member.connection);
    }
    const auto nodes = told.connections.size();
    turn.step.why.push_back(cat("job '", id_, "': notice to all workers: ", command.why));
    if (nodes > 0) turn.step.actions.push_back(std::move(told));
    return {command.number, true, cat("the workers of ", nodes, nodes == 1 ? " node" : " nodes", " are told")};
}

/// A node of the running round that was away when all were told: it hears of it when it is back.
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

/// Whoever waits beside a round has shown nothing but that it knows the job's name and terms: a stranger could. Itself
/// it may order about. Before the first round nobody has shown more, and whoever waits will be in it.
bool Job::may_command(Incarnation incarnation, const native::Command& command) const {
    const auto found = members_.find(incarnation);
    if (found == members_.end()) return false;
    const auto& member = found->second;
    const bool itself = command.verb == native::CommandVerb::drain_node &&
                        (command.node == member.node.host || command.node == name_of(member));
    return itself || member.round != no_round || round_.number == no_round;
}

/// Its workers saved and left because one node is to go: nothing has failed, and the job goes on.
bool Job::left_for_drain() const {
    return round_.drained && !round_.failures.empty() &&
           saved_and_left(round_.failures.first_cause(config_.victim_window).end);
}

}  // namespace muster::rendezvous
