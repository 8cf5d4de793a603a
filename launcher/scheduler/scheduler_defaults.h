// Derives defaults of options from a scheduler's variables. Pure.
// In a task of Slurm's srun: one agent on each host of the step; the first host hosts the rendezvous. The same under
// mpirun if it runs on the first host; otherwise, and with MPIs that do not report the host, the user gives the
// endpoint. In a pod of an indexed Kubernetes job the user gives the number of nodes; pod 0 hosts the rendezvous. Each
// given option overrides its default. --nnodes=1 runs a job on one node.
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
    std::string source;  ///< The variable, as messages name it.
    std::string value;
};

struct SchedulerDefaults {
    std::vector<SchedulerDefault> values;
    std::optional<bool> is_host;     ///< True if this host is the rendezvous' host.
    std::vector<std::string> notes;  ///< Logged as warnings.
    /// If not empty, one of these must be this host's own address, or nobody serves the rendezvous.
    std::vector<std::string> own_addresses;
    std::string nothing_to_do;  ///< One line for a surplus task of this host, else empty.
};

/// The value of an option from the command line or a MUSTER_ or PET_ variable.
using GivenValue = std::function<std::optional<std::string_view>(std::string_view option)>;

/// `hosts_file` is the text of /etc/hosts, used only in Kubernetes. The error is one line for the user.
Result<SchedulerDefaults> scheduler_defaults(const Environment& environment, const GivenValue& given,
                                             std::string_view hosts_file);

}  // namespace muster::launcher
