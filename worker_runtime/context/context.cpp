#include "muster/context.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "muster/section.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/store_client/store_client.h"
#include "worker_runtime/context/choices.h"
#include "worker_runtime/context/context_body.h"
#include "worker_runtime/context/met_group.h"
#include "worker_runtime/tcp/records/record_cipher.h"
#include "worker_runtime/tcp/tcp_transport.h"

namespace muster {

namespace runtime {

Result<void> ContextBody::reach_store() {
    if (environment.store_host.empty()) return {};
    if (!environment.store_is_served) {
        return Error{Errc::unsupported,
                     "TORCHELASTIC_USE_AGENT_STORE=False: the runtime needs a store that the launcher serves; unset "
                     "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"};
    }
    store = MUSTER_TRY(connect_store(options.meeting_timeout));
    return {};
}

Result<std::unique_ptr<RoundStore>> ContextBody::connect_store(Duration timeout) {
    auto client = rendezvous::StoreClient::connect({environment.store_host, environment.store_port},
                                                   {.connect_timeout = timeout});
    if (!client) {
        return with_context(client.error(), cat("reach the workers' store (MASTER_ADDR=", environment.store_host,
                                                ", MASTER_PORT=", environment.store_port, ")"));
    }
    const std::string prefix =
        cat("muster/", environment.job, "/", environment.round, "/", environment.restart_count, "/");
    auto made = std::make_unique<RoundStore>(std::move(*client), prefix);
    connections.add(*made);
    return made;
}

/// Keys of a worker's first program are not those of its second; nor are those of a world of another size.
std::string ContextBody::opening_prefix() const {
    return cat(environment.world_size, held.opening == 1 ? "/" : cat(".", held.opening, "/"));
}

Result<void> ContextBody::claim() {
    if (!store) return {};
    const auto transport = MUSTER_TRY(chosen_transport(options.transport));
    const auto named = variable("MUSTER_TRANSPORT");
    told = {.rank = environment.rank,
            .world_size = environment.world_size,
            .transport = std::string(name_of(transport)),
            .transport_name = named && !named->empty() ? "MUSTER_TRANSPORT" : "transport"};
    auto below = store->below("claims/");
    held = MUSTER_TRY(claim_rank(*below, told));
    claims = std::move(below);
    holder = ::getpid();
    store = store->below(opening_prefix());
    return {};
}

/// A failure of the first meeting, with what the claims know of it.
Error ContextBody::explained(Error error) const {
    const bool is_of_meeting =
        error.code == Errc::timed_out || error.code == Errc::unreachable || error.code == Errc::peer_closed;
    if (!claims || !is_of_meeting) return error;
    const auto why = obstacles_to_meeting(*claims, told, held);
    if (!why.empty()) error.context = cat(error.context, "; ", why);
    return error;
}

Result<void> ContextBody::open_flight_record() {
    flight = MetGroups::of_process().flight_of_groups();
    if (flight) return {};
    flight = MUSTER_TRY(FlightRecorder::open(
        {.rank = environment.rank, .world = environment.world_size, .round = environment.round, .job = environment.job},
        variable("MUSTER_FLIGHT_DIR").value_or(std::string())));
    MetGroups::of_process().write_to(flight);
    return {};
}

Result<void> ContextBody::receive_key() {
    if (environment.world_size == 1) return {};
    security = MUSTER_TRY(receive_security(environment, std::chrono::steady_clock::now() + meeting_timeout));
    return {};
}

std::shared_ptr<ParentGroup> ContextBody::until_hold() {
    if (!can_rejoin) return nullptr;
    const auto check = [this]() -> Result<void> {
        if (word.state() != RoundWord::State::hold) return {};
        return Error{Errc::round_ended, word.why()};
    };
    return std::make_shared<ParentGroup>(check, environment.world_size, ParentGroup::StoreWaits::are_interrupted);
}

Result<void> ContextBody::meet() {
    TransportTerms terms;
    terms.choice = MUSTER_TRY(chosen_transport(options.transport));
    terms.node = environment.group_rank;
    terms.algorithm = MUSTER_TRY(chosen_algorithm());
    terms.nccl.device = environment.local_rank;
    terms.nccl.before_leaving = [record = flight](std::string_view text) { record->note_failure(text); };
    if (store) {
        auto own = MUSTER_TRY(own_addresses_towards(store->address()));
        if (environment.world_size == environment.local_world_size) own.resize(1);
        addresses = own;
        terms.addresses = std::move(own);
    }
    if (store || !environment.agent_socket.empty()) {
        terms.watch = MUSTER_TRY(FdWatch::start());
        reach_agent(terms.watch);
    }
    CommunicatorBody::Terms body{
        .group = {.rank = environment.rank,
                  .size = environment.world_size,
                  .id = "world",
                  .place = store,
                  .meeting_timeout = options.meeting_timeout,
                  .waits = waits,
                  .parent = until_hold(),
                  .security = security},
        .timeout = options.operation_timeout,
        .make_transport = [terms](const GroupTerms& group) { return make_transport(group, terms); },
        .flight = flight,
        .groups = groups};
    auto transport = body.make_transport(body.group);
    if (const auto parent = std::exchange(body.group.parent, nullptr)) parent->let_go();
    if (!transport) return explained(transport.error());
    world = std::make_unique<Communicator>(std::make_shared<CommunicatorBody>(std::move(body), std::move(*transport)));
    return {};
}

Result<std::unique_ptr<Communicator>> ContextBody::host_group(const std::vector<int>& members) {
    const auto place = std::find(members.begin(), members.end(), environment.rank);
    MUSTER_CHECK(place != members.end() && store, environment.rank);
    CommunicatorBody::Terms body{.group = {.rank = static_cast<int>(place - members.begin()),
                                           .size = static_cast<int>(members.size()),
                                           .id = cat("host/", host_groups++, ".", members.front()),
                                           .place = store,
                                           .meeting_timeout = meeting_timeout,
                                           .root_ranks = members,
                                           .waits = waits,
                                           .security = of_host_groups()},
                                 .make_transport =
                                     [own = addresses](const GroupTerms& group) {
                                         return make_tcp_transport(group,
                                                                   {.addresses = own, .connections_per_peer = 1});
                                     },
                                 .groups = groups};
    auto transport = MUSTER_TRY(body.make_transport(body.group));
    return std::make_unique<Communicator>(std::make_shared<CommunicatorBody>(std::move(body), std::move(transport)));
}

void ContextBody::reach_agent(std::shared_ptr<FdWatch> watch) {
    if (environment.agent_socket.empty()) return;
    std::size_t offers = 0;
    (void)parse_number(variable("MUSTER_SNAPSHOTS").value_or(std::string()), offers);
    snapshots = std::make_shared<AgentSnapshots>(offers, groups);
    auto link = AgentLink::connect(
        environment.agent_socket, environment.agent_token, std::move(watch),
        [this](const local::Message& message, FileDescriptor beside) { heard(message, std::move(beside)); },
        [this] { word.end("the agent has closed its channel"); });
    // The channel is a help, not a need: a worker's own child has inherited the variable, but only one may connect.
    if (!link) return snapshots.reset();
    agent = std::move(*link);
    snapshots->connect(*agent);
    if (can_rejoin) agent->send(local::CanKeep{true});
    ProgressReporter::of_process().use_channel(*agent);
    agent->send(local::Give{.kind = local::HandoverKind::flight_record, .size_bytes = flight_ring_bytes},
                &flight->descriptor());
}

void ContextBody::heard(const local::Message& message, FileDescriptor beside) {
    if (const auto* ended = std::get_if<local::RoundEnded>(&message)) {
        const int stop = notices->end_round();
        if (stop != 0) ::kill(::getpid(), stop);
        const auto why = cat("the round ended: ", ended->why);
        groups->end(why);
        MetGroups::of_process().end(why);
        word.end(why);
    }
    if (const auto* hold = std::get_if<local::Hold>(&message)) {
        const auto why = cat("the round ended: ", hold->why);
        groups->note_failure();
        groups->end(why, Errc::round_ended);
        MetGroups::of_process().end(why, Errc::round_ended);
        connections.interrupt();
        word.hold(why);
    }
    if (const auto* resumed = std::get_if<local::Resumed>(&message)) word.resume(resumed->variables);
    if (std::holds_alternative<local::Notice>(message)) notices->add();
    if (const auto* offer = std::get_if<local::Offer>(&message)) snapshots->add_offer(*offer, std::move(beside));
}

Result<void> ContextBody::open() {
    options.meeting_timeout = std::min(options.meeting_timeout, CommunicatorBody::timeout_max);
    MetGroups::of_process().leave_agent_to_context();
    ProgressReporter::of_process().close_own_connection();
    const Section section("start-up");  // told once there is a channel to the agent
    MUSTER_TRY(set_log_level_by_environment());
    environment = MUSTER_TRY(read_environment(variable));
    meeting_timeout = options.meeting_timeout;
    MUSTER_TRY(reach_store());
    MUSTER_TRY(claim());
    MUSTER_TRY(open_flight_record());
    MUSTER_TRY(receive_key());
    return meet();
}

}  // namespace runtime

Result<Context> Context::from_environment(const ContextOptions& given) {
    auto body = std::make_unique<runtime::ContextBody>();
    body->options = given;
    MUSTER_TRY(body->open());
    return Context(std::move(body));
}

Context::Context(std::unique_ptr<runtime::ContextBody> body) : body_(std::move(body)) {}
Context::~Context() = default;
Context::Context(Context&&) noexcept = default;
Context& Context::operator=(Context&&) noexcept = default;
int Context::rank() const {
    return body_->environment.rank;
}
int Context::world_size() const {
    return body_->environment.world_size;
}
int Context::local_rank() const {
    return body_->environment.local_rank;
}
int Context::local_world_size() const {
    return body_->environment.local_world_size;
}
int Context::group_rank() const {
    return body_->environment.group_rank;
}
std::int64_t Context::round() const {
    return body_->environment.round;
}
std::int64_t Context::restart_count() const {
    return body_->environment.restart_count;
}
const std::string& Context::job() const {
    return body_->environment.job;
}
Communicator& Context::world() const {
    return *body_->world;
}
Store* Context::store() const {
    if (body_->store) return body_->store.get();
    return &body_->own_store;
}
Result<std::unique_ptr<Communicator>> Context::host_group(const std::vector<int>& members) const {
    return body_->host_group(members);
}
Result<void> Context::can_make_host_groups() const {
    return body_->security.key.empty() ? Result<void>() : runtime::find_cipher();
}
std::shared_ptr<runtime::SnapshotLink> Context::snapshots() const {
    return body_->snapshots;
}
std::shared_ptr<runtime::Notices> Context::notices() const {
    return body_->notices;
}
int Context::preemption_signal() const {
    return body_->environment.preemption_signal;
}
Result<std::unique_ptr<Store>> Context::connect_store() const {
    if (!body_->store) return std::unique_ptr<Store>(std::make_unique<runtime::OwnStore>(body_->own_store));
    const auto connected = MUSTER_TRY(body_->connect_store(body_->meeting_timeout));
    return std::unique_ptr<Store>(connected->below(body_->opening_prefix()));
}

}  // namespace muster
