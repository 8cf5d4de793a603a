// RendezvousLink over the asio client: forwards calls and callbacks.
#pragma once

#include "agent/supervision/rendezvous_link.h"
#include "rendezvous/client/client.h"

namespace muster::agent {

class ClientLink final : public RendezvousLink {
  public:
    /// `loop` outlives the link.
    ClientLink(boost::asio::io_context& loop, rendezvous::ClientConfig config)
        : client_(loop, std::move(config),
                  {.on_message = [this](native::Message message) { on_message(std::move(message)); },
                   .on_fenced = [this](std::string why) { on_fenced(std::move(why)); },
                   .on_lost = [this](std::string why) { on_lost(std::move(why)); },
                   .on_progress = [this](std::string line) { on_progress(std::move(line)); },
                   .on_connected =
                       [this](Endpoint daemon) {
                           if (on_connected) on_connected(daemon);
                       }}) {}

    void join(native::Join join) override { client_.join(std::move(join)); }
    void workers_failed(std::vector<Failure> failures) override { client_.workers_failed(std::move(failures)); }
    void workers_succeeded() override { client_.workers_succeeded(); }
    void round_report(native::RoundReport report) override { client_.round_report(std::move(report)); }
    void leave(std::string why) override { client_.leave(std::move(why)); }
    void end_acknowledged() override { client_.end_acknowledged(); }
    void command(native::Command command) override { client_.command(std::move(command)); }
    void fault_answer(native::FaultAnswer answer) override { client_.fault_answer(std::move(answer)); }
    void workers_seen(native::WorkersSeen seen) override { client_.workers_seen(std::move(seen)); }
    void cut_off(Duration length) override { client_.cut_off(length); }
    void close(std::function<void()> closed) override { client_.flush(1s, std::move(closed)); }
    [[nodiscard]] bool may_feed() const override { return client_.may_feed(); }
    [[nodiscard]] Instant heard_until() const override { return client_.heard_until(); }

    std::function<void(const Endpoint& daemon)> on_connected;  ///< As in rendezvous::ClientCallbacks.

    /// For what the link does not say: the answer to peers.
    [[nodiscard]] rendezvous::Client& client() { return client_; }

  private:
    rendezvous::Client client_;
};

}  // namespace muster::agent
