#include "launcher/commands/job_stacks.h"

#include <deque>
#include <future>
#include <utility>

#include "launcher/commands/log_query.h"
#include "rendezvous/base/sockets/name_lookup.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

constexpr Duration node_limit = 5s;
constexpr std::size_t nodes_at_a_time = 16;

Result<std::string> ask_agent(const Endpoint& agent, const std::string& target, const std::vector<Way>& ways) {
    const auto deadline = std::chrono::steady_clock::now() + node_limit;
    const auto addresses = look_up(agent, deadline);
    if (!addresses) return addresses.error();
    auto got = http_get(*addresses, target, ways, 0, deadline);
    if (!got) return got.error();
    if (got->status == 200) return std::move(got->body);
    return Error{Errc::refused, cat("it answers ", got->status, ": ", trim(got->body))};
}

}  // namespace

void job_stacks(const LogRequest& request, const JobAgents& agents, const std::vector<Way>& ways,
                const JobLogs::Sink& sink, const JobLogs::Trouble& trouble) {
    const auto target = cat(stacks_path, log_target(request).substr(logs_path.size()));
    std::deque<std::pair<std::string, std::future<Result<std::string>>>> asked;
    bool has_any = false;
    // False: nobody reads on.
    const auto show_first = [&] {
        const auto name = std::move(asked.front().first);
        const auto stacks = asked.front().second.get();
        asked.pop_front();
        if (!stacks) trouble(cat("node ", name, ": ", printable_line(stacks.error().context)));
        if (!stacks || (stacks->empty() && request.ranks)) return true;
        has_any = true;
        auto text = cat("node ", name, stacks->empty() ? ": no worker runs\n" : ":\n");
        if (!stacks->empty())
            for (const auto line : split(trim(*stacks), '\n')) text += cat(printable_line(line), '\n');
        return sink(text);
    };
    for (const auto& agent : agents.agents) {
        if (!is_of_nodes(agent.host, request.nodes)) continue;
        if (asked.size() == nodes_at_a_time && !show_first()) return;
        // Deferred where the system has no thread left.
        asked.emplace_back(
            agent.name, std::async(std::launch::async | std::launch::deferred, ask_agent, agent.place, target, ways));
    }
    while (!asked.empty())
        if (!show_first()) return;
    if (!has_any && request.ranks) trouble("--rank: no node that has answered has a worker of these ranks now");
}

}  // namespace muster::launcher
