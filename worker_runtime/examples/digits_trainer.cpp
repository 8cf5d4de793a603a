// digits_trainer: the example job of the quick start. One process of it is one rank; trainer_options.h has its options,
// training.h says what it computes. Rank 0 speaks for all.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string_view>

#include "muster/context.h"
#include "muster/recoverable.h"
#include "muster/section.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/examples/trainer_options.h"
#include "worker_runtime/examples/training.h"

namespace muster::runtime {

namespace {

int fail(const std::string& who, const Error& error, int code = 1) {
    std::fprintf(stderr, "digits_trainer: %s%s\n", who.c_str(), error.context.c_str());
    return code;
}

/// One line of rank 0, at once: the pipe to the launcher would otherwise keep it until the end.
void say(const Context& context, const std::string& line) {
    if (context.rank() != 0) return;
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
}

/// The fault of the quick start: the last rank dies here once, as if by the out-of-memory killer.
void die_if_due(const TrainerOptions& options, const Context& context, std::uint64_t step) {
    if (options.die_at_step == 0 || step != options.die_at_step || context.rank() + 1 != context.world_size()) return;
    const int file = ::open(options.die_once.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file < 0) return;  // it has died already
    std::printf("rank %d: killing itself before step %llu, as requested\n", context.rank(),
                static_cast<unsigned long long>(step));
    std::fflush(stdout);
    std::raise(SIGKILL);
}

/// Slow training on a small machine, for rehearsals that take a while; what is learned stays the same.
void pause_if_asked(const TrainerOptions& options) {
    if (options.pause_file.empty()) return;
    unsigned ms = 0;
    constexpr unsigned ms_max = 10'000;
    if (std::ifstream(options.pause_file) >> ms) ::poll(nullptr, 0, static_cast<int>(std::min(ms, ms_max)));
}

std::string digits_of(const char* format, double value) {
    char text[32];
    std::snprintf(text, sizeof text, format, value);
    return text;
}

std::string percent(double share) {
    return digits_of("%.2f %%", 100 * share);
}

/// What a run writes into files of its own.
struct Records {
    std::ofstream losses;
    FileDescriptor steps_taken;  ///< Of all ranks: each line is one write to its end.
};

Error cannot_write(const std::string& file, const char* option) {
    return {Errc::io, cat(file, ": cannot be written; name another with ", option)};
}

Result<Records> open_records(const TrainerOptions& options, const Context& context) {
    Records records;
    if (context.rank() == 0 && !options.losses.empty()) {
        records.losses.open(options.losses, std::ios::app);
        if (!records.losses) return cannot_write(options.losses, "--losses");
    }
    if (!options.steps_taken.empty()) {
        records.steps_taken =
            FileDescriptor(::open(options.steps_taken.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
        if (!records.steps_taken.valid()) return cannot_write(options.steps_taken, "--steps-taken");
    }
    return records;
}

/// After progress(), so that the agent knows of each step that is in the file.
void note_step(const Records& records, const Context& context, std::uint64_t step) {
    if (!records.steps_taken.valid()) return;
    const auto line = cat(context.round(), ' ', context.rank(), ' ', step, '\n');
    if (::write(records.steps_taken.get(), line.data(), line.size()) < 0) std::perror("digits_trainer: --steps-taken");
}

TrainingEvents events_for(const TrainerOptions& options, const Context& context, std::uint64_t steps,
                          Records& records) {
    TrainingEvents events;
    events.started = [&context, steps](std::uint64_t step, bool from_memory) {
        say(context, step == 0 ? cat("world ", context.world_size(), ": training from the start, ", steps, " steps")
                               : cat("world ", context.world_size(), ": continuing from ",
                                     from_memory ? "the agents' copy" : "the checkpoint", " of step ", step));
    };
    events.before_step = [&options, &context](std::uint64_t step) {
        pause_if_asked(options);
        die_if_due(options, context, step);
    };
    events.step_done = [&context, &records](std::uint64_t step, const BatchSums& sums) {
        // At once: what a killed worker has computed is to be seen.
        auto& losses = records.losses;
        if (losses.is_open()) losses << step << ' ' << digits_of("%.9g", sums.loss / sums.sample_count) << std::endl;
        progress(static_cast<std::int64_t>(step));
        note_step(records, context, step);
    };
    events.epoch_done = [&context](std::uint64_t epoch, const BatchSums& sums) {
        say(context, cat("epoch ", epoch, ": loss ", digits_of("%.4f", sums.loss / sums.sample_count), ", accuracy ",
                         percent(sums.right_count / sums.sample_count)));
    };
    return events;
}

/// Eight bytes that tell different data from equal data (FNV-1a).
std::uint64_t fingerprint(std::string_view bytes) {
    std::uint64_t hash = 14695981039346656037U;
    for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211U;
    return hash;
}

/// What was learned: a fingerprint of every bit of it, and how good it is on digits that it has not seen.
int judge(const TrainerOptions& options, const Context& context, DigitsNetwork& network, const DigitSet& digits) {
    std::string bytes;
    for (const auto tensor : network.tensors()) {
        bytes.append(reinterpret_cast<const char*>(tensor.data()), tensor.size_bytes());
    }
    char weights[32];
    std::snprintf(weights, sizeof weights, "%016llx", static_cast<unsigned long long>(fingerprint(bytes)));
    const double right = network.accuracy(digits.test);
    say(context, cat("weights ", weights));
    say(context, cat("test accuracy ", percent(right), " on ", digits.test.size(), " digits never trained on"));
    if (100 * right >= options.accuracy_min) return 0;
    return fail("", {Errc::invalid_argument, "the test accuracy is below --accuracy-min"});
}

/// The exit code. Everything here belongs to the round of `context`.
Result<int> run(const TrainerOptions& options, Context& context) {
    const auto digits = MUSTER_TRY(load_digits(options.data));
    auto records = MUSTER_TRY(open_records(options, context));
    const auto steps = step_count(options.plan, digits.train.size());
    std::optional<Checkpointer> checkpointer;
    if (!options.checkpoint_dir.empty()) {
        checkpointer = MUSTER_TRY(Checkpointer::open(context, {.directory = options.checkpoint_dir}));
    }
    const auto notice = MUSTER_TRY(PreemptionNotice::watch(context));
    auto trained = MUSTER_TRY(train(options.plan, context.world(), digits, events_for(options, context, steps, records),
                                    {.checkpointer = checkpointer ? &*checkpointer : nullptr, .notice = &notice}));
    if (!trained.left) return judge(options, context, trained.network, digits);
    say(context, "preemption notice: state is saved, exiting");
    return exit_saved_and_left;
}

int run_as_asked(const TrainerOptions& options, Context& context) {
    Result<int> code = 0;
    const auto once = [&](Context& now, const Resume& resume) -> Result<void> {
        if (resume.count > 0)
            say(now, cat("rank 0 stays in process ", ::getpid(), ", round ", now.round(), ": ", resume.why));
        code = run(options, now);
        return code ? Result<void>() : code.error();
    };
    const auto done = options.in_process ? run_recoverable(context, once) : once(context, {});
    if (!done) return fail(cat("rank ", context.rank(), ": "), done.error());
    return *code;
}

}  // namespace

}  // namespace muster::runtime

int main(int argc, char** argv) {
    using namespace muster::runtime;
    const auto options = parse_trainer_options({argv + 1, argv + argc});
    if (options.has_error()) return fail("", options.error(), 2);
    if (options->help) {
        std::fputs(trainer_help().c_str(), stdout);
        return 0;
    }
    auto context = muster::Context::from_environment();
    if (context.has_error()) return fail("", context.error(), 2);
    return run_as_asked(*options, *context);
}
