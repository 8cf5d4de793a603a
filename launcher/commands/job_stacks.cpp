#include "launcher/commands/job_stacks.h"

#include <deque>
#include <future>
#include <utility>

#include "launcher/commands/log_query.h"
#include "launcher/commands/stack_groups.h"
#include "rendezvous/base/sockets/name_lookup.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

constexpr Duration node_limit = 5s;
constexpr std::size_t nodes_at_a_time = 16;

Result<std::string> ask_agent(const Endpoint& agent, const std::string& target, const std::vector<Way>& ways) {
    const auto deadline = std::chrono::steady_clock::now() + node_limit;
    const auto addresses = MUSTER_TRY(look_up(agent, deadline));
    auto got = MUSTER_TRY(http_get(addresses, target, ways, 0, deadline));
    if (got.status == 200) return std::move(got.body);
    return Error{Errc::refused, cat("it answers ", got.status, ": ", trim(got.body))};
}

}  // namespace

void job_stacks(const LogRequest& request, const JobAgents& agents, const std::vector<Way>& ways,
                const JobLogs::Sink& sink, const JobLogs::Trouble& trouble) {
    const auto target = cat(stacks_path, log_target(request).substr(logs_path.size()));
    std::deque<std::pair<std::string, std::future<Result<std::string>>>> asked;
    StackGroups groups;
    const auto take_first = [&] {
        const auto [name, answer] = std::pair(asked.front().first, asked.front().second.get());
        asked.pop_front();
        if (!answer)
            return trouble(cat("node ", name, ": ",
                               answer.error().code == Errc::timed_out ? cat("no answer within ", describe(node_limit))
                                                                      : printable_line(answer.error().context)));
        if (!answer->empty() || !request.ranks) groups.add(name, *answer);
    };
    for (const auto& agent : agents.agents) {
        if (!is_of_nodes(agent.host, request.nodes)) continue;
        if (asked.size() == nodes_at_a_time) take_first();
        // Deferred where the system has no thread left.
        asked.emplace_back(
            agent.name, std::async(std::launch::async | std::launch::deferred, ask_agent, agent.place, target, ways));
    }
    while (!asked.empty()) take_first();
    if (!groups.has_worker() && request.ranks)
        trouble("--rank: no node that has answered has a worker of these ranks now");
    sink(groups.text());
}

}  // namespace muster::launcher
