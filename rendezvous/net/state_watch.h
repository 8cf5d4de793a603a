// Detects that the daemon cannot write its state, and decides which agents receive StateStalled. Pure.
//
// A full disk fails every write; a hanging disk finishes none. Both count as a stall. It starts with a failed write, or
// when the oldest step has waited for `slow_after`, and ends with the next successful write.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/base/time.h"
#include "rendezvous/net/action_gate.h"
#include "rendezvous/rounds/server.h"

namespace muster::rendezvous {

class StateWatch {
  public:
    static constexpr Duration slow_after = 3s;
    /// During a stall the agents' words are looked at so often.
    static constexpr Duration poll_interval = 1s;

    struct Stall {
        std::string why;
        Instant since;
    };
    /// A step's records were given to the state.
    void given(Instant now);
    /// Some steps are kept; `more`: others still wait.
    void kept(bool more, Instant now);
    /// A write failed.
    void failed(std::string why, Instant now);

    /// Call every turn. The words for those of `agents` (connections that have joined) that do not know them yet.
    std::vector<SendTo> turn(const std::set<ConnectionId>& agents, const ActionGate& gate, Instant now);
    /// When `turn` must be called at the latest.
    [[nodiscard]] Instant deadline() const;
    [[nodiscard]] const std::optional<Stall>& stall() const { return stall_; }

  private:
    void begin(std::string why, Instant now);

    std::optional<Instant> waiting_since_;  ///< Since when no write has finished although a step waits.
    std::optional<Stall> stall_;
    std::map<ConnectionId, native::StateStalled> told_;  ///< Who knows of the stall, and what.
    Instant look_at_ = no_deadline;
};

}  // namespace muster::rendezvous
