// Agents that do what agents do, in random order, before two daemons at once: one that lives for ever, and one that is
// killed again and again and goes on from its records. Whatever the two say, and whatever they keep, must be the same.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "rendezvous/rounds/job_record.h"
#include "rendezvous/rounds/server.h"

namespace muster::test {

/// Applied to a step's records on their way into what is kept: a planted bug.
using Damage = std::string (*)(const rendezvous::Record& record);

class KeptWorld {
  public:
    explicit KeptWorld(std::uint64_t seed, Damage damage = nullptr);

    /// Runs until something differs, or for so many events. Empty, or what differs.
    std::string run(int event_count);

    [[nodiscard]] int crash_count() const { return crash_count_; }
    [[nodiscard]] const std::map<std::string, std::string>& kept() const { return kept_[1]; }

  private:
    enum class Phase { absent, waiting, running, through, draining, over };
    struct Agent {
        NodeIdentity node;
        Phase phase = Phase::absent;
        std::uint32_t connection_number = 0;
        rendezvous::ConnectionId connection = 0;
        bool silent = false;
        native::Join join;
        native::Assigned assigned;
    };

    void happen();
    void appear(Agent& agent);
    void connect(Agent& agent);
    void say_where(Agent& agent);
    void speak(Agent& agent);
    void drain(Agent& agent);
    void die(Agent& agent);
    void pass(Duration duration);
    void crash();
    void step(const rendezvous::ServerEvent& event);
    void hear(const native::Message& message, rendezvous::ConnectionId connection);
    [[nodiscard]] std::uint32_t below(std::uint32_t limit) { return static_cast<std::uint32_t>(random_() % limit); }
    [[nodiscard]] bool anybody_away() const;

    std::mt19937_64 random_;
    Damage damage_;
    rendezvous::ServerConfig config_;
    native::JobTerms terms_;
    Instant now_ = Instant(1000s);
    std::unique_ptr<rendezvous::Server> servers_[2];
    std::map<std::string, std::string> kept_[2];
    std::vector<Agent> agents_;
    rendezvous::ConnectionId next_connection_ = 1;
    Incarnation next_incarnation_ = 1;
    int crash_count_ = 0;
    std::string difference_;
};

}  // namespace muster::test
