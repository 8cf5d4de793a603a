// What a scheduler's variables say for options that nobody has given. Pure.
//
// In a task of Slurm's srun, without flags: one agent for each host of the step, which meet on its first host. The same
// under mpirun, if that runs on the first host; elsewhere, and under MPIs that do not tell, the endpoint has to be
// given. In a pod of Kubernetes' indexed job the number of nodes has to be given, and they meet in pod 0. Whatever is
// given wins, each option by itself; who says --nnodes=1 meets nobody.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/config/environment.h"
#include "rendezvous/base/error.h"

namespace muster::launcher {

struct SchedulerDefault {
    std::string_view option;
    std::string source;  ///< the variable, as messages name it
    std::string value;
};

struct SchedulerDefaults {
    std::vector<SchedulerDefault> values;
    std::optional<bool> is_host;     ///< is the rendezvous on this host?
    std::vector<std::string> notes;  ///< for the log
    /// If not empty: these addresses must be this host's own, else nobody would serve the rendezvous there.
    std::vector<std::string> own_addresses;
    std::string nothing_to_do;  ///< one line for a task beside the one that is this host's agent; else empty
};

/// The value that the command line or a MUSTER_ or PET_ variable gives an option.
using GivenValue = std::function<std::optional<std::string_view>(std::string_view option)>;

/// `hosts_file` is the text of /etc/hosts, which counts in Kubernetes alone. The error is one line for the user.
Result<SchedulerDefaults> scheduler_defaults(const Environment& environment, const GivenValue& given,
                                             std::string_view hosts_file);

}  // namespace muster::launcher
