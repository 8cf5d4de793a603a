// Many worlds, one seed each, spread over processes: a core that aborts takes its process along and no more, and its
// seed is known.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/simulation/world.h"

namespace muster::simulation {

struct CampaignConfig {
    std::uint64_t first = 1;
    std::uint64_t last = 1;
    std::uint32_t jobs = 1;
    Plant plant = Plant::none;
    std::uint64_t failures_max = 10;  ///< a process stops after so many
};

struct CampaignFailure {
    std::uint64_t seed = 0;
    std::string invariant;
    std::string what;
};

struct CampaignResult {
    std::vector<CampaignFailure> failures;  ///< by seed
    Tally tally{};
    std::uint64_t world_count = 0;
    std::uint64_t event_count = 0;
};

CampaignResult run_campaign(const CampaignConfig& config);

}  // namespace muster::simulation
