// A guardian's own connection to the daemon: Hello with the dead agent's identity, with a secret the proof, then
// AgentDied (as agent/process/guardian_loop.cpp has it).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "rendezvous/wire/native/codec.h"
#include "tests/simulation/host/network.h"

namespace muster::simulation {

class Messenger final : public StreamHandler {
  public:
    /// `secret` empty: there is none. With `tls` nothing else proves it.
    Messenger(EventQueue& events, Network& network, HostIndex host, Address daemon, native::Hello hello,
              native::KeyedHash secret, Tls tls)
        : events_(events),
          network_(network),
          host_(host),
          daemon_(daemon),
          hello_(std::move(hello)),
          secret_(std::move(secret)),
          tls_(std::move(tls)) {
        attempt();
    }

    void stream_opened(StreamId stream) override {
        reader_ = native::FrameReader(native::Sender::daemon);
        if (hello_.challenge.empty()) return tell(stream, {hello_, native::AgentDied{"the agent was killed"}});
        std::string words;
        native::append_frame(words, hello_);
        network_.send(stream, words);
    }
    void stream_failed(StreamId, rendezvous::ConnectionFailed) override {
        // Two seconds are all that a guardian gives to this.
        if (++attempt_count_ < 4) events_.after(300ms, [this] { attempt(); });
    }
    void stream_accepted(StreamId, std::uint16_t) override {}
    void stream_received(StreamId stream, std::string bytes) override {
        reader_.append(bytes);
        const auto answer = reader_.next();
        if (!answer.has_value() || !answer.value()) return;
        if (const auto* asked = std::get_if<native::Challenge>(&*answer.value()))
            tell(stream, {native::Proof{native::proof_of(secret_, native::Prover::agent, hello_, asked->nonce)},
                          native::AgentDied{"the agent was killed"}});
    }
    void stream_closed(StreamId, std::string) override {}

  private:
    void tell(StreamId stream, const std::vector<native::Message>& messages) {
        std::string words;
        for (const auto& message : messages) native::append_frame(words, message);
        network_.send(stream, words);
        network_.close(stream);
    }
    void attempt() { network_.connect(host_, daemon_, 500ms, this, tls_); }

    EventQueue& events_;
    Network& network_;
    HostIndex host_;
    Address daemon_;
    native::Hello hello_;
    native::KeyedHash secret_;
    Tls tls_;  ///< null: clear text
    native::FrameReader reader_{native::Sender::daemon};
    int attempt_count_ = 0;
};

}  // namespace muster::simulation
