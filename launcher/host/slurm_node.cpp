#include "launcher/host/slurm_node.h"

#include <boost/asio/io_context.hpp>
#include <optional>

#include "agent/process/side_runs.h"
#include "launcher/host/endpoint_look_up.h"
#include "launcher/scheduler/scontrol_line.h"

namespace muster::launcher {

namespace {

constexpr Duration stop_check_interval = 20ms;
/// Silent without scontrol (a container).
constexpr const char* quiet_scontrol = "exec scontrol -o show node \"$0\" 2>/dev/null";

}  // namespace

std::vector<std::string> slurm_node_addresses(const std::string& name, Duration limit,
                                              const std::function<bool()>& is_stopping) {
    boost::asio::io_context loop{1};
    agent::SideRuns runs(loop);
    std::optional<std::string> said;
    runs.start({"sh", "-c", quiet_scontrol, name}, limit, [&said](std::string text) { said = std::move(text); });
    while (!said && !is_stopping()) loop.run_one_for(stop_check_interval);
    if (!said) return {};
    const std::string address(scontrol_field(*said, "NodeAddr"));
    if (address.empty() || address == name) return {};
    return look_up_endpoints({{address, 0}}, limit, is_stopping).front();
}

}  // namespace muster::launcher
