// digits_trainer: the example job of the quick start. One process of it is one rank; trainer_options.h has its options,
// training.h says what it computes. Rank 0 speaks for all.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "rendezvous/base/bytes.h"
#include "rendezvous/base/text.h"
#include "worker_runtime/examples/checkpoint_file.h"
#include "worker_runtime/examples/network_store.h"
#include "worker_runtime/examples/trainer_options.h"
#include "worker_runtime/examples/training.h"

namespace muster::runtime {

namespace {

/// A rank that is alone gathers from nobody.
class NoStore : public SharedStore {
  public:
    Result<void> set(const std::string&, const std::string&) override { return {}; }
    Result<std::string> wait_get(const std::string& key) override { return Error{Errc::not_found, key}; }
    Result<void> erase(const std::string&) override { return {}; }
};

int fail(const LauncherFacts& facts, const Error& error, int code = 1) {
    std::fprintf(stderr, "digits_trainer: rank %u: %s\n", facts.place.rank, error.context.c_str());
    return code;
}

/// One line of rank 0, at once: the pipe to the launcher would otherwise keep it until the end.
void say(const LauncherFacts& facts, const std::string& line) {
    if (facts.place.rank != 0) return;
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
}

/// The fault of the quick start: the last rank dies here once, as if by the out-of-memory killer.
void die_if_due(const TrainerOptions& options, const LauncherFacts& facts, std::uint64_t step) {
    if (options.die_at_step == 0 || step != options.die_at_step || facts.place.rank + 1 != facts.place.world) return;
    const int file = ::open(options.die_once.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file < 0) return;  // it has died already
    std::printf("rank %u: killing itself before step %llu, as asked\n", facts.place.rank,
                static_cast<unsigned long long>(step));
    std::fflush(stdout);
    std::raise(SIGKILL);
}

std::string percent(double share) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2f %%", 100 * share);
    return text;
}

TrainingEvents events_for(const TrainerOptions& options, const LauncherFacts& facts, std::uint64_t steps) {
    TrainingEvents events;
    events.started = [&facts, steps](std::uint64_t step) {
        say(facts, step == 0 ? cat("world ", facts.place.world, ": training from the start, ", steps, " steps")
                             : cat("world ", facts.place.world, ": going on from the checkpoint of step ", step));
    };
    events.before_step = [&options, &facts](std::uint64_t step) { die_if_due(options, facts, step); };
    events.epoch_done = [&facts](std::uint64_t epoch, const GradientSum& sum) {
        char loss[32];
        std::snprintf(loss, sizeof loss, "%.4f", sum.loss / sum.sample_count);
        say(facts, cat("epoch ", epoch, ": loss ", loss, ", accuracy ", percent(sum.right_count / sum.sample_count)));
    };
    return events;
}

int run(const TrainerOptions& options, const LauncherFacts& facts) {
    const auto digits = load_digits(options.data);
    if (digits.has_error()) return fail(facts, digits.error());
    std::unique_ptr<SharedStore> store = std::make_unique<NoStore>();
    if (facts.place.world > 1) {
        auto connected = connect_store(facts.store);
        if (connected.has_error()) return fail(facts, connected.error());
        store = std::move(*connected);
    }
    AllGather exchange(*store, facts.place, cat("digits/", facts.round));
    const auto model = train(options.plan, facts.place, *digits, exchange,
                             events_for(options, facts, step_count(options.plan, digits->train.size())));
    if (model.has_error()) return fail(facts, model.error());

    std::string bytes;
    for (const double weight : model->weights) ByteWriter(bytes).number(std::bit_cast<std::uint64_t>(weight));
    char weights[32];
    std::snprintf(weights, sizeof weights, "%016llx", static_cast<unsigned long long>(fingerprint(bytes)));
    const double right = accuracy(*model, digits->test);
    say(facts, cat("weights ", weights));
    say(facts, cat("test accuracy ", percent(right), " on ", digits->test.size(), " digits never trained on"));
    if (100 * right >= options.accuracy_min) return 0;
    return fail(facts, {Errc::invalid_argument, "the test accuracy is below --accuracy-min"});
}

}  // namespace

}  // namespace muster::runtime

int main(int argc, char** argv) {
    using namespace muster::runtime;
    const auto facts = read_launcher_facts([](const char* name) {
        const char* value = std::getenv(name);
        return std::string(value != nullptr ? value : "");
    });
    if (facts.has_error()) return fail({}, facts.error(), 2);
    const auto options = parse_trainer_options({argv + 1, argv + argc});
    if (options.has_error()) return fail(*facts, options.error(), 2);
    if (options->help) {
        std::fputs(trainer_help().c_str(), stdout);
        return 0;
    }
    return run(*options, *facts);
}
