// Fencing: decides whether this node may keep its workers while the daemon does not answer. Pure.
//
// The daemon may seal a round without a member 1.1 lease after that member's last message. So an unreachable member
// must kill its workers before that. It counts from the *sending* of its last answered message, which is never later
// than the daemon's receipt, and kills by 0.9 lease. But if the daemon itself is lost, no round is sealed, and no
// worker may die. The other members distinguish the two cases:
//
//   0.6 lease    ask every other member whether it has lost the daemon too, and again every 0.1 lease
//   0.88 lease   kill, unless all of them answered yes to one of these questions within the last 0.25 lease
//   lost timeout   kill and end, just before the daemon would seal without the whole round
//
// A member whose workers have all exited 0 and that has left is not asked: the daemon sends a shorter list. The daemon
// does not count it either.
//
// A "yes" is also a promise: that member joins no other round for 1.1 lease (ClientCore::join). So a member that
// reaches the daemon again cannot be in the next round while the asker relies on its answer. The asker relies on it for
// 0.25 lease; if it is suspended (SIGSTOP) at the end of that time, its guardian kills 0.8 lease later. A later "no"
// does not kill at once: the daemon is back, and the asker uses the rest of the 0.25 lease to reach it too.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/time.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::rendezvous {

struct FencingConfig {
    std::string job;
    Duration lease = 5s;
    Duration lost_timeout = 60s;
};

struct FencingStep {
    std::vector<native::Peer> ask;      ///< peers to ask now, with the timeout ask_timeout()
    std::optional<std::string> fenced;  ///< kill the workers now, for this reason; set once per round
    bool lost = false;                  ///< the lost timeout has passed
};

class Fencing {
  public:
    explicit Fencing(FencingConfig config) : config_(std::move(config)) {}

    /// From now on, workers of this round may run here.
    void watch(const native::Assigned& assigned);
    /// The current members of the round.
    void set_peers(const native::Peers& peers);
    /// The workers have ended.
    void stop() { watched_.reset(); }
    [[nodiscard]] bool watching() const { return watched_.has_value(); }

    void answered(std::uint32_t group_rank, const std::optional<native::PeerAnswer>& answer);
    /// `heard_until`: when the last answered message was sent.
    FencingStep step(Instant heard_until, Instant now);
    [[nodiscard]] Instant deadline(Instant heard_until) const;
    /// Whether the guardian may be fed. It kills 0.8 lease after its last feed, also when this agent is suspended while
    /// it is cut off. So the last feed must be early enough that this kill precedes the daemon's next seal.
    [[nodiscard]] bool may_feed(Instant heard_until, Instant now) const;

    /// Shorter than the time between two questions, so that an answer always belongs to the latest one.
    [[nodiscard]] Duration ask_timeout() const { return config_.lease * 8 / 100; }
    /// How long a "yes" binds its sender.
    [[nodiscard]] Duration promise() const { return config_.lease * 11 / 10; }
    /// Silence from which on this node says "yes".
    [[nodiscard]] Duration lost_after() const { return config_.lease * 4 / 10; }

  private:
    struct Watched {
        Round round = no_round;
        std::uint32_t group_rank = 0;
        std::uint32_t world = 1;
        std::vector<native::Peer> others;
        std::map<std::uint32_t, bool> lost_leader_too;  ///< Answers to the current query, keyed by group rank.
        Instant asked_at = Instant::min();
        Instant agreed_at = Instant::min();  ///< Time of the last query that all peers answered with yes.
        bool contradicted = false;  ///< A peer answered no, and not all have answered yes since. For the message.
        bool fenced = false;
    };

    void ask(FencingStep& step, Instant now);
    [[nodiscard]] Instant fence_at(Instant heard_until) const;

    FencingConfig config_;
    std::optional<Watched> watched_;
};

}  // namespace muster::rendezvous
