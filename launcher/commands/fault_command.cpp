#include "launcher/commands/commands.h"

#include <limits>
#include <map>
#include <string_view>

#include "launcher/commands/command_words.h"
#include "launcher/commands/job_command.h"
#include "launcher/config/option_values.h"
#include "launcher/report/command_output.h"
#include "launcher/report/exit_code.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

using native::FaultKind;
using native::FaultTarget;

constexpr std::string_view fault_usage =
    R"(usage: muster fault KIND TARGET [--for SECONDS] [--stopped PERCENT] [--job ID] [--rdzv-endpoint HOST[:PORT],...]

Injects a fault into one part of a running job.

KIND
  kill        SIGKILL
  stop        SIGSTOP; with --for, SIGCONT after that time
  slow        SIGSTOP for a share of every 100 ms: --stopped PERCENT (default 50), --for SECONDS (default 30)
  partition   drops all messages between a node's agent and the other hosts: --for SECONDS (default 10)
  oom         moves a worker into its own cgroup and uses up the memory there until the kernel kills the worker

TARGET
  rank N      a worker, by its rank in the current round (not partition)
  node NAME   the agent of that node: HOST, or HOST:PID if several agents run on one host (not oom)
  daemon      the daemon that is the leader (kill, stop, slow)

The target must allow it: start the agent with muster --allow-faults, the daemon with musterd --allow-faults. Reports of
the resulting failure say "injected by muster fault".

Run the command on any node of the job, as the job's user or as root. --job (the job's --rdzv-id) is needed if agents of
several jobs run on this host. With --rdzv-endpoint it works from any host, and needs the job's secret: set
MUSTER_SECRET_FILE.
)";

struct FaultOrder {
    native::Fault fault;
    std::string node;
    JobAddress address;
};

Result<FaultKind> read_kind(const std::string& word) {
    static const std::map<std::string, FaultKind> kinds{{"kill", FaultKind::kill},
                                                        {"stop", FaultKind::stop},
                                                        {"slow", FaultKind::slow},
                                                        {"partition", FaultKind::partition},
                                                        {"oom", FaultKind::out_of_memory}};
    const auto found = kinds.find(word);
    if (found == kinds.end())
        return wrong(cat(
            "'", word, "' is not a fault; accepted are kill, stop, slow, partition and oom (see muster fault --help)"));
    return found->second;
}

/// "rank 3", "node gpu07", "daemon".
Result<void> read_target(const std::vector<std::string>& words, FaultOrder& order) {
    if (words.empty()) return wrong("the target is missing; write rank N, node NAME or daemon");
    const bool whole = words[0] == "daemon";
    if (!whole && words[0] != "rank" && words[0] != "node")
        return wrong(cat("'", words[0], "' is not a target; accepted are rank N, node NAME and daemon"));
    if (words.size() < (whole ? 1U : 2U))
        return wrong(cat("the ", words[0], " is missing; write ", words[0], words[0] == "rank" ? " N" : " NAME"));
    if (words.size() > (whole ? 1U : 2U)) return wrong(cat("only one target is accepted; remove '", words.back(), "'"));
    if (whole) {
        order.fault.target = FaultTarget::daemon;
    } else if (words[0] == "node") {
        order.fault.target = FaultTarget::agent;
        if (words[1].empty() || words[1].size() > 255) return wrong("names have 1 to 255 bytes");
        order.node = words[1];
    } else if (!parse_number(std::string_view(words[1]), order.fault.rank)) {
        return wrong(cat("rank '", words[1], "' is not a number from 0"));
    }
    return {};
}

Result<std::uint32_t> read_time(const std::string& text) {
    const auto time = seconds(text);
    const auto ms = time ? std::chrono::duration_cast<std::chrono::milliseconds>(*time).count() : 0;
    if (ms < 1 || ms > std::numeric_limits<std::uint32_t>::max())
        return wrong(cat("--for '", text, "' is not a time: write seconds above 0, e.g. 10"));
    return static_cast<std::uint32_t>(ms);
}

/// Sets defaults, so that every fault ends by itself.
void fill_in(native::Fault& fault) {
    if (fault.kind == FaultKind::slow && fault.for_ms == 0) fault.for_ms = 30'000;
    if (fault.kind == FaultKind::slow && fault.stopped_percent == 0) fault.stopped_percent = 50;
    if (fault.kind == FaultKind::partition && fault.for_ms == 0) fault.for_ms = 10'000;
}

Result<FaultOrder> read_fault(const std::vector<std::string>& words) {
    FaultOrder order;
    std::string length, share;
    const auto places = MUSTER_TRY(read_words("fault", words,
                                              {{"--job", &order.address.job},
                                               {"--rdzv-endpoint", &order.address.endpoint},
                                               {"--for", &length},
                                               {"--stopped", &share}}));
    if (places.empty()) return wrong("the fault is missing; write muster fault KIND TARGET (see muster fault --help)");
    order.fault.kind = MUSTER_TRY(read_kind(places.front()));
    MUSTER_TRY(read_target({places.begin() + 1, places.end()}, order));
    if (!length.empty()) order.fault.for_ms = MUSTER_TRY(read_time(length));
    const auto percent = share.empty() ? std::optional<std::int64_t>() : whole_number(share, 1, 99);
    if (!share.empty() && !percent) return wrong(cat("--stopped '", share, "' is not a percentage from 1 to 99"));
    if (percent && order.fault.kind != FaultKind::slow) return wrong("--stopped applies only to slow");
    if (percent) order.fault.stopped_percent = static_cast<std::uint32_t>(*percent);
    fill_in(order.fault);
    if (auto why = native::wrong_with(order.fault); !why.empty()) return wrong(std::move(why));
    return order;
}

}  // namespace

int run_fault(const std::vector<std::string>& arguments, const Environment& environment) {
    if (asks_for_help(arguments)) return answer("fault", fault_usage);
    const auto order = read_fault(arguments);
    if (!order) return print_error("fault", exit_codes::usage, order.error().context);
    return give_command("fault", order->address,
                        {.number = 1,
                         .verb = native::CommandVerb::inject_fault,
                         .node = order->node,
                         .why = "muster fault",
                         .fault = order->fault},
                        environment);
}

}  // namespace muster::launcher
