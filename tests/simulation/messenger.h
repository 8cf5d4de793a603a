// A guardian's own connection to the daemon: Hello with the dead agent's identity, then AgentDied.
#pragma once

#include <string>

#include "tests/simulation/network.h"

namespace muster::simulation {

class Messenger final : public StreamHandler {
  public:
    Messenger(EventQueue& events, Network& network, HostIndex host, Address daemon, std::string words)
        : events_(events), network_(network), host_(host), daemon_(daemon), words_(std::move(words)) {
        attempt();
    }

    void stream_opened(StreamId stream) override {
        network_.send(stream, words_);
        network_.close(stream);
    }
    void stream_failed(StreamId, std::string) override {
        // Two seconds are all that a guardian gives to this.
        if (++attempt_count_ < 4) events_.after(300ms, [this] { attempt(); });
    }
    void stream_accepted(StreamId, std::uint16_t) override {}
    void stream_received(StreamId, std::string) override {}
    void stream_closed(StreamId, std::string) override {}

  private:
    void attempt() { network_.connect(host_, daemon_, 500ms, this); }

    EventQueue& events_;
    Network& network_;
    HostIndex host_;
    Address daemon_;
    std::string words_;
    int attempt_count_ = 0;
};

}  // namespace muster::simulation
