// A rank of the example trainer's training that commits a fault (injected_fault.h); ddp_faults.py is the same with
// PyTorch.
//
//   faulty_trainer KIND:RANK:STEP OPTION...      the options of digits_trainer
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "muster/context.h"
#include "muster/section.h"
#include "rendezvous/base/text/text.h"
#include "tests/worker_programs/injected_fault.h"
#include "worker_runtime/examples/trainer_options.h"
#include "worker_runtime/examples/training.h"

namespace muster::runtime {

namespace {

int fail(const Error& error) {
    std::fprintf(stderr, "faulty_trainer: %s\n", error.context.c_str());
    return 1;
}

Result<void> run(const InjectedFault& fault, const TrainerOptions& options) {
    auto context = MUSTER_TRY(Context::from_environment());
    const auto digits = MUSTER_TRY(load_digits(options.data));
    std::optional<Checkpointer> checkpointer;
    if (!options.checkpoint_dir.empty())
        checkpointer = MUSTER_TRY(Checkpointer::open(context, {.directory = options.checkpoint_dir}));
    TrainingEvents events;
    events.before_step = [&](std::uint64_t step) {
        const FaultPlace place{context.world(), options.checkpoint_dir};
        const auto done = commit_if_due(fault, context.rank(), step, place);
        if (!done) std::exit(fail(with_context(done.error(), cat("rank ", context.rank()))));
    };
    events.step_done = [](std::uint64_t step, const BatchSums&) { progress(static_cast<std::int64_t>(step)); };
    MUSTER_TRY(train(options.plan, context.world(), digits, events,
                     {.checkpointer = checkpointer ? &*checkpointer : nullptr, .notice = nullptr}));
    return {};
}

}  // namespace

}  // namespace muster::runtime

int main(int argc, char** argv) {
    using namespace muster::runtime;
    InjectedFault fault;
    if (argc < 2 || !parse_injected_fault(argv[1], fault))
        return fail({muster::Errc::invalid_argument, "usage: faulty_trainer KIND:RANK:STEP OPTION..."});
    const auto options = parse_trainer_options({argv + 2, argv + argc});
    if (!options) return fail(options.error());
    const auto done = run(fault, *options);
    return done ? 0 : fail(done.error());
}
