#include "agent/supervision/worker_environment.h"

#include "agent/supervision/macros.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

using Variables = std::map<std::string, std::string>;

void set(Variables& variables, const char* name, std::string value) {
    variables[name] = std::move(value);
}

template <class Number>
void set_number(Variables& variables, const char* name, Number value) {
    set(variables, name, cat(value));
}

/// Kept if the agent has it, else `value`.
void set_default(Variables& variables, const char* name, const char* value) {
    variables.try_emplace(name, value);
}

/// What CUDA_VISIBLE_DEVICES says to the one worker that is to see one device only.
Result<std::string> visible_device(const Variables& variables, std::uint32_t local_rank) {
    const auto devices = variables.find("CUDA_VISIBLE_DEVICES");
    if (devices == variables.end()) return cat(local_rank);
    const auto pieces = split(devices->second, ',');
    if (local_rank >= pieces.size())
        return Error{Errc::invalid_argument,
                     cat("--virtual-local-rank: CUDA_VISIBLE_DEVICES=", devices->second, " has too few devices (",
                         pieces.size(), ") for local rank ", local_rank, "; lower --nproc-per-node")};
    return std::string(trim(pieces[local_rank]));
}

void set_ranks(Variables& variables, const WorkerSpec& spec, const native::Assigned& assignment,
               std::uint32_t local_rank) {
    set_number(variables, "LOCAL_RANK", spec.virtual_local_rank ? 0 : local_rank);
    set_number(variables, "RANK", assignment.rank_base + local_rank);
    set_number(variables, "GROUP_RANK", assignment.group_rank);
    set_number(variables, "ROLE_RANK", assignment.role_rank_base + local_rank);
    set(variables, "ROLE_NAME", spec.role);
    set_number(variables, "LOCAL_WORLD_SIZE", spec.worker_count);
    set_number(variables, "WORLD_SIZE", assignment.world_size);
    set_number(variables, "GROUP_WORLD_SIZE", assignment.group_world_size);
    set_number(variables, "ROLE_WORLD_SIZE", assignment.role_world_size);
}

void set_store(Variables& variables, const WorkerSpec& spec, const native::Assigned& assignment) {
    const bool fixed = !spec.master_address.empty();
    set(variables, "MASTER_ADDR", fixed ? spec.master_address : assignment.store_addresses.front());
    set_number(variables, "MASTER_PORT", fixed ? spec.master_port : assignment.store_port);
    set(variables, "TORCHELASTIC_USE_AGENT_STORE", spec.agent_store ? "True" : "False");
    variables.erase("MUSTER_STORE_ADDR");
    if (!spec.relayed_store.empty()) set(variables, "MUSTER_STORE_ADDR", spec.relayed_store);
}

void set_torch_hook(Variables& variables, const WorkerFiles& files) {
    variables.erase("MUSTER_TORCH_SOCKET");  // an outer muster's is not ours to hand on
    if (files.torch_hook.empty() || files.torch_socket.empty()) return;
    set(variables, "MUSTER_TORCH_SOCKET", files.torch_socket);
    auto& path = variables["PYTHONPATH"];
    path += path.empty() ? files.torch_hook : cat(':', files.torch_hook);
}

}  // namespace

