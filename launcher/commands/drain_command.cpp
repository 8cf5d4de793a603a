#include "launcher/commands/drain_command.h"

#include <string_view>

#include "launcher/commands/job_command.h"
#include "launcher/report/complaint.h"
#include "launcher/report/exit_code.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

constexpr std::string_view usage =
    "usage: muster drain NODE [--job ID] [--rdzv-endpoint HOST[:PORT],...]\n"
    "NODE (HOST, or HOST:PID where several agents are on one host) stops its workers, with their grace, and leaves "
    "the\n"
    "job, which goes on elsewhere. To be given on any node of the job, by its user or by root. The id (--rdzv-id) is\n"
    "needed where agents of several jobs run on this host. With --rdzv-endpoint the command may be given anywhere, "
    "and\n"
    "needs the job's secret: MUSTER_SECRET_FILE in the environment.\n";

struct Order {
    std::string node;
    JobAddress address;
};

/// The order, or an error for the person.
Result<Order> read_order(const std::vector<std::string>& words) {
    Order order;
    const auto wrong = [](std::string why) { return Error{Errc::invalid_argument, std::move(why)}; };
    for (std::size_t at = 0; at < words.size(); ++at) {
        const auto taken = take_address(words, at, order.address);
        if (!taken) return taken.error();
        if (*taken) continue;
        const std::string_view word = words[at];
        if (word.starts_with('-')) return wrong(cat("unknown option '", word, "' (see muster drain --help)"));
        if (!order.node.empty()) return wrong(cat("one node at a time: got '", order.node, "' and '", word, "'"));
        order.node = word;
    }
    if (order.node.empty()) return wrong("which node? write: muster drain NODE");
    if (order.node.size() > 255) return wrong("names have at most 255 bytes");
    return order;
}

}  // namespace

int run_drain(const std::vector<std::string>& arguments, const Environment& environment) {
    if (asks_for_help(arguments)) return answer("drain", usage);
    const auto order = read_order(arguments);
    if (!order) return complain("drain", exit_codes::usage, order.error().context);
    return give_command(
        "drain", order->address,
        {.number = 1, .verb = native::CommandVerb::drain_node, .node = order->node, .why = "muster drain"},
        environment);
}

}  // namespace muster::launcher
