#include "worker_runtime/examples/trainer_options.h"

#include <map>

#include "tests/support/catch.h"

using namespace muster;
using namespace muster::runtime;

namespace {

Result<LauncherFacts> facts_of(const std::map<std::string, std::string>& environment) {
    return read_launcher_facts([&environment](const char* name) {
        const auto found = environment.find(name);
        return found == environment.end() ? std::string() : found->second;
    });
}

const std::map<std::string, std::string> of_muster{{"RANK", "1"},
                                                   {"WORLD_SIZE", "2"},
                                                   {"MASTER_ADDR", "10.0.0.7"},
                                                   {"MASTER_PORT", "41234"},
                                                   {"MUSTER_ROUND", "3"},
                                                   {"TORCHELASTIC_RESTART_COUNT", "1"},
                                                   {"TORCHELASTIC_USE_AGENT_STORE", "True"}};

std::map<std::string, std::string> of_muster_but(const std::string& name, const std::string& value) {
    auto environment = of_muster;
    environment[name] = value;
    return environment;
}

}  // namespace

TEST_CASE("options are read with a blank or with an equals sign") {
    const auto options = parse_trainer_options({"--epochs", "7", "--checkpoint=a=b", "--accuracy-min", "92.5"});
    REQUIRE(options.has_value());
    CHECK(options->plan.epochs == 7);
    CHECK(options->plan.checkpoint == "a=b");
    CHECK(options->accuracy_min == 92.5);
    CHECK(options->die_at_step == 0);
}

TEST_CASE("a wrong option is named, with what was given and what is accepted") {
    const auto text_of = [](std::vector<std::string> arguments) {
        const auto options = parse_trainer_options(arguments);
        return options.has_error() ? options.error().context : std::string("accepted");
    };
    CHECK(text_of({"--epoch", "7"}) == "unknown option '--epoch'; see digits_trainer --help");
    CHECK(text_of({"--epochs", "0"}) == "--epochs is '0', not a count; see digits_trainer --help");
    CHECK(text_of({"--epochs", "7x"}) == "--epochs is '7x', not a count; see digits_trainer --help");
    CHECK(text_of({"--epochs"}) == "--epochs needs a count; see digits_trainer --help");
    CHECK(text_of({"--learning-rate=nan"}) ==
          "--learning-rate is 'nan', not a number above 0; see digits_trainer --help");
    CHECK(text_of({"--die-at-step", "3"}).starts_with("--die-at-step and --die-once go together"));
}

TEST_CASE("without a launcher there is one rank") {
    const auto facts = facts_of({});
    REQUIRE(facts.has_value());
    CHECK(facts->place.world == 1);
}

TEST_CASE("the launcher's variables give place, store and round") {
    const auto facts = facts_of(of_muster);
    REQUIRE(facts.has_value());
    CHECK(facts->place.rank == 1);
    CHECK(facts->place.world == 2);
    CHECK(facts->store == Endpoint{"10.0.0.7", 41234});
    CHECK(facts->round == "3-1");
}

TEST_CASE("variables that make no sense are refused with their values") {
    for (const auto& environment :
         {of_muster_but("RANK", "2"), of_muster_but("RANK", "x"), of_muster_but("WORLD_SIZE", ""),
          of_muster_but("MASTER_PORT", "0"), of_muster_but("MASTER_PORT", "65536"), of_muster_but("MASTER_ADDR", ""),
          of_muster_but("TORCHELASTIC_USE_AGENT_STORE", "False")}) {
        CHECK(facts_of(environment).has_error());
    }
}
