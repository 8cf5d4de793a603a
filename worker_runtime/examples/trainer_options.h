// The command line and the environment of digits_trainer.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "rendezvous/base/endpoint.h"
#include "worker_runtime/examples/training.h"

namespace muster::runtime {

struct TrainerOptions {
    TrainingPlan plan;
    std::string data = "worker_runtime/examples/data/digits.csv";
    double accuracy_min = 0;  ///< percent of the test digits; fewer: the trainer fails
    /// For demonstrations: the last rank ends itself by SIGKILL before this step, unless the file `die_once` is there;
    /// it makes the file first, so that the next round lives. 0: never.
    std::uint64_t die_at_step = 0;
    std::string die_once;
    bool help = false;
};

/// Reads "--name value" and "--name=value". Errors name the option, what was given and what is accepted.
Result<TrainerOptions> parse_trainer_options(const std::vector<std::string>& arguments);

std::string trainer_help();

/// What the launcher (muster or torchrun) says through the environment.
struct LauncherFacts {
    Place place;
    Endpoint store;     ///< MASTER_ADDR:MASTER_PORT; port 0 where there is one rank alone and nobody named it
    std::string round;  ///< of MUSTER_ROUND and TORCHELASTIC_RESTART_COUNT: differs between rounds
};

/// Reads RANK, WORLD_SIZE and the others with `variable`, which gives "" for what is not set. RANK not set: one rank.
Result<LauncherFacts> read_launcher_facts(const std::function<std::string(const char*)>& variable);

}  // namespace muster::runtime
