#include "launcher/scheduler/mpi_process.h"

#include <array>
#include <optional>

#include "launcher/config/option_values.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

/// The variables of one MPI implementation.
struct MpiNames {
    std::string_view rank, size, rank_on_host, count_on_host;
};
constexpr std::array implementations{MpiNames{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                              "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                                     MpiNames{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}};

/// Below the kernel's ephemeral ports.
constexpr std::uint32_t lowest_port = 20'480;
constexpr std::uint32_t ports_for_jobs = 8'192;

std::optional<std::uint32_t> count_of(const Environment& environment, std::string_view name) {
    const auto value = whole_number(value_or_empty(environment, name), 0, 1'000'000);
    return value ? std::optional(static_cast<std::uint32_t>(*value)) : std::nullopt;
}

const MpiNames* names_here(const Environment& environment) {
    for (const auto& names : implementations)
        if (count_of(environment, names.rank) && count_of(environment, names.size).value_or(0) > 1) return &names;
    return nullptr;
}

/// Identifies the mpirun, the same on all hosts: Open MPI's job id or PMIx's namespace.
std::string job_name(const Environment& environment) {
    for (const std::string_view variable : {"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"})
        if (const auto name = value_or_empty(environment, variable); !name.empty() && name.size() < 200)
            return cat("mpi-", name);
    return {};
}

/// FNV-1a.
std::uint32_t hash_of(std::string_view text) {
    std::uint32_t hash = 2'166'136'261U;
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16'777'619U;
    return hash;
}

/// The addresses of "727580672.0;tcp://192.0.2.2,10.1.0.1:39397;tcp6://[fd00::2,2001:db8::2]:50073", IPv4 first.
std::vector<std::string> addresses_of(std::string_view uri) {
    std::vector<std::string> found;
    for (const std::string_view scheme : {"tcp://", "tcp6://"})
        for (auto part : split(uri, ';')) {
            if (!part.starts_with(scheme)) continue;
            part.remove_prefix(scheme.size());
            part = part.substr(0, part.rfind(':'));
            const bool bracketed =
                part.starts_with('[') && part.ends_with(']');  // one pair of brackets around all addresses
            for (const auto address : split(bracketed ? part.substr(1, part.size() - 2) : part, ','))
                found.emplace_back(address);
        }
    return found;
}

}  // namespace

bool is_mpi_process(const Environment& environment) {
    return names_here(environment) != nullptr && !lookup(environment, "MUSTER_AGENT_SOCKET");
}

Result<MpiProcess> mpi_process(const Environment& environment) {
    const auto& names = *names_here(environment);
    const auto size = *count_of(environment, names.size);
    const auto on_host = count_of(environment, names.count_on_host).value_or(1);
    MpiProcess process{.rank = *count_of(environment, names.rank),
                       .host_count = size,
                       .rank_on_host = count_of(environment, names.rank_on_host).value_or(0),
                       .one_on_each = on_host == 1,
                       .job = job_name(environment),
                       .port = 0,
                       .mpirun_addresses = addresses_of(value_or_empty(environment, "OMPI_MCA_orte_hnp_uri")),
                       .is_bound = lookup(environment, "OMPI_MCA_orte_bound_at_launch").has_value()};
    process.port = static_cast<std::uint16_t>(lowest_port + hash_of(process.job) % ports_for_jobs);
    if (process.one_on_each) return process;
    // Open MPI reports the number of hosts. An uneven distribution of processes is an error anyway.
    process.host_count = count_of(environment, "OMPI_MCA_orte_num_nodes").value_or(0);
    if (on_host > 0 && process.host_count > 0 && process.host_count * on_host == size) return process;
    return Error{Errc::invalid_argument,
                 cat(names.count_on_host, ": mpirun started ", on_host, " of ", size,
                     " processes on this host, but each host needs only one muster, which starts the workers; write "
                     "mpirun -npernode 1 "
                     "(MPICH: -ppn 1) muster --nproc-per-node N ..., or --from=none if each process runs its own job")};
}

std::string mpi_hosts_of_first_process(const Environment& environment) {
    if (!is_mpi_process(environment)) return {};
    const auto process = mpi_process(environment);
    if (!process || process->rank != 0) return {};
    return std::string(value_or_empty(environment, "SLURM_JOB_NODELIST"));
}

}  // namespace muster::launcher
