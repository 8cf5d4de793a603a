// An agent's side of the rendezvous with everything around it played by the test: each call returns what the core wants
// done, one short line for each output.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/base/text/text.h"
#include "rendezvous/client/core/client_core.h"
#include "rendezvous/wire/native/codec.h"

namespace muster::test {

using namespace rendezvous;
using Lines = std::vector<std::string>;

class Dialogue {
  public:
    explicit Dialogue(const char* host = "gpu00") {
        config.endpoint = {host, 29400};
        config.job = "job";
        config.node = {"n1", 7, 42};
        core.emplace(config);
    }

    /// Its endpoints are a, b and c, all with port 1.
    void knows_several() {
        config.endpoint = {"a", 1};
        config.others = {{"b", 1}, {"c", 1}};
        core.emplace(config);
    }

    // ---- what happens; time stands still unless `pass` ----
    Lines join(Round last_round = no_round) {
        native::Join said;
        said.last_round = last_round;
        return lines(core->join(said, now));
    }
    Lines open() { return hears(ConnectionOpened{"10.0.0.1"}); }
    Lines broken() { return hears(ConnectionClosed{"reset"}); }
    Lines daemon(native::Message message) { return hears(MessageReceived{std::move(message)}); }
    Lines pong() { return daemon(native::Pong{last_ping.sequence, last_ping.sent_ns, 5'000'000}); }
    /// The newest question to that member is answered so.
    Lines peer(std::uint32_t group_rank, const std::optional<native::PeerAnswer>& answer) {
        for (auto ask = last_asked.rbegin(); ask != last_asked.rend(); ++ask)
            if (ask->group_rank == group_rank) return hears(PeerAnswered{ask->number, answer});
        return {"nobody was asked"};
    }
    /// The parent says how old the oldest promise of all members is.
    Lines parent_agrees(Duration age = 0ns) {
        return peer(0, native::PeerAnswer{.round = 0, .leader_lost = true, .all_age_ns = age.count()});
    }
    /// Another member asks.
    std::optional<native::PeerAnswer> asks(std::uint32_t position, bool lost, std::uint64_t number,
                                           std::uint64_t echo = 0, std::uint32_t covered = 0, Duration age = 0ns) {
        return core->answer({.job = "job",
                             .round = 0,
                             .group_rank = rank,
                             .asker = position,
                             .tree_size = tree.size,
                             .lost = lost,
                             .covered = covered,
                             .age_ns = age.count(),
                             .echo = echo,
                             .number = number},
                            now);
    }
    Lines hears(const ClientInput& input) { return lines(core->step(input, now)); }

    /// Time passes; the core is called at its deadlines. With `answering` each ping is answered at once.
    Lines pass(Duration duration, bool answering = false) {
        Lines all;
        const auto until = now + duration;
        while (core->deadline() <= until) {
            now = std::max(now, core->deadline());
            for (auto& line : hears(TimePassed{})) {
                const bool answer = answering && line == "send Ping";
                all.push_back(std::move(line));
                if (answer) pong();
            }
        }
        now = until;
        return all;
    }

    static native::Assigned assigned(Round round = 0, std::uint32_t world = 3, std::uint32_t rank = 1) {
        native::Assigned made;
        made.round = round;
        made.group_rank = rank;
        made.group_world_size = world;
        return made;
    }
    native::Peers peers() const {
        native::Peers list{.round = 0, .place = tree, .above = {}};
        for (auto at = tree.position; at > 0 && list.above.size() < 2;) {
            at = tree.parent_of(at);
            list.above.push_back({at, cat("p", at), 6000});
        }
        return list;
    }
    /// Joined, connected, and in round 0 of three nodes, with rank 1: its parent has rank 0.
    void settle_in(std::uint32_t world = 3) { settle_in({.position = world == 1 ? 0U : 1U, .size = world}, {}); }
    void settle_in(native::TreePlace place, std::string round_secret = {}) {
        tree = place;
        rank = place.position;
        if (place.fan_out != config.fan_out) {
            config.fan_out = place.fan_out;
            core.emplace(config);
        }
        join();
        open();
        pong();
        auto made = assigned(0, place.size, rank);
        made.heartbeat_ms = heartbeat_ms;
        made.secret = std::move(round_secret);
        daemon(std::move(made));
        daemon(peers());
    }

    Lines lines(const std::vector<ClientOutput>& outputs) {
        Lines out;
        for (const auto& output : outputs) std::visit([&](const auto& one) { out.push_back(line(one)); }, output);
        return out;
    }

    ClientConfig config;
    std::optional<ClientCore> core;
    native::TreePlace tree;
    std::uint32_t rank = 1;
    std::uint32_t heartbeat_ms = 0;
    Instant now = Instant(1000s);
    native::Ping last_ping;
    native::Hello hello;
    native::Message last_sent;
    std::vector<native::PeerAsk> last_asked;  ///< since it was last taken
    native::Message last_delivered;

  private:
    std::string line(const Connect&) {
        return config.others.empty() ? "connect" : cat("connect ", core->endpoint().host);
    }
    std::string line(const Disconnect& one) { return one.is_wrong_peer ? "disconnect a stranger" : "disconnect"; }
    std::string line(const Abandon&) { return "abandon"; }
    std::string line(const DropOlder&) { return "drop older"; }
    std::string line(const Send& send) {
        last_sent = send.message;
        if (const auto* ping = std::get_if<native::Ping>(&send.message)) last_ping = *ping;
        if (const auto* said = std::get_if<native::Hello>(&send.message)) hello = *said;
        return cat("send ", native::name(send.message));
    }
    std::string line(const QueryPeer& ask) {
        last_asked.push_back(ask.ask);
        return cat("ask ", ask.peer.group_rank);
    }
    std::string line(const Deliver& deliver) {
        last_delivered = deliver.message;
        return cat("deliver ", native::name(deliver.message));
    }
    std::string line(const Fenced& fenced) { return cat("fenced: ", fenced.why); }
    std::string line(const RendezvousLost& lost) { return cat("lost: ", lost.why); }
    std::string line(const Progress& progress) { return cat("progress: ", progress.line); }
};

inline bool any_starts_with(const Lines& lines, std::string_view start) {
    for (const auto& line : lines)
        if (line.starts_with(start)) return true;
    return false;
}

}  // namespace muster::test
