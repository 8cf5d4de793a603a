#include "agent/supervision/worker_environment.h"

#include "agent/supervision/macros.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

using Variables = std::map<std::string, std::string>;

/// Without a value the variable goes: an outer muster's is not ours to hand on.
void set_or_erase(Variables& variables, const char* name, std::string value) {
    if (value.empty())
        variables.erase(name);
    else
        variables[name] = std::move(value);
}

std::string number_or_none(auto number) {
    return number != 0 ? cat(number) : std::string();
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
    variables["LOCAL_RANK"] = cat(spec.virtual_local_rank ? 0 : local_rank);
    variables["RANK"] = cat(assignment.rank_base + local_rank);
    variables["GROUP_RANK"] = cat(assignment.group_rank);
    variables["ROLE_RANK"] = cat(assignment.role_rank_base + local_rank);
    variables["ROLE_NAME"] = spec.role;
    variables["LOCAL_WORLD_SIZE"] = cat(spec.worker_count);
    variables["WORLD_SIZE"] = cat(assignment.world_size);
    variables["GROUP_WORLD_SIZE"] = cat(assignment.group_world_size);
    variables["ROLE_WORLD_SIZE"] = cat(assignment.role_world_size);
}

void set_store(Variables& variables, const WorkerSpec& spec, const native::Assigned& assignment) {
    const bool fixed = !spec.master_address.empty();
    variables["MASTER_ADDR"] = fixed ? spec.master_address : assignment.store_addresses.front();
    variables["MASTER_PORT"] = cat(fixed ? spec.master_port : assignment.store_port);
    variables["TORCHELASTIC_USE_AGENT_STORE"] = spec.agent_store ? "True" : "False";
    set_or_erase(variables, "MUSTER_STORE_ADDR", spec.relayed_store);
}

void set_torch_hook(Variables& variables, const WorkerFiles& files) {
    const bool hooked = !files.torch_hook.empty() && !files.torch_socket.empty();
    set_or_erase(variables, "MUSTER_TORCH_SOCKET", hooked ? files.torch_socket : std::string());
    if (!hooked) return;
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
    if (spec.virtual_local_rank) variables["CUDA_VISIBLE_DEVICES"] = MUSTER_TRY(visible_device(variables, local_rank));
    set_ranks(variables, spec, assignment, local_rank);
    set_store(variables, spec, assignment);
    variables["TORCHELASTIC_RESTART_COUNT"] = cat(assignment.restart_count);
    variables["TORCHELASTIC_MAX_RESTARTS"] = cat(spec.restarts_max);
    variables["TORCHELASTIC_RUN_ID"] = spec.job;
    variables["TORCHELASTIC_ERROR_FILE"] = files.error_file;
    variables.erase("MUSTER_CALLER_REPORT");  // not that of a launcher which a worker starts
    variables["TORCHELASTIC_SIGNALS_TO_HANDLE"] = spec.handled_signal_names;
    set_or_erase(variables, "MUSTER_PREEMPTION_SIGNAL", number_or_none(spec.preemption_signal));
    variables.try_emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
    if (!spec.interface.empty() && !variables.contains("GLOO_SOCKET_IFNAME")) {
        variables["GLOO_SOCKET_IFNAME"] = spec.interface;
        variables["MUSTER_AGENT_IFNAME"] = spec.interface;  // so that the runtime can tell it from a user's wish
    }
    // One worker may take all cores; several with a thread for each core would fight for them.
    if (!spec.threads.empty())
        variables.try_emplace("OMP_NUM_THREADS", cat(spec.threads[local_rank]));
    else if (spec.worker_count > 1)
        variables.try_emplace("OMP_NUM_THREADS", "1");
    if (spec.collective_threads > 1) variables.try_emplace("MUSTER_COLLECTIVE_THREADS", cat(spec.collective_threads));
    // Inside a worker of another muster its directory is in use, by that worker itself.
    if (variables.contains("MUSTER_AGENT_SOCKET")) {
        variables.erase("MUSTER_CHECKPOINT_DIR");
        variables.erase("MUSTER_CHECKPOINT_LOCAL_DIR");
    }
    if (!spec.checkpoint_dir.empty()) variables["MUSTER_CHECKPOINT_DIR"] = spec.checkpoint_dir;
    if (!spec.checkpoint_local_dir.empty()) variables["MUSTER_CHECKPOINT_LOCAL_DIR"] = spec.checkpoint_local_dir;
    set_torch_hook(variables, files);
    variables["MUSTER_ROUND"] = cat(assignment.round);
    set_or_erase(variables, "MUSTER_SNAPSHOTS", files.agent_socket.empty() ? "" : number_or_none(files.snapshot_count));
    set_or_erase(variables, "MUSTER_STARTED_AGAIN", number_or_none(files.again_count));
    set_or_erase(variables, "MUSTER_AGENT_TOKEN", files.agent_token);
    set_or_erase(variables, "MUSTER_RANKS_SECURITY", files.has_ranks_key ? spec.wire_security : std::string());
    set_or_erase(variables, "MUSTER_AGENT_SOCKET", files.agent_socket);

    std::vector<std::string> out;
    out.reserve(variables.size());
    for (const auto& [name, value] : variables) out.push_back(cat(name, '=', value));
    return out;
}

std::vector<std::string_view> variables_of_a_round() {
    return split(
        "RANK WORLD_SIZE GROUP_RANK ROLE_RANK GROUP_WORLD_SIZE ROLE_WORLD_SIZE MASTER_ADDR MASTER_PORT MUSTER_ROUND "
        "MUSTER_AGENT_SOCKET MUSTER_AGENT_TOKEN MUSTER_STORE_ADDR GLOO_SOCKET_IFNAME MUSTER_AGENT_IFNAME "
        "MUSTER_SNAPSHOTS MUSTER_STARTED_AGAIN TORCHELASTIC_RESTART_COUNT TORCHELASTIC_ERROR_FILE",
        ' ');
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
