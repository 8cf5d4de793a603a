// The command line of digits_trainer.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "worker_runtime/examples/training.h"

namespace muster::runtime {

struct TrainerOptions {
    TrainingPlan plan;
    std::string data = "worker_runtime/examples/data/digits.csv";
    std::string checkpoint_dir;  ///< Empty: no checkpoints.
    std::string losses;          ///< File that gets a line for each step. Empty: none.
    std::string steps_taken;     ///< File that gets a line for each step of each rank. Empty: none.
    double accuracy_min = 0;     ///< Minimum percentage of correct test digits. Below it the trainer fails.
    /// For demonstrations: the last rank ends itself by SIGKILL before this step, unless the file `die_once` is there;
    /// it makes the file first, so that the next round lives. 0: never.
    std::uint64_t die_at_step = 0;
    std::string die_once;
    std::string pause_file;   ///< While this file exists, each step waits for the milliseconds that it contains.
    bool in_process = false;  ///< Survivors of a failed round enter the next one in the same process.
    bool help = false;
};

/// Reads "--name value" and "--name=value". Errors name the option, what was given and what is accepted.
Result<TrainerOptions> parse_trainer_options(const std::vector<std::string>& arguments);

std::string trainer_help();

}  // namespace muster::runtime
