#include "worker_runtime/examples/trainer_options.h"

#include "tests/support/catch.h"

using namespace muster;
using namespace muster::runtime;

TEST_CASE("options are read with a blank or with an equals sign") {
    const auto options = parse_trainer_options({"--epochs", "7", "--checkpoint-dir=a=b", "--accuracy-min", "92.5"});
    REQUIRE(options.has_value());
    CHECK(options->plan.epochs == 7);
    CHECK(options->checkpoint_dir == "a=b");
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
    CHECK(text_of({"--die-at-step", "3"}).starts_with("--die-at-step and --die-once need each other"));
}
