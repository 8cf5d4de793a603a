#include "launcher/options/command_table.h"

namespace muster::launcher {

std::span<const CommandRow> command_table() {
    static constexpr CommandRow commands[] = {
        {"checkpoint", "DIR", "Lists the checkpoints in DIR, and says whether they are whole; exports one."},
        {"config", "check FILE", "Looks whether a job's file of options is right."},
        {"drain", "NODE", "Lets a node stop its workers and leave its job."},
        {"fault", "KIND TARGET", "Rehearses the loss of a worker, a node or the daemon."},
        {"flight", "DIR...", "Says from flight records which rank is missing from which collective."},
    };
    return commands;
}

}  // namespace muster::launcher
