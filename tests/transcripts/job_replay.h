// What a reader of nothing but a job's events knows of it: a fold, to be compared with the daemon's own status.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "rendezvous/base/time.h"
#include "rendezvous/events/event.h"

namespace muster::test {

class JobReplay {
  public:
    void take(const Event& event);
    /// The daemon stood still, or may decide nothing now: its events are late.
    void stand_still() { differs_since_ = no_deadline; }
    /// Where a job of /status says something else. Empty: nowhere. What EVENTS.md calls known of moments only is left
    /// out. `waiting_for` may be a second late.
    [[nodiscard]] std::string difference(const nlohmann::json& job, Instant now);

  private:
    [[nodiscard]] std::string phase() const;
    struct Node {
        std::string host{};
        std::int32_t pid = 0;
        std::int64_t slot_count = 0;
        std::string role{};
        std::string place = "waiting";
        std::int64_t group_rank = -1;
        std::int64_t rank_base = -1;
        bool left_out = false;
        bool may_return = false;  ///< It may bring its place in a round: that is known from the next seal on.
    };
    [[nodiscard]] std::string difference(const nlohmann::json& one, const Node& node) const;
    void seal(const EventFacts& facts);
    void note_round(const Event& event);
    [[nodiscard]] bool waits_for_else(const std::string& status, Instant now);
    void move_all(std::string_view from, std::string_view to);

    std::string phase_ = "gathering";
    Round round_ = no_round;
    std::string misplaced_{};  ///< Events of a round's end that have another round's number.
    std::int64_t restarts_used_ = 0;
    EventFacts terms_{};
    std::string waiting_for_{};
    Instant differs_since_ = no_deadline;  ///< Since then the status waits for something else.
    std::map<std::int64_t, Node> nodes_;   ///< by their `node`
    bool knows_places_ = true;             ///< No other daemon has sealed the round.
};

}  // namespace muster::test