Result<std::vector<std::string>> worker_environment(const WorkerSpec& spec, const native::Assigned& assignment,
                                                    std::uint32_t local_rank, const WorkerFiles& files) {
    MUSTER_CHECK(local_rank < spec.worker_count, local_rank, spec.worker_count);
    if (spec.master_address.empty() && assignment.store_addresses.empty())
        return Error{Errc::invalid_argument,
                     cat("round ", assignment.round,
                         ": the node of group rank 0 has no address for its store; set one with "
                         "--local-addr")};
    Variables variables = spec.environment;
    for (const char* name : agents_own_variables) variables.erase(name);
    if (spec.virtual_local_rank) {
        auto device = visible_device(variables, local_rank);
        if (device.has_error()) return device.error();
        set(variables, "CUDA_VISIBLE_DEVICES", std::move(device.value()));
    }
    set_ranks(variables, spec, assignment, local_rank);
    set_store(variables, spec, assignment);
    set_number(variables, "TORCHELASTIC_RESTART_COUNT", assignment.restart_count);
    set_number(variables, "TORCHELASTIC_MAX_RESTARTS", spec.restarts_max);
    set(variables, "TORCHELASTIC_RUN_ID", spec.job);
    set(variables, "TORCHELASTIC_ERROR_FILE", files.error_file);
    variables.erase("MUSTER_CALLER_REPORT");  // not that of a launcher which a worker starts
    set(variables, "TORCHELASTIC_SIGNALS_TO_HANDLE", spec.handled_signal_names);
    if (spec.preemption_signal != 0)
        set_number(variables, "MUSTER_PREEMPTION_SIGNAL", spec.preemption_signal);
    else
        variables.erase("MUSTER_PREEMPTION_SIGNAL");
    set_default(variables, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
    if (!spec.interface.empty() && !variables.contains("GLOO_SOCKET_IFNAME")) {
        set(variables, "GLOO_SOCKET_IFNAME", spec.interface);
        set(variables, "MUSTER_AGENT_IFNAME", spec.interface);  // so that the runtime can tell it from a user's wish
    }
    // One worker may take all cores; several with a thread for each core would fight for them.
    if (!spec.threads.empty())
        variables.try_emplace("OMP_NUM_THREADS", cat(spec.threads[local_rank]));
    else if (spec.worker_count > 1)
        set_default(variables, "OMP_NUM_THREADS", "1");
    if (spec.collective_threads > 1) variables.try_emplace("MUSTER_COLLECTIVE_THREADS", cat(spec.collective_threads));
    // Inside a worker of another muster its directory is in use, by that worker itself.
    if (variables.contains("MUSTER_AGENT_SOCKET")) {
        variables.erase("MUSTER_CHECKPOINT_DIR");
        variables.erase("MUSTER_CHECKPOINT_LOCAL_DIR");
    }
    if (!spec.checkpoint_dir.empty()) set(variables, "MUSTER_CHECKPOINT_DIR", spec.checkpoint_dir);
    if (!spec.checkpoint_local_dir.empty()) set(variables, "MUSTER_CHECKPOINT_LOCAL_DIR", spec.checkpoint_local_dir);
    set_torch_hook(variables, files);
    set_number(variables, "MUSTER_ROUND", assignment.round);
    variables.erase("MUSTER_SNAPSHOTS");
    if (files.snapshot_count > 0 && !files.agent_socket.empty())
        set_number(variables, "MUSTER_SNAPSHOTS", files.snapshot_count);
    variables.erase("MUSTER_STARTED_AGAIN");
    if (files.again_count > 0) set_number(variables, "MUSTER_STARTED_AGAIN", files.again_count);
    variables.erase("MUSTER_AGENT_TOKEN");
    if (!files.agent_token.empty()) set(variables, "MUSTER_AGENT_TOKEN", files.agent_token);
    variables.erase("MUSTER_RANKS_SECURITY");
    if (files.has_ranks_key) set(variables, "MUSTER_RANKS_SECURITY", spec.wire_security);
    if (files.agent_socket.empty())
        variables.erase("MUSTER_AGENT_SOCKET");  // an outer muster's is not ours to hand on
    else
        set(variables, "MUSTER_AGENT_SOCKET", files.agent_socket);

    std::vector<std::string> out;
    out.reserve(variables.size());
    for (const auto& [name, value] : variables) out.push_back(cat(name, '=', value));
    return out;
}

const std::vector<std::string>& variables_of_a_round() {
    static const std::vector<std::string> names{"RANK",
                                                "WORLD_SIZE",
                                                "GROUP_RANK",
                                                "ROLE_RANK",
                                                "GROUP_WORLD_SIZE",
                                                "ROLE_WORLD_SIZE",
                                                "MASTER_ADDR",
                                                "MASTER_PORT",
                                                "MUSTER_ROUND",
                                                "MUSTER_AGENT_SOCKET",
                                                "MUSTER_AGENT_TOKEN",
                                                "MUSTER_STORE_ADDR",
                                                "GLOO_SOCKET_IFNAME",
                                                "MUSTER_AGENT_IFNAME",
                                                "MUSTER_SNAPSHOTS",
                                                "MUSTER_STARTED_AGAIN",
                                                "TORCHELASTIC_RESTART_COUNT",
                                                "TORCHELASTIC_ERROR_FILE"};
    return names;
}

std::vector<std::string> worker_argv(const WorkerSpec& spec, std::uint32_t local_rank) {
    const MacroValues values{{"local_rank", cat(local_rank)}};
    std::vector<std::string> argv;
    argv.reserve(spec.argv.size());
    for (const auto& argument : spec.argv)
        argv.push_back(argv.empty() ? argument : substitute_macros(argument, values));
    return argv;
}

}  // namespace muster::agent
