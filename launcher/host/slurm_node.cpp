#include "launcher/host/slurm_node.h"

#include "launcher/host/endpoint_look_up.h"
#include "launcher/host/program_output.h"
#include "launcher/scheduler/scontrol_line.h"

namespace muster::launcher {

namespace {

/// Silent without scontrol (a container).
constexpr const char* quiet_scontrol = "exec scontrol -o show node \"$0\" 2>/dev/null";

}  // namespace

std::vector<std::string> slurm_node_addresses(const std::string& name, Duration limit,
                                              const std::function<bool()>& is_stopping) {
    const auto said = program_output({"sh", "-c", quiet_scontrol, name}, limit, is_stopping);
    if (!said) return {};
    const std::string address(scontrol_field(*said, "NodeAddr"));
    if (address.empty() || address == name) return {};
    return look_up_endpoints({{address, 0}}, limit, is_stopping).front();
}

}  // namespace muster::launcher
