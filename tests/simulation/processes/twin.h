// Somebody who says that it is an agent that is there already: a copy of its machine, or a start script that hands out
// one incarnation twice. The daemon must turn it away, and the agent must not notice. A boaster has its own
// incarnation, and names a high round in a join or a resume: one that no daemon believes, or one that is believed.
#pragma once

#include <limits>
#include <string>

#include "tests/simulation/processes/agent_process.h"

namespace muster::simulation {

class Twin final : public StreamHandler {
  public:
    /// Connects from `host` at once and says `hello` and `first`; leaves after the first answer.
    Twin(Surroundings& world, HostIndex host, Address daemon, const native::Hello& hello, const native::Message& first);

    static Incarnation boaster(std::size_t number) { return std::numeric_limits<Incarnation>::max() - number; }
    static bool is_boaster(Incarnation incarnation) { return incarnation > boaster(1'000'000); }

    void stream_opened(StreamId stream) override;
    void stream_failed(StreamId, rendezvous::ConnectionFailed) override {}
    void stream_accepted(StreamId, std::uint16_t) override {}
    void stream_received(StreamId stream, std::string bytes) override;
    void stream_closed(StreamId, std::string) override {}

  private:
    void judge(const native::Message& answer);

    Surroundings& world_;
    Incarnation incarnation_;
    std::string words_;
    native::FrameReader reader_{native::Sender::daemon};
    bool answered_ = false;
};

}  // namespace muster::simulation
