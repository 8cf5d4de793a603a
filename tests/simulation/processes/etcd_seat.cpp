#include "tests/simulation/processes/etcd_seat.h"

#include <utility>

namespace muster::simulation {

using rendezvous::EtcdAnswer;
using rendezvous::EtcdConfig;
using rendezvous::EtcdCore;
using rendezvous::Record;
using rendezvous::SendToEtcd;

namespace {

EtcdConfig seat_config(Address self) {
    EtcdConfig config;
    config.self = cat("host", self.host, ':', self.port);
    return config;
}

}  // namespace

EtcdSeat::EtcdSeat(Surroundings& world, Random random, const HostClock& clock, SharedEtcd& etcd, Address self,
                   Hooks hooks)
    : world_(world),
      random_(random),
      clock_(clock),
      etcd_(etcd),
      host_(self.host),
      hooks_(std::move(hooks)),
      core_(seat_config(self)),
      alarm_(world.events, [this] {
          hooks_.post([this, alive = std::weak_ptr(alive_)] {
              if (!alive.expired()) carry_out(core_.tick(now()));
          });
      }) {}

void EtcdSeat::begin() {
    carry_out(core_.start(now()));
}

void EtcdSeat::write(std::uint64_t sequence, std::vector<Record> records) {
    carry_out(core_.write(sequence, std::move(records), now()));
}

bool EtcdSeat::may_speak() const {
    return world_.plant == Plant::speaks_without_lease || now() < core_.leads_until();
}

void EtcdSeat::carry_out(EtcdCore::Outputs outputs) {
    const std::weak_ptr alive = alive_;
    for (auto& output : outputs) {
        // What the daemon does in answer may be its end.
        if (alive.expired()) return;
        if (const auto* ask = std::get_if<SendToEtcd>(&output)) send(*ask);
        if (const auto* kept = std::get_if<rendezvous::Kept>(&output)) hooks_.persisted(kept->sequence);
        if (auto* stand_by = std::get_if<rendezvous::StandBy>(&output)) hooks_.stands_by(std::move(stand_by->leader));
        if (const auto* lead = std::get_if<rendezvous::Lead>(&output)) {
            auto kept = rendezvous::decode_state(lead->records);
            if (!kept) return world_.chronicle.violated("state", kept.error().context);
            hooks_.leads(*std::move(kept));
        }
    }
    if (!alive.expired()) arm();
}

void EtcdSeat::send(const SendToEtcd& ask) {
    const std::weak_ptr alive = alive_;
    const auto is_open = std::make_shared<bool>(true);
    const auto close = [this, alive, is_open, id = ask.id](Result<EtcdAnswer> answer) {
        if (alive.expired() || !std::exchange(*is_open, false)) return;
        hooks_.post([this, alive, id, answer = std::move(answer)] {
            if (!alive.expired()) carry_out(core_.answered(id, answer, now()));
        });
    };
    const auto delay = [this] { return random_.between(Duration{100us}, etcd_.slowest); };
    world_.events.after(ask.timeout, [close] { close(Error{Errc::timed_out, "no answer"}); });
    world_.events.after(delay(), [this, alive, close, there = delay(), request = ask.request] {
        // The request is on its way whatever has become of who sent it.
        if (alive.expired() || !reaches()) return;
        const auto call = rendezvous::encode(request);
        const auto said = etcd_.keys.call(call.path, call.body, etcd_time(world_.events.now()));
        world_.events.after(there, [this, alive, close, request, said] {
            if (!alive.expired() && reaches()) close(rendezvous::decode_answer(request, said.status, said.body));
        });
    });
}

void EtcdSeat::arm() {
    const Instant deadline = core_.deadline();
    alarm_.set(deadline == no_deadline ? never : clock_.moment(deadline) + 1us);
}

}  // namespace muster::simulation
