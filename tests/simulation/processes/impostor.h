// A man in the middle at the end of a connection. In the daemon's place he answers an agent with a key of his own, with
// what a daemon has said before, or in clear text. To the daemon he says what an agent has said before.
#pragma once

#include "rendezvous/tls/psk_channel.h"
#include "tests/simulation/processes/agent_process.h"

namespace muster::simulation {

class Impostor final : public StreamHandler {
  public:
    Impostor(Surroundings& world, Random random) : world_(world), random_(random) {}

    /// Connects from `host`, and repeats an agent's connection, or its first bytes.
    void resay(HostIndex host, Address daemon);

    void stream_opened(StreamId stream) override;
    void stream_failed(StreamId, rendezvous::ConnectionFailed) override {}
    void stream_accepted(StreamId stream, std::uint16_t) override;
    void stream_received(StreamId stream, std::string bytes) override;
    void stream_closed(StreamId, std::string) override {}

  private:
    Surroundings& world_;
    Random random_;
    std::unique_ptr<rendezvous::PskChannel> channel_;  ///< with his key
};

}  // namespace muster::simulation
