#include "launcher/options/known_variables.h"

#include <algorithm>
#include <string_view>

#include "rendezvous/base/text/nearest.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

constexpr std::string_view ours = "MUSTER_";

/// Variables that are not options, without MUSTER_: those of the launcher, the runtime and torchrun-compat, and those
/// of a worker's or a health check's environment, which a launcher in it inherits. guides_test.py compares this list
/// with the sources and the tables of the documents.
constexpr std::string_view known_names =
    "AGENT_IFNAME AGENT_SOCKET AGENT_TOKEN CALLER_REPORT COLLECTIVE_THREADS CUDA_LIBRARY ETCD_LOGIN_FILE FLIGHT_DIR "
    "IFNAME JOB KEY KEY_OLD LIBRARY LOCAL_RANK NCCL_LIBRARY NCCL_PLUGIN NODE_RANK NVML_LIBRARY NVTX_LIBRARY "
    "PAIRS_BEFORE_JOB PAIRS_FILE PAIRS_LIMITS PREEMPTION_SIGNAL PROGRAM RANK RANKS_SECURITY ROUND SECRET_FILE SIMD "
    "SNAPSHOTS STARTED_AGAIN STORE_ADDR STREAM SUBMITTED_AT TCP_ALGORITHM TORCH_LIBRARY TORCH_SOCKET TRANSPORT WHEN";

/// Names and prefixes of variables that builds, tests and scripts use.
constexpr std::string_view workshop_names =
    "BIN BUILD CC CHECKPOINT_WRITER CRASH_STRIDE DIGITS_FILE FAULTS_PRIVATE FIRST_CAUSE_RUNS FUZZ_ GUEST_ LIB NVIDIA_ "
    "PLUGIN PROTOCOL_ PYTHON_FOLDER RESUME_ STACKS_ STAMP_ STANDIN_ STAND_INS STORE_SE STORIES TEST_ WORKER";

bool is_of_the_workshop(std::string_view name) {
    return std::ranges::any_of(split(workshop_names, ' '), [&](auto beginning) { return name.starts_with(beginning); });
}

}  // namespace

std::vector<std::string> unknown_variables(const Environment& environment, const std::vector<std::string>& options) {
    std::vector<std::string> known;  // without MUSTER_, or half of each name would always be right
    for (const auto& option : options) known.push_back(option.substr(ours.size()));
    for (const auto name : split(known_names, ' ')) known.emplace_back(name);
    std::vector<std::string> warnings;
    for (auto at = environment.lower_bound(ours); at != environment.end() && at->first.starts_with(ours); ++at) {
        const auto name = at->first.substr(ours.size());
        if (is_of_the_workshop(name) || std::ranges::find(known, name) != known.end()) continue;
        const auto near = nearest(name, known);
        warnings.push_back(cat(at->first, " is set, but muster has no such variable, so it has no effect; ",
                               near.empty() ? "unset it, or see muster --help: MUSTER_NPROC_PER_NODE sets the default "
                                              "of --nproc-per-node, and so on"
                                            : cat("the nearest known one is ", ours, near)));
    }
    return warnings;
}

}  // namespace muster::launcher
