#include "muster/context.h"

#include "worker_runtime/capi/arguments.h"
#include "worker_runtime/capi/objects.h"

using namespace muster;
using namespace muster::capi;

extern "C" {

muster_status muster_context_open(const muster_context_options* options, muster_context** context) {
    return guarded(__func__, [&]() -> Result<void> {
        MUSTER_TRY(give(context, "context", nullptr));
        const auto given = MUSTER_TRY(read(options));
        ContextOptions chosen;
        const auto meeting = MUSTER_TRY(read_timeout(given.meeting_timeout_ms, chosen.meeting_timeout));
        const auto operation = MUSTER_TRY(read_timeout(given.operation_timeout_ms, chosen.operation_timeout));
        const auto transport = MUSTER_TRY(read_enumerator<TransportChoice>(given.transport, 5, "transport"));
        chosen = {.meeting_timeout = meeting, .operation_timeout = operation, .transport = transport};
        *context = contexts.add(std::make_shared<Context>(MUSTER_TRY(Context::from_environment(chosen))));
        return {};
    });
}

muster_status muster_context_place(muster_context* context, muster_place* place) {
    return with(__func__, contexts, context, [&](const Context& own) {
        return write({.size = 0,
                      .rank = own.rank(),
                      .world_size = own.world_size(),
                      .local_rank = own.local_rank(),
                      .local_world_size = own.local_world_size(),
                      .group_rank = own.group_rank(),
                      .device = own.device(),
                      .round = own.round(),
                      .restart_count = own.restart_count()},
                     place);
    });
}

muster_status muster_context_world(muster_context* context, muster_communicator** world) {
    return guarded(__func__, [&]() -> Result<void> {
        MUSTER_TRY(give(world, "world", nullptr));
        *world = communicators.add(std::make_shared<CommunicatorObject>(MUSTER_TRY(contexts.find(context)), nullptr));
        return {};
    });
}

muster_status muster_context_can_rejoin(muster_context* context, int can) {
    return with(__func__, contexts, context, [&](Context& found) -> Result<void> {
        found.can_rejoin(can != 0);
        return {};
    });
}

muster_status muster_context_rejoin(muster_context* context) {
    return guarded(__func__, [&]() -> Result<void> {
        // Its world and its store go: a thread that uses them meanwhile must not find them.
        const auto found = MUSTER_TRY(contexts.reserve(context));
        if (!found)
            return Error{Errc::refused,
                         "a communicator, reducer, checkpointer or another handle that was made from this context is "
                         "still open, or another thread is in a call with it; release all of them first"};
        auto joined = found->rejoin();
        const auto code = joined ? Errc::refused : joined.error().code;
        if (code == Errc::refused || code == Errc::invalid_argument || code == Errc::unsupported)
            contexts.unreserve(context);
        return joined;
    });
}

muster_status muster_context_release(muster_context* context) {
    return guarded(__func__, [&] { return contexts.release(context); });
}
}
