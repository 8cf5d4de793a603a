// Whether this node may keep its workers while the daemon does not answer. Pure.
//
// The daemon may seal a round without a member 1.1 lease after that member's last word. So a member that has no answer
// must have killed its workers before: silence is counted from the *sending* of its last answered message, which is
// never later than the daemon's last word of it, and they are gone by 0.9 lease. But where the daemon itself is gone,
// nobody seals anything and no worker may die. The other members tell the two apart:
//
//   0.6 lease   ask every other member "have you lost the daemon too?", and again every 0.1 lease
//   0.88 lease  kill, unless all of them said yes to one of these questions within the last 0.25 lease
//   lost time-out   the daemon does not come back: kill and give up, just before the daemon would seal without us all
//
// A member that was through (all its workers had exited 0) and has gone is none of these any more: the daemon says so
// with a shorter list. It is not counted by the daemon either, when that asks itself whether it hears anybody of the
// round.
//
// A "yes" is also a promise: whoever gave it joins no other round for 1.1 lease (ClientCore::join), so that a member
// that finds the daemon again a moment later cannot be in the next round while the asker still relies on its word: for
// 0.25 lease, at the end of which it may be stopped (SIGSTOP), and then its guardian kills 0.8 lease later. So a
// later "no" does not kill at once: the daemon is back, and the asker has the rest of the quarter to find it too
// (ClientCore tries at once).
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
    std::vector<native::Peer> ask;      ///< ask these now, and wait no longer than ask_timeout()
    std::optional<std::string> fenced;  ///< kill the workers now, because of this; said once a round
    bool lost = false;                  ///< the daemon stays away: give up
};

class Fencing {
  public:
    explicit Fencing(FencingConfig config) : config_(std::move(config)) {}

    /// From now on workers of this round may run here.
    void watch(const native::Assigned& assigned);
    /// Those of the round that are there; again where one has gone.
    void set_peers(const native::Peers& peers);
    /// They are gone.
    void stop() { watched_.reset(); }
    [[nodiscard]] bool watching() const { return watched_.has_value(); }

    void answered(std::uint32_t group_rank, const std::optional<native::PeerAnswer>& answer);
    /// `heard_until`: when the last answered message was sent.
    FencingStep step(Instant heard_until, Instant now);
    [[nodiscard]] Instant deadline(Instant heard_until) const;
    /// Whether the guardian may be told that all is well. It kills 0.8 lease after it was last told, also when this
    /// agent is stopped (SIGSTOP, a paused machine) while it is cut off; so the last time must be early enough for that
    /// kill to come before the daemon seals without this node.
    [[nodiscard]] bool may_feed(Instant heard_until, Instant now) const;

    /// Shorter than the time between two questions, so that an answer always belongs to the latest one.
    [[nodiscard]] Duration ask_timeout() const { return config_.lease * 8 / 100; }
    /// How long a "yes" binds the one who said it.
    [[nodiscard]] Duration promise() const { return config_.lease * 11 / 10; }
    /// Silence from which on this node says "yes".
    [[nodiscard]] Duration lost_after() const { return config_.lease * 4 / 10; }

  private:
    struct Watched {
        Round round = no_round;
        std::uint32_t group_rank = 0;
        std::uint32_t world = 1;
        std::vector<native::Peer> others;
        std::map<std::uint32_t, bool> said_yes;  ///< to the question under way; by group rank
        Instant asked_at = Instant::min();
        Instant agreed_at = Instant::min();  ///< when the last question was asked that all said yes to
        bool contradicted = false;           ///< somebody said no, and not all have said yes since; for the message
        bool fenced = false;
    };

    void ask(FencingStep& step, Instant now);
    [[nodiscard]] Instant fence_at(Instant heard_until) const;

    FencingConfig config_;
    std::optional<Watched> watched_;
};

}  // namespace muster::rendezvous
