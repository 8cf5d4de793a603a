// simulation: whole clusters of the real cores in simulated time, one from each seed. See world.h.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "rendezvous/base/text/text.h"
#include "tests/simulation/campaign.h"
#include "tests/simulation/large_round.h"

namespace {

using namespace muster;
using namespace muster::simulation;

constexpr std::string_view usage =
    "simulation --seeds A..B [--jobs N] [--plant NAME]   run these worlds; exit 1 if one breaks an invariant\n"
    "simulation --seed N [--trace] [--plant NAME]        run one world, and tell its story\n"
    "simulation --catch N [--jobs N]                     each planted bug must be caught within N seeds\n"
    "simulation --large A..B                             run these rounds of 1,000 and more members (large_round.h)\n"
    "simulation --list-faults | --list-plants\n";

struct Options {
    CampaignConfig campaign;
    bool trace = false;
    bool is_large = false;
    bool list_faults = false;
    bool list_plants = false;
    std::uint64_t catch_within = 0;
};

/// A set this large must have gone through everything.
constexpr std::uint64_t complete_set_min = 1000;

bool parse_seeds(std::string_view text, CampaignConfig& campaign) {
    const auto dots = text.find("..");
    if (dots == std::string_view::npos) {
        if (!parse_number(text, campaign.first)) return false;
        campaign.last = campaign.first;
        return true;
    }
    return parse_number(text.substr(0, dots), campaign.first) && parse_number(text.substr(dots + 2), campaign.last) &&
           campaign.first <= campaign.last;
}

bool parse(int argc, char** argv, Options& options) {
    std::string others;  // than --large
    for (int i = 1; i < argc; ++i) {
        const std::string_view option = argv[i];
        const std::string_view value = i + 1 < argc ? argv[i + 1] : "";
        bool takes_value = true;
        bool good = true;
        if (option == "--seeds" || option == "--seed") {
            good = parse_seeds(value, options.campaign);
        } else if (option == "--large") {
            options.is_large = true;
            good = parse_seeds(value, options.campaign);
        } else if (option == "--jobs") {
            good = parse_number(value, options.campaign.jobs) && options.campaign.jobs > 0;
        } else if (option == "--failures") {
            good = parse_number(value, options.campaign.failures_max);
        } else if (option == "--plant") {
            const auto plant = parse_plant(value);
            good = plant.has_value();
            options.campaign.plant = plant.value_or(Plant::none);
        } else if (option == "--catch") {
            good = parse_number(value, options.catch_within);
        } else {
            takes_value = false;
            good = option == "--trace" || option == "--list-faults" || option == "--list-plants";
            options.trace |= option == "--trace";
            options.list_faults |= option == "--list-faults";
            options.list_plants |= option == "--list-plants";
        }
        if (!good) {
            std::fprintf(stderr, "simulation: %s: not understood\n%.*s", argv[i], static_cast<int>(usage.size()),
                         usage.data());
            return false;
        }
        i += takes_value ? 1 : 0;
        others += option == "--large" ? "" : cat(others.empty() ? "" : " ", option);
    }
    if (!options.is_large || others.empty()) return true;
    std::fprintf(stderr, "simulation: --large takes no other options: leave %s out\n%.*s", others.c_str(),
                 static_cast<int>(usage.size()), usage.data());
    return false;
}

std::string repeat_command(std::uint64_t seed, Plant plant) {
    std::string out = cat("simulation --seed ", seed);
    if (plant != Plant::none) out += cat(" --plant ", plants[static_cast<std::size_t>(plant)].name);
    return out;
}

int run_one(const Options& options) {
    const WorldResult result = World(options.campaign.first, options.campaign.plant, Chronicle::Mode::trace).run();
    if (!result.violation) {
        std::printf("all invariants hold: %llu events in %s\n", static_cast<unsigned long long>(result.event_count),
                    describe(result.lasted).c_str());
        return 0;
    }
    std::printf("%s: %s\n", result.violation->invariant.c_str(), result.violation->what.c_str());
    return 1;
}

bool print_tally(const CampaignResult& result, bool demand_all) {
    bool complete = true;
    for (std::size_t i = 0; i < happening_count; ++i) {
        const auto what = static_cast<Happening>(i);
        const bool missing = result.tally[i] == 0 && demand_all;
        complete = complete && !missing;
        std::printf("  %-24s %12llu%s\n", std::string(name(what)).c_str(),
                    static_cast<unsigned long long>(result.tally[i]), missing ? "   NEVER HAPPENED" : "");
    }
    return complete;
}

int run_many(const Options& options) {
    const auto begun = std::chrono::steady_clock::now();
    const CampaignResult result = run_campaign(options.campaign);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
    for (const auto& failure : result.failures) {
        std::printf("FAILED seed %llu: %s: %s\n  repeat: %s --trace\n", static_cast<unsigned long long>(failure.seed),
                    failure.invariant.c_str(), failure.what.c_str(),
                    repeat_command(failure.seed, options.campaign.plant).c_str());
    }
    std::printf("%llu worlds, %llu events, %zu failures, %.1f s\n", static_cast<unsigned long long>(result.world_count),
                static_cast<unsigned long long>(result.event_count), result.failures.size(), took.count());
    const bool demand_all =
        options.campaign.plant == Plant::none && options.campaign.last - options.campaign.first + 1 >= complete_set_min;
    const bool complete = print_tally(result, demand_all);
    return result.failures.empty() && complete ? 0 : 1;
}

/// A round without a way for some member proves less, so a campaign of many must have few of them.
constexpr std::uint64_t large_set_min = 30;
constexpr std::uint64_t without_ways_part = 3;

/// Tells how far it is each thousand rounds, so that a run that is ended before its last seed counts too.
int run_large(const CampaignConfig& campaign) {
    std::uint64_t done = 0, failed = 0, without_ways = 0, questions = 0;
    for (auto seed = campaign.first; seed <= campaign.last; ++seed) {
        const auto result = LargeRound(large_round_of(seed)).run();
        const auto broken = broken_by(result);
        ++done;
        failed += !broken.empty();
        without_ways += !result.has_ways;
        questions += result.question_count;
        if (!broken.empty())
            std::printf("FAILED seed %llu: %s\n  repeat: simulation --large %llu\n",
                        static_cast<unsigned long long>(seed), broken.c_str(), static_cast<unsigned long long>(seed));
        if (done % 1000 != 0 && seed != campaign.last) continue;
        std::printf("%llu rounds, %llu failed, %llu without a way for some member, %llu questions\n",
                    static_cast<unsigned long long>(done), static_cast<unsigned long long>(failed),
                    static_cast<unsigned long long>(without_ways), static_cast<unsigned long long>(questions));
        std::fflush(stdout);
    }
    const bool too_many = done >= large_set_min && without_ways * without_ways_part > done;
    if (too_many) std::printf("FAILED: more than a third of the rounds leave some member without a way\n");
    return failed == 0 && !too_many ? 0 : 1;
}

/// A plant counts as caught only by an invariant that it is meant for.
bool catch_one(const Options& options, const PlantFacts& facts) {
    std::string others;
    CampaignConfig campaign = options.campaign;
    campaign.plant = facts.plant;
    campaign.failures_max = 64;
    // Most are caught by one of the first seeds: more are taken only where those were not enough.
    for (campaign.last = 0; campaign.last < options.catch_within;) {
        campaign.first = campaign.last + 1;
        const std::uint64_t more = std::max<std::uint64_t>(4, campaign.last / 4);
        campaign.last = std::min(campaign.last + more, options.catch_within);
        const CampaignResult result = run_campaign(campaign);
        for (const auto& failure : result.failures) {
            for (const auto expected : split(facts.caught_by, ' ')) {
                if (failure.invariant != expected) continue;
                std::printf("%-22s caught by %-7s at seed %llu\n", std::string(facts.name).c_str(),
                            failure.invariant.c_str(), static_cast<unsigned long long>(failure.seed));
                return true;
            }
            if (others.size() < 60) others += cat(' ', failure.invariant, '@', failure.seed);
        }
    }
    std::printf("%-22s NOT CAUGHT by %s within %llu seeds%s%s\n", std::string(facts.name).c_str(),
                std::string(facts.caught_by).c_str(), static_cast<unsigned long long>(options.catch_within),
                others.empty() ? "" : "; but:", others.c_str());
    return false;
}

int catch_all(const Options& options) {
    bool all = true;
    for (const auto& facts : plants) {
        const bool wanted = options.campaign.plant == Plant::none || options.campaign.plant == facts.plant;
        if (facts.plant == Plant::none || !wanted) continue;
        all = catch_one(options, facts) && all;
    }
    return all ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    if (!parse(argc, argv, options)) return 2;
    if (options.list_faults) {
        for (std::size_t i = 0; i < happening_count; ++i) {
            std::printf("%s\n", std::string(name(static_cast<Happening>(i))).c_str());
        }
        return 0;
    }
    if (options.list_plants) {
        for (const auto& facts : plants) {
            std::printf("%-22s %s\n", std::string(facts.name).c_str(), std::string(facts.caught_by).c_str());
        }
        return 0;
    }
    if (options.is_large) return run_large(options.campaign);
    if (options.catch_within > 0) return catch_all(options);
    if (options.trace) return run_one(options);
    return run_many(options);
}
