// One round of hundreds to ten thousands of members whose daemon falls silent: the real client cores over a network of
// their own, simpler than that of World. Each message costs processor time at its receiver, one after another, so a
// protocol of N * N messages would be late.
//
// The story: all members hear the daemon. Then none hears it for `away`, while it goes on hearing those that are not
// cut off: the worst case, because their leases do not begin anew. Then these hear it again, and neither it nor they
// exchange a word with those that are cut off any more. The next round is sealed without those as soon as the others
// have joined and 1.1 lease has passed. Then no worker of a member that is cut off may live (S8), and none may have
// ended before (S9).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/client/core/client_core.h"
#include "tests/simulation/host/event_queue.h"
#include "tests/simulation/host/random.h"

namespace muster::simulation {

/// A planted bug: what a member says is changed on its way.
enum class TreeBug : std::uint8_t {
    none,
    vouches_for_silent,  ///< says "lost" for those below it who have not said so
    forgets_ages,        ///< does not add up how old promises are
    skips_parents,       ///< needs no word of a member whose children came around it
    skips_heartbeats,    ///< sends one heartbeat of four, so clocks begin too far apart
};

struct LargeRoundSetting {
    std::uint64_t seed = 1;
    std::uint32_t size = 1000;
    std::uint32_t fan_out = native::tree_fan_out;
    Duration lease = 5s;
    Duration heartbeat{};  ///< as the daemon tells it; 0: the fastest
    Duration latency_min = 100us;
    Duration latency_max = 2ms;
    Duration cost = 100us;                 ///< of each message
    std::uint32_t lost_permille = 0;       ///< questions that get no answer
    std::uint32_t resent_permille = 0;     ///< pings whose segment is lost: TCP sends it again after 200 ms
    std::uint32_t refusing_permille = 0;   ///< members that no other one reaches: they are stepped over
    Duration away = 10s;                   ///< a lease or more
    std::uint32_t cut_permille = 0;        ///< members that are cut off
    std::uint32_t suspended_permille = 0;  ///< of these, stopped (SIGSTOP) at about the daemon's return, for good
    TreeBug bug = TreeBug::none;
};

struct LargeRoundResult {
    std::uint32_t size = 0;
    std::uint32_t ended_early_count = 0;    ///< members whose workers ended while the daemon was away
    std::uint32_t alive_at_seal_count = 0;  ///< members that are cut off and have workers when the next round is sealed
    std::uint64_t question_count = 0;
    std::uint64_t stepped_over_count = 0;  ///< questions to a grandparent
    Duration busiest{};                    ///< processor time of the member that had most to do
    bool sealed = false;
    /// No member has both a parent and a grandparent that nobody reaches. The word of such a member comes to nobody, so
    /// the others cannot know that it has lost the daemon, and all end their workers.
    bool has_ways = true;
};

/// Rounds of 1,000 to 1,500 members for campaigns: heartbeats, links, losses, processor time, unreachable inner members
/// and cuts follow from the seed. Each kind of trouble is absent from some seeds.
LargeRoundSetting large_round_of(std::uint64_t seed);

/// A sentence that names the broken invariant; empty: all hold.
std::string broken_by(const LargeRoundResult& result);

class LargeRound {
  public:
    explicit LargeRound(LargeRoundSetting setting);
    LargeRoundResult run();

  private:
    struct Member {
        Member(EventQueue& events, EventQueue::Happening ring) : alarm(events, std::move(ring)) {}
        std::unique_ptr<rendezvous::ClientCore> core;
        Alarm alarm;
        Duration offset{};  ///< of its clock
        Moment busy_until{};
        Duration busy{};
        Moment fed_at{};
        bool killed = false;
        bool is_cut = false;
        bool refuses = false;
        bool suspended = false;
        bool joined = false;  ///< the next round
        native::Ping pinged;  ///< unanswered
        std::uint32_t ping_count = 0;
    };

    [[nodiscard]] Instant local(const Member& member) const { return Instant(1h + member.offset + events_.now()); }
    [[nodiscard]] bool is_alive(const Member& member) const;
    [[nodiscard]] bool hears_daemon(const Member& member) const;
    [[nodiscard]] bool reaches(const Member& from, const Member& to) const;
    [[nodiscard]] Duration latency() { return random_.between(setting_.latency_min, setting_.latency_max); }
    [[nodiscard]] native::Peers place_of(std::uint32_t index) const;
    [[nodiscard]] bool has_ways() const;
    void settle_in(std::uint32_t index);
    void feed(std::uint32_t index);
    void give(std::uint32_t index, const rendezvous::ClientInput& input);
    void carry_out(std::uint32_t index, const std::vector<rendezvous::ClientOutput>& outputs);
    void said(std::uint32_t index, const native::Message& message);
    void ask(std::uint32_t index, const rendezvous::QueryPeer& query);
    void asked(std::uint32_t from, std::uint32_t to, const native::PeerAsk& question, std::shared_ptr<bool> open);
    void answer(std::uint32_t index, std::shared_ptr<bool> open, rendezvous::PeerAnswered answered);
    void speak_for_parent(Member& member, std::uint32_t to, const native::PeerAsk& question);
    /// Calls it when the member has time for another message.
    void handle(std::uint32_t index, EventQueue::Happening what);
    void daemon_returns();

    LargeRoundSetting setting_;
    EventQueue events_;
    Random random_;
    std::vector<std::unique_ptr<Member>> members_;
    bool is_away_ = false;
    bool has_returned_ = false;
    LargeRoundResult result_;
};

}  // namespace muster::simulation
