#include "worker_runtime/context/met_group.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "rendezvous/base/sockets/name_lookup.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/context/choices.h"
#include "worker_runtime/context/make_transport.h"
#include "worker_runtime/context/progress_reporter.h"

namespace muster::runtime {

namespace {

/// A program may start its ranks by itself and set only some of a launcher's variables, or none. Then the group says
/// who this process is. The agent's variables count in any case: they decide whether the ranks need its key.
Environment environment_of(const MetGroupTerms& terms) {
    auto read = read_environment(variable);
    const int world_rank =
        terms.world_ranks.empty() ? terms.rank : terms.world_ranks[static_cast<std::size_t>(terms.rank)];
    if (read && read->rank == world_rank && (read->world_size > 1 || terms.size == 1)) return std::move(*read);
    Environment own;
    own.rank = world_rank;
    own.world_size = std::max(terms.size, world_rank + 1);
    own.job = variable("TORCHELASTIC_RUN_ID").value_or(std::string());
    own.agent_socket = variable("MUSTER_AGENT_SOCKET").value_or(std::string());
    own.agent_token = variable("MUSTER_AGENT_TOKEN").value_or(std::string());
    own.ranks_security = variable("MUSTER_RANKS_SECURITY").value_or(std::string());
    return own;
}

/// MASTER_ADDR may be a name, and nothing needs to lead there: a script may meet by a file. A host that has only
/// loopback has no ranks beside its own.
Result<std::vector<std::string>> own_addresses(Instant deadline) {
    const auto master = variable("MASTER_ADDR").value_or("127.0.0.1");
    const auto found = look_up({.host = master, .port = 1}, deadline);
    auto own = own_addresses_towards(found ? found->front().numeric() : master);
    return own ? own : own_addresses_towards("127.0.0.1");
}

}  // namespace

MetGroups& MetGroups::of_process() {
    // A forked child gets its own: it lacks the threads of its parent's, whose mutexes may be locked for ever.
    struct Owned {
        pid_t owner = ::getpid();
        MetGroups groups;
    };
    static std::atomic<Owned*> newest = nullptr;
    for (auto* found = newest.load();;) {
        if (found != nullptr && found->owner == ::getpid()) return found->groups;
        auto* const fresh = new Owned;
        if (newest.compare_exchange_strong(found, fresh)) return fresh->groups;
        delete fresh;
    }
}

void MetGroups::leave_agent_to_context() {
    const std::lock_guard lock(mutex_);
    agent_is_contexts_ = true;
    if (agent_) ProgressReporter::of_process().drop_channel(*agent_);
    agent_.reset();
}

void MetGroups::write_to(std::shared_ptr<FlightRecorder> flight) {
    const std::lock_guard lock(mutex_);
    flight_ = std::move(flight);
}

std::shared_ptr<FlightRecorder> MetGroups::flight_of_groups() {
    const std::lock_guard lock(mutex_);
    return groups_->count() > 0 ? flight_ : nullptr;
}

void MetGroups::reach_agent(const Environment& environment) {
    if (environment.agent_socket.empty() || agent_is_contexts_) return;
    ProgressReporter::of_process().close_own_connection();
    auto link = AgentLink::connect(environment.agent_socket, environment.agent_token, watch_,
                                   [this](const local::Message& message, FileDescriptor /*beside*/) {
                                       if (const auto* ended = std::get_if<local::RoundEnded>(&message))
                                           end(cat("the round ended: ", ended->why));
                                   });
    // The channel is a help, not a need: another process of this worker may have it.
    if (!link) return;
    agent_ = std::move(*link);
    ProgressReporter::of_process().use_channel(*agent_);
    agent_->send(local::Give{.kind = local::HandoverKind::flight_record, .size_bytes = flight_ring_bytes},
                 &flight_->descriptor());
}

/// What exists once in the process, for its first group.
Result<void> MetGroups::prepare(const MetGroupTerms& terms, const Environment& environment) {
    if (watch_) return {};
    MUSTER_TRY(set_log_level_by_environment());
    if (!flight_) {
        flight_ = MUSTER_TRY(FlightRecorder::open({.rank = environment.rank,
                                                   .world = std::max(environment.world_size, terms.size),
                                                   .round = environment.round,
                                                   .job = environment.job},
                                                  variable("MUSTER_FLIGHT_DIR").value_or(std::string())));
    }
    watch_ = MUSTER_TRY(FdWatch::start());
    reach_agent(environment);
    return {};
}

Result<std::unique_ptr<Communicator>> MetGroups::open(MetGroupTerms given) {
    const auto environment = environment_of(given);
    TransportTerms terms;
    const auto choice = MUSTER_TRY(chosen_transport(given.transport));
    const auto algorithm = MUSTER_TRY(chosen_algorithm());
    // A group of some ranks may have one rank on each node, or all of them on one. What the user wants of the world is
    // no reason to refuse it.
    const bool is_part = given.size < environment.world_size;
    const bool may_not_fit = choice == TransportChoice::hierarchical || choice == TransportChoice::shared_memory;
    terms.choice = is_part && may_not_fit ? TransportChoice::automatic : choice;
    terms.algorithm = algorithm;
    terms.node = environment.group_rank;
    terms.nccl.device = environment.local_rank;
    WireSecurity security;
    if (given.size > 1) {
        security = MUSTER_TRY(receive_security(environment, std::chrono::steady_clock::now() + given.meeting_timeout));
        auto own = MUSTER_TRY(own_addresses(std::chrono::steady_clock::now() + given.meeting_timeout));
        if (!environment.store_host.empty() && environment.world_size == environment.local_world_size) own.resize(1);
        terms.addresses = given.address.empty() ? std::move(own) : std::vector{given.address};
    }
    std::shared_ptr<WaitBoard> waits;
    std::shared_ptr<FlightRecorder> flight;
    {
        const std::lock_guard lock(mutex_);
        MUSTER_TRY(prepare(given, environment));
        terms.watch = watch_;
        flight = flight_;
        if (!given.world_ranks.empty()) waits = world_waits_.lock();
        if (!waits) waits = std::make_shared<WaitBoard>();
        if (given.world_ranks.empty()) world_waits_ = waits;
    }
    CommunicatorBody::Terms body{
        .group = {.rank = given.rank,
                  .size = given.size,
                  .id = given.name,
                  .place = given.place,
                  .meeting_timeout = given.meeting_timeout,
                  .root_ranks = given.world_ranks,
                  .waits = waits,
                  .security = security},
        .timeout = given.operation_timeout,
        .make_transport = [terms](const GroupTerms& group) { return make_transport(group, terms); },
        .flight = std::move(flight),
        .groups = groups_};
    auto transport = MUSTER_TRY(body.make_transport(body.group));
    return std::make_unique<Communicator>(std::make_shared<CommunicatorBody>(std::move(body), std::move(transport)));
}

}  // namespace muster::runtime
