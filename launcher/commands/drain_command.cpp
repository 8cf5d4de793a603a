#include "launcher/commands/commands.h"

#include <string_view>

#include "launcher/commands/command_words.h"
#include "launcher/commands/job_command.h"
#include "launcher/report/command_output.h"
#include "launcher/report/exit_code.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

constexpr std::string_view usage = R"(usage: muster drain NODE [--job ID] [--rdzv-endpoint HOST[:PORT],...]
NODE (HOST, or HOST:PID if several agents run on one host) stops its workers with their grace period and leaves the
job, which continues on the other nodes. Run the command on any node of the job, as the job's user or as root.
--job (the job's --rdzv-id) is needed if agents of several jobs run on this host. With --rdzv-endpoint the command
works from any host, and needs the job's secret: set MUSTER_SECRET_FILE.
)";

struct Order {
    std::string node;
    JobAddress address;
};

/// Parses the arguments. The error is for the user.
Result<Order> read_order(const std::vector<std::string>& words) {
    Order order;
    const auto nodes = MUSTER_TRY(
        read_words("drain", words, {{"--job", &order.address.job}, {"--rdzv-endpoint", &order.address.endpoint}}));
    if (nodes.empty()) return wrong("the node is missing; write muster drain NODE");
    if (nodes.size() > 1)
        return wrong(cat("only one node can be drained at a time: got '", nodes[0], "' and '", nodes[1], "'"));
    order.node = nodes.front();
    if (order.node.size() > 255) return wrong("names have at most 255 bytes");
    return order;
}

}  // namespace

int run_drain(const std::vector<std::string>& arguments, const Environment& environment) {
    if (asks_for_help(arguments)) return answer("drain", usage);
    const auto order = read_order(arguments);
    if (!order) return print_error("drain", exit_codes::usage, order.error().context);
    return give_command(
        "drain", order->address,
        {.number = 1, .verb = native::CommandVerb::drain_node, .node = order->node, .why = "muster drain"},
        environment);
}

}  // namespace muster::launcher
