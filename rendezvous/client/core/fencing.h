// Fencing: decides whether this node may keep its workers while the daemon does not answer. Pure.
//
// The daemon may seal a round without a member 1.1 lease after that member's last message. So an unreachable member
// must kill its workers before that. It counts from the *sending* of its last answered message, which is never later
// than the daemon's receipt, and kills by 0.9 lease. But if the daemon itself is lost, no round is sealed, and no
// worker may die. The members find out which of the two it is, in a tree (native::TreePlace) so that each of them talks
// to few others:
//
//   0.4 lease    a member that has heard nothing for this time says that it has lost the daemon: its promise
//   0.45 lease   it asks its parent, again and again (pace()). Each question tells which subtrees have promised and how
//                old the oldest promise is (loss_below.h). Each answer tells whether all members have, and how old the
//                oldest promise of all is: the root knows it first, and each member passes it on
//   0.88 lease   kill, unless all members have promised and the oldest promise is not older than 0.25 lease
//   lost timeout   kill, just before the daemon would seal without the whole round, and end
//
// A member that was stopped itself (SIGSTOP, Ctrl-Z, a paused machine) kills at the same times, or as soon as it
// continues. But it ends only a whole lost timeout after that: the daemon has not been silent, so it joins again.
// (Unless it was stopped just before it would have lost the daemon: less than half a lease later is not seen as a
// stop.) The only node of a job whose daemon is in the same process kills nothing: the daemon was stopped as well.
//
// A parent that refuses the connection or is silent for 0.05 lease is not waited for: its children ask their
// grandparent as well, until the parent answers again. The parent's own promise still has to come by some way: a member
// that nobody reaches makes "all" impossible. A member whose workers have all exited 0 and that has left is no part of
// the tree: the daemon sends new places. Members whose trees differ in size do not count each other's words.
//
// The promise: that member joins no other round for 1.1 lease (ClientCore::join). So a member that reaches the daemon
// again cannot be in the next round while another relies on its word. The other relies on it until it is 0.25 lease
// old. If it is suspended (SIGSTOP) at the end of that time, its guardian kills 0.8 lease later. A later "no" does not
// kill at once: the daemon is back, and the member uses the rest of the 0.25 lease to reach it too. STATES.md proves
// it.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/time.h"
#include "rendezvous/client/core/loss_below.h"
#include "rendezvous/wire/native/limits.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::rendezvous {

struct FencingConfig {
    Duration lease = 5s;
    Duration lost_timeout = 60s;
    std::uint32_t fan_out = native::tree_fan_out;
    bool is_alone = false;  ///< ClientConfig::is_alone
};

/// A question without what ClientCore adds: the job, the round, and the proof.
struct PeerQuestion {
    native::Peer peer;
    native::PeerAsk ask;
    std::string answered_nonce;  ///< Of the answer that it echoes.
};

struct FencingStep {
    std::vector<PeerQuestion> ask;      ///< to be asked now, with the timeout ask_timeout()
    std::optional<std::string> fenced;  ///< kill the workers now, for this reason; set once per round
    bool lost = false;                  ///< the lost timeout has passed
};

class Fencing {
  public:
    explicit Fencing(FencingConfig config) : config_(config) {}

    /// From now on, workers of this round may run here.
    void watch(const native::Assigned& assigned);
    /// This node's place in the tree of the round. Invalid ones are ignored.
    void set_peers(const native::Peers& peers);
    /// The workers have ended.
    void stop() { watched_.reset(); }
    /// This process was stopped until now.
    void woke(Instant now) { woke_at_ = now; }
    [[nodiscard]] bool watching() const { return watched_.has_value(); }

    /// The outcome of the question of that number; each has exactly one. Empty: unreachable, or no answer in time.
    void answered(std::uint64_t number, const std::optional<native::PeerAnswer>& answer, Instant now);
    /// A question of another member. Returns the age of the oldest promise of all members, or -1. `lost`: this node has
    /// lost the daemon too, so its answer is a promise.
    std::int64_t asked(const native::PeerAsk& ask, bool lost, Instant now);
    /// `heard_until`: when the last answered message was sent.
    FencingStep step(Instant heard_until, Instant now);
    [[nodiscard]] Instant deadline(Instant heard_until) const;
    /// Whether the guardian may be fed. It kills 0.8 lease after its last feed, also when this agent is suspended while
    /// it is cut off. So the last feed must be early enough that this kill precedes the daemon's next seal.
    /// A node that is alone never feeds its guardian, so it does not kill.
    [[nodiscard]] bool may_feed(Instant heard_until, Instant now) const;

    /// Silence of a parent after which it is stepped over.
    [[nodiscard]] Duration ask_timeout() const { return config_.lease / 20; }
    /// When a daemon that was last heard at that time counts as lost.
    [[nodiscard]] Instant lost_at(Instant heard_until) const {
        return silent_since(heard_until) + config_.lost_timeout;
    }
    /// Since when the daemon could have been heard, and was not.
    [[nodiscard]] Instant silent_since(Instant heard_until) const { return std::max(heard_until, woke_at_); }
    /// How long a promise binds its sender.
    [[nodiscard]] Duration promise() const { return config_.lease * 11 / 10; }
    /// Silence from which on this node says that it has lost the daemon.
    [[nodiscard]] Duration lost_after() const { return config_.lease * 4 / 10; }

  private:
    struct Asked {
        std::uint64_t number = 0;
        Instant at;
    };
    /// To the parent, or to the grandparent. The next question does not wait for the last answer: one that is lost
    /// costs a pace, and not a timeout.
    struct Way {
        Instant asked_at = Instant::min();
        std::vector<Asked> under_way;
        std::uint64_t answered = 0;  ///< The newest question that was answered; 0: none.
        Instant answered_at;
        std::string nonce;  ///< Of that answer.
    };
    struct Watched {
        Round round = no_round;
        std::uint32_t world = 1;
        std::optional<native::TreePlace> place;  ///< Empty: not heard yet.
        std::vector<native::Peer> above;         ///< One for each of `ways`, nearest first.
        std::array<Way, native::peers_above_max> ways;
        std::optional<LossBelow> below;
        bool is_parent_silent = false;
        bool has_asked = false;              ///< In this silence of the daemon.
        Instant agreed_at = Instant::min();  ///< All members have promised, none earlier than this.
        bool contradicted =
            false;  ///< The parent still had the daemon, and not all have lost it since. For the message.
        bool fenced = false;
    };

    void ask(FencingStep& step, bool lost, Instant now);
    void note_root_agreement(Instant now);
    [[nodiscard]] bool is_open(std::size_t way) const;
    [[nodiscard]] Instant next_question(const Way& way) const;
    [[nodiscard]] Duration agreement_lasts() const { return config_.lease / 4; }
    [[nodiscard]] Duration ask_after() const { return config_.lease * 45 / 100; }
    [[nodiscard]] Duration pace(const native::TreePlace& place) const;
    [[nodiscard]] Instant fence_at(Instant heard_until) const;

    FencingConfig config_;
    std::uint64_t number_ = 0;  ///< Of the last question.
    Instant woke_at_ = Instant::min();
    std::optional<Watched> watched_;
};

}  // namespace muster::rendezvous
