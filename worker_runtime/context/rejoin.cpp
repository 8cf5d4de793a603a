// A process leaves its round in place and enters the next one (agent/STATES.md, Kept workers).
#include <stdlib.h>

#include <chrono>
#include <string_view>
#include <utility>

#include "muster/recoverable.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/context/choices.h"
#include "worker_runtime/context/context_body.h"
#include "worker_runtime/context/met_group.h"

namespace muster {

namespace runtime {

namespace {

/// A rank sees a peer's death in its communicator before the agent says that the round is over: the agent of a lost
/// node is missed for a lease first.
constexpr Duration word_timeout = 15s;

/// What failed may be a wait at the store, or a part of the round that this process has left. The agent's word comes
/// within this time then, unless the failure is this rank's own.
constexpr Duration own_failure_timeout = 1s;

/// True for GLOO_SOCKET_IFNAME if the user or the program has set it: the agent's has the value of MUSTER_AGENT_IFNAME.
bool is_users_own(std::string_view name) {
    if (name != "GLOO_SOCKET_IFNAME") return false;
    const auto now = variable("GLOO_SOCKET_IFNAME");
    return now && now != variable("MUSTER_AGENT_IFNAME");
}

/// The environment of a new process, as far as it differs between rounds.
void set_variables(const std::vector<std::string>& variables) {
    for (const auto& one : variables) {
        const auto end = one.find('=');
        if (is_users_own(std::string_view(one).substr(0, end))) continue;
        if (end == std::string::npos)
            ::unsetenv(one.c_str());
        else
            ::setenv(one.substr(0, end).c_str(), one.c_str() + end + 1, 1);
    }
}

}  // namespace

bool ContextBody::is_in_use() const {
    const std::size_t own = world ? 1 : 0;
    return groups->count() > own || MetGroups::of_process().groups().count() > 0 ||
           (snapshots && snapshots.use_count() > 1);
}

void ContextBody::leave_round() {
    world.reset();
    claims.reset();  // nobody reads the claims of a round that is over
    store.reset();
    if (snapshots) snapshots->disconnect();
    flight.reset();
    waits.reset();
}

}  // namespace runtime

void Context::can_rejoin(bool can) {
    body_->can_rejoin = can;
    if (body_->agent) body_->agent->send(local::CanKeep{can});
}

Result<void> Context::rejoin() {
    using State = runtime::RoundWord::State;
    if (!body_->agent || !body_->can_rejoin)
        return Error{Errc::unsupported, "this process has no agent that keeps it, or can_rejoin() was not called"};
    const bool failed = (body_->world && !body_->world->status()) || body_->groups->has_failed() ||
                        runtime::MetGroups::of_process().groups().has_failed();
    const auto patience = failed ? runtime::word_timeout : runtime::own_failure_timeout;
    const auto next_word = [this](Duration timeout) {
        return body_->word.wait_for_other(State::running, std::chrono::steady_clock::now() + timeout);
    };
    auto word = next_word(patience);
    if (!failed && word == State::running)
        return Error{Errc::invalid_argument, "the round has not ended: the failure is this rank's own"};
    std::string not_entered;
    while (word == State::hold) {
        if (body_->is_in_use())
            return Error{
                Errc::refused,
                "a communicator, a checkpointer or a process group of the round is still there, so this "
                "process cannot enter the next one; make all of them inside the function that is called again"};
        body_->leave_round();
        runtime::MetGroups::of_process().begin_again();
        body_->agent->send(local::Held{});
        // The agent ends this wait: with the next round, with a signal, or with its own end.
        if (body_->word.wait_for_other(State::hold, no_deadline) != State::resumed)
            return Error{Errc::cancelled, cat(body_->word.why(), "; no round follows for this process")};
        runtime::set_variables(body_->word.take_variables());
        auto next = std::make_unique<runtime::ContextBody>();
        next->options = body_->options;
        next->can_rejoin = true;
        body_ = std::move(next);
        const auto opened = body_->open();
        if (opened) return opened;
        if (!body_->agent) return Error{Errc::cancelled, opened.error().context};
        // The next round may end before its ranks have met.
        not_entered =
            cat("; this process did not enter round ", body_->environment.round, ": ", opened.error().context);
        word = next_word(runtime::word_timeout);
    }
    // An operation may fail without the end of a process, by a timeout for example.
    const auto why = word == State::running
                         ? cat("the agent has not ended the round within ", muster::describe(runtime::word_timeout))
                         : cat("the agent has not asked this process to stay: ", body_->word.why());
    return Error{Errc::cancelled, cat(why, not_entered)};
}

Result<void> run_recoverable(Context& context, const std::function<Result<void>(Context&, const Resume&)>& body) {
    context.can_rejoin(true);
    Resume resume;
    for (;;) {
        auto done = body(context, resume);
        if (done) {
            context.can_rejoin(false);
            return done;
        }
        const auto joined = context.rejoin();
        if (!joined && joined.error().code == Errc::invalid_argument) return done;
        if (!joined) return Error{done.error().code, cat(done.error().context, "; ", joined.error().context)};
        resume = {.count = resume.count + 1, .why = std::move(done.error().context)};
    }
}

}  // namespace muster
