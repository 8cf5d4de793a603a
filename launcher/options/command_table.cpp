#include "launcher/options/command_table.h"

namespace muster::launcher {

std::span<const CommandRow> command_table() {
    static constexpr CommandRow commands[] = {
        {"checkpoint", "DIR", "Lists and verifies the checkpoints in DIR, or exports one."},
        {"config", "check FILE", "Validates a job's configuration file."},
        {"doctor", "[explain NAME]",
         "Looks for faults of this node: names, network, limits, disks, GPUs, settings; tests links and GPUs."},
        {"drain", "NODE", "Makes a node stop its workers and leave its job."},
        {"fault", "KIND TARGET", "Injects a fault into a worker, a node or the daemon."},
        {"key", "[show]", "Makes the secret of your jobs, or shows it."},
        {"status", "[JOB]", "Shows the jobs of a daemon, and what is wrong."},
        {"top", "[JOB]", "Shows jobs and nodes on a screen, what is wrong first."},
        {"flight", "DIR...", "Reports from flight records which rank is missing from which collective."},
        {"logs", "DIR", "Shows the log files of all workers below DIR as one stream."},
        {"torch-build", "", "Compiles PyTorch's back end for a torch that muster has none for."},
    };
    return commands;
}

}  // namespace muster::launcher
