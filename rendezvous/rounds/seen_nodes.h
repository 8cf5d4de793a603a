// What a reader of job_pieces() has of a job's nodes, so that it gets only those that changed since. Pure.
//
// Most of 10,000 nodes do not change within a second. To compare what is shown of a node takes a fraction of a
// microsecond, and to write its JSON text several.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/rounds/member.h"

namespace muster::rendezvous {

class SeenNodes {
  public:
    /// A silence in seconds; -1: it is too short to be news.
    using Changed = std::function<void(const Member& member, std::int64_t silent_s)>;

    /// Calls `changed` for each member that is new or shows something else, and returns the incarnations that are gone.
    std::vector<Incarnation> look_at(const std::map<Incarnation, Member>& members, Instant now, Duration silence_shown,
                                     const Changed& changed);

  private:
    /// All that status.cpp's describe(Member) shows and that can change.
    struct Look {
        std::string_view place{};
        std::uint32_t slots = 0;
        std::string role{};
        bool is_connected = false;
        bool is_left_out = false;
        Health health = Health::fit;
        std::string finding{};
        Round round = no_round;
        std::uint32_t group_rank = 0;
        std::int64_t rank_base = -1;
        std::int64_t silent_s = -1;
        native::StandbysSeen standbys{};
        std::vector<native::GpuBusy> gpus{};
        std::vector<native::SeenWorker> workers{};  ///< Those that are overdue or wait.
    };
    static Look look_of(const Member& member, std::int64_t silent_s);
    static bool shows(const Look& look, const Member& member, std::int64_t silent_s);

    std::map<Incarnation, Look> looks_;
};

}  // namespace muster::rendezvous
