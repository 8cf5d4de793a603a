// Holds back the actions of a step until its records are persisted, in the order of the steps. Pings never wait for a
// disk. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <vector>

#include "rendezvous/rounds/server.h"

namespace muster::rendezvous {

class ActionGate {
  public:
    using Actions = std::vector<ServerAction>;

    struct Entered {
        std::uint64_t sequence = 0;  ///< write the step's records under this number; 0: there are none
        Actions released;            ///< to be carried out now
    };

    /// Takes the actions of a step. Releases them at once when nothing waits before them and `has_records` is false, or
    /// when they only answer pings or prove the secret: neither depends on the state, and reconnecting agents wait a
    /// quarter of a lease for them, or an eighth where this daemon did not answer before.
    /// `record_bytes` counts for waiting_bytes().
    Entered enter(Actions actions, bool has_records, std::size_t record_bytes = 0);

    /// Everything up to and including `sequence` is persisted. The actions that this releases, in the steps' order.
    Actions persisted(std::uint64_t sequence);

    /// The connections for which a decision waits; not those with only a progress message or an answer to a command.
    [[nodiscard]] std::set<ConnectionId> undecided() const;
    [[nodiscard]] std::size_t waiting_count() const { return waiting_.size(); }
    /// Memory of the waiting steps: their records and encoded messages, and something for each.
    [[nodiscard]] std::size_t waiting_bytes() const { return waiting_bytes_; }

  private:
    struct Step {
        std::uint64_t sequence;  // released when this number is persisted
        Actions actions;
        std::size_t bytes;
    };
    void wait(std::uint64_t sequence, Actions actions, std::size_t record_bytes);

    std::size_t waiting_bytes_ = 0;
    std::deque<Step> waiting_;
    std::uint64_t last_sequence_ = 0;
    std::uint64_t persisted_ = 0;
};

}  // namespace muster::rendezvous
