// An agent's side of the rendezvous, pure: what to send, when to reconnect, when to time out, when to fence.
//
// The driver (client.h) owns sockets and the clock: it feeds inputs and executes outputs. The agent's supervisor calls
// join, report and leave. It receives the daemon's messages, and the outputs that only this host can derive: Fenced,
// RendezvousLost and a Progress line.
//
// On each new connection the core sends its identity, its state (Join, Resume, Leave) and every report that the daemon
// has not visibly processed. The protocol makes repetitions harmless, so nothing is remembered as "already sent". Every
// call records a fact and ends in settle(), which derives what is due.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/time.h"
#include "rendezvous/client/core/clock_offset.h"
#include "rendezvous/client/core/fencing.h"
#include "rendezvous/client/core/peer_proof.h"
#include "rendezvous/client/core/waiting_lines.h"
#include "rendezvous/wire/native/heartbeat_pace.h"
#include "rendezvous/wire/native/messages.h"
#include "rendezvous/wire/native/secret.h"

namespace muster::rendezvous {

/// How a client proves the job's key.
struct ClientKey {
    native::KeyedHash secret;  ///< the job's secret; empty: none
    /// Of the job's key, for TLS to other hosts (secret/control_key.h); empty: there is no key.
    std::string tls_identity;
    std::string tls_key;
};

struct ClientConfig {
    Endpoint endpoint;  ///< the driver resolves it and connects
    /// the endpoint's addresses, in the format of Endpoint::host; empty: resolve its name
    std::string known_addresses;
    std::string endpoint_option = "--rdzv-endpoint";  ///< the option that named the endpoint, for advice
    std::vector<Endpoint> others;                     ///< more daemons, one of which is the leader (NotLeader)
    /// `endpoint` is etcd's, for messages only; leader_is() gives the address of the leader.
    bool leader_is_supplied = false;
    std::string job;
    NodeIdentity node;
    std::vector<native::VersionFact> versions;
    Duration join_timeout = 600s;   ///< deadline for a round; then RendezvousLost (exit code 75)
    Duration connect_timeout = 2s;  ///< per attempt and address
    Duration backoff_min = 20ms;    ///< first wait after a failed attempt; doubles up to backoff_max
    Duration backoff_max = 500ms;
    Duration lease = 5s;
    Duration lost_timeout = 60s;  ///< --rdzv-lost-timeout
    /// The job has this node only, and its daemon is this process's: nobody can continue without it.
    bool is_alone = false;
    Duration stop_grace = 30s;  ///< --shutdown-timeout: how long workers here may take to stop
    /// Only simulations have another one.
    std::uint32_t fan_out = native::tree_fan_out;
    ClientKey key;
    /// Those that `key` replaces. During a change a daemon may still have one of them alone.
    std::vector<ClientKey> older_keys;
    std::string secret_seed;       ///< random bytes for this agent's challenges
    PeersHash peers_hash;          ///< proves the questions between agents; empty: no secret
    bool tls_on_loopback = false;  ///< also where clear text and proofs would do
};

// ---- inputs ----
struct ConnectionOpened {
    std::string address;     ///< the one that answered
    bool is_proven = false;  ///< by TLS, both sides have the job's key
};
struct ConnectionFailed {
    enum class Reached {
        nobody,
        stranger,  ///< which does not speak muster's protocol
        refused,   ///< a daemon, which reports that it has another key than this node; that is not proved
    };
    std::string tried;  ///< "10.0.0.1: connection refused, fe80::1: no route"
    Reached reached = Reached::nobody;
};
struct ConnectionClosed {
    std::string why;
    bool foreign = false;  ///< closed by us, because the peer does not speak muster's protocol
};
struct MessageReceived {
    native::Message message;
};
/// The outcome of QueryPeer; each has exactly one.
struct PeerAnswered {
    std::uint64_t number = 0;                  ///< of the question
    std::optional<native::PeerAnswer> answer;  ///< empty: could not be reached, or no answer in time
};
/// The peer that closed our connection without an answer is PyTorch's store.
struct StoreAnswered {
    bool has_job = false;  ///< it holds torchrun's c10d rendezvous of our job
};
struct TimePassed {};
using ClientInput = std::variant<ConnectionOpened, ConnectionFailed, ConnectionClosed, MessageReceived, PeerAnswered,
                                 StoreAnswered, TimePassed>;

// ---- outputs, in order ----
/// Resolve ClientCore::endpoint() again and try each address; answer with ConnectionOpened or ConnectionFailed.
struct Connect {};
struct Disconnect {
    bool is_wrong_peer = false;  ///< the peer is not the job's daemon
};
/// Cancel the attempt of Connect; an existing connection stays.
struct Abandon {};
/// The daemon answered on the newest connection: close the older ones. Closing them sooner would report this agent's
/// death to the daemon.
struct DropOlder {};
struct Send {
    native::Message message;
};
struct QueryPeer {
    native::Peer peer;
    native::PeerAsk ask;
    Duration timeout;
};
/// A message of the daemon for the supervisor (Assigned, Parked, RoundEnded, Drain, NoticeGiven, JobEnded, Refused),
/// the sender of a command (CommandAnswer), the fault injector (FaultOrdered) or the hang watch (JobSeen).
struct Deliver {
    native::Message message;
};
/// For the supervisor: SIGKILL the workers now, without grace. Another part of the job may go on without this node.
struct Fenced {
    std::string why;
};
/// For the supervisor: no rendezvous is available; this node ends with exit code 75.
struct RendezvousLost {
    std::string why;
};
/// A line for the user: what is missing, the remaining time, and after 10 s what to check. While workers run: that the
/// daemon is silent, and that it is back.
struct Progress {
    std::string line;
};
using ClientOutput =
    std::variant<Connect, Disconnect, Abandon, DropOlder, Send, QueryPeer, Deliver, Fenced, RendezvousLost, Progress>;

class ClientCore {
  public:
    explicit ClientCore(ClientConfig config);

    // Calls of the supervisor, also while disconnected: what still matters is sent after the reconnect. Times of
    // failures are on this host's clock (clock_ns) and are converted to the daemon's.

    /// The call for this message; the core knows the round. FaultAnswer, WorkersSeen and StandbysSeen are sent at most
    /// once and dropped without a connection; the next sample replaces one that is not sent.
    std::vector<ClientOutput> submit(native::Message message, Instant now);
    std::vector<ClientOutput> join(native::Join join, Instant now);
    std::vector<ClientOutput> workers_failed(std::vector<Failure> failures, Instant now);
    std::vector<ClientOutput> workers_succeeded(Instant now);
    std::vector<ClientOutput> round_report(native::RoundReport report, Instant now);
    std::vector<ClientOutput> leave(std::string why, Instant now);
    std::vector<ClientOutput> end_acknowledged(Instant now);
    /// With leader_is_supplied: the endpoint of the leader; empty: none is known, because of `why`. A connection to
    /// another daemon is closed when a leader is known.
    std::vector<ClientOutput> leader_is(const std::optional<Endpoint>& leader, std::string why, Instant now);
    /// Forwards a command: repeated after a reconnect until its answer, with the same number, is delivered. A fault is
    /// sent once, because it may have broken the connection.
    std::vector<ClientOutput> command(native::Command command, Instant now);

    std::vector<ClientOutput> step(const ClientInput& input, Instant now);

    /// The daemon that received our Leave is gone: sends it to the next one.
    void leave_not_acknowledged() { leave_sent_ = leave_sent_ && membership_ != Membership::leaving; }
    /// True when nothing must be sent on a new connection any more, after leave() or end_acknowledged().
    [[nodiscard]] bool has_sent_all() const { return membership_ != Membership::leaving || leave_sent_; }

    /// When step(TimePassed) must be called at the latest; no_deadline: never.
    [[nodiscard]] Instant deadline() const;
    /// The target of Connect now.
    [[nodiscard]] const Endpoint& endpoint() const;
    /// The key for Connect now: 0 is ClientConfig::key, then follow older_keys.
    [[nodiscard]] std::size_t key_at() const { return key_at_; }
    /// The answer to PeerAsk. "Lost" is a promise: this node joins no other round while others rely on it (fencing.h).
    /// Empty: nobody of the round asks this, or has asked it before (peer_proof.h). Afterwards step(TimePassed) is due.
    std::optional<native::PeerAnswer> answer(const native::PeerAsk& ask, Instant now);
    /// Whether the driver may feed the guardian now (Fencing::may_feed). Call it at least each lease/10.
    [[nodiscard]] bool may_feed(Instant now) const { return fencing_.may_feed(heard_until_, now); }
    /// When the last message was sent that the daemon is known to have received.
    [[nodiscard]] Instant heard_until() const { return heard_until_; }

  private:
    enum class Membership {
        idle,      ///< no call yet
        joining,   ///< a Join waits for its answer; no worker runs
        in_round,  ///< workers of assigned_ may run
        drained,   ///< the workers have ended; the next join, or JobEnded, follows
        leaving,   ///< Leave is due or was sent
        over,      ///< JobEnded, Refused, or timed out
    };
    /// greeting: connected; with a secret nothing but the proof is sent before the daemon has proved itself.
    enum class Link { none, connecting, greeting, open };

    using Outputs = std::vector<ClientOutput>;

    void on(const ConnectionOpened& input, Instant now);
    void on(const ConnectionFailed& input, Instant now);
    void on(const ConnectionClosed& input, Instant now);
    void on(const MessageReceived& input, Instant now);
    void on(const PeerAnswered& input, Instant now);
    void on(const StoreAnswered& input, Instant now);
    void on(const TimePassed& input, Instant now);
    void on_not_leader(const native::NotLeader& told, Instant now);
    void on_pong(const native::Pong& pong, Instant now);
    void on_assigned(const native::Assigned& assigned, Instant now);
    void on_round_ended(const native::RoundEnded& ended, Instant now);
    void on_job_over(native::Message message);
    void on_state_stalled(const native::StateStalled& stalled, Instant now);
    void on_command_answer(const native::CommandAnswer& answer);

    // Every verb and step ends here: what is due now, derived from the state.
    Outputs settle(Instant now);
    void settle_link(Instant now);
    void settle_ping(Instant now);
    void settle_standstill(Instant now);
    void settle_fencing(Instant now);
    void settle_missed(Instant now);
    void settle_connect_deadline(Instant now);
    void settle_lines(Instant now);

    void greet();
    void introduce(Instant now);
    void send_reports(Instant now);
    [[nodiscard]] bool sends_times() const;
    [[nodiscard]] std::vector<Failure> on_daemon_clock(std::vector<Failure> failures) const;
    void send_failures();
    void send_round_report();
    void on_challenge(const native::Challenge& challenge, Instant now);
    void distrust(std::string why, Instant now);
    [[nodiscard]] const native::KeyedHash& secret() const {
        return (key_at_ == 0 ? config_.key : config_.older_keys[key_at_ - 1]).secret;
    }
    bool try_next_key(Instant now);
    void say(native::Message message);
    void ping(Instant now);
    void send_commands(Instant now);
    /// The daemon does not know this agent yet, and takes no commands from it.
    [[nodiscard]] bool holds_join() const {
        return membership_ == Membership::joining && (join_held_ || reports_held_);
    }
    void give_up(std::string why);
    void retry_later(Instant now);
    [[nodiscard]] std::optional<Endpoint> elsewhere(std::string_view named) const;
    void look_for_daemon(std::string_view named, Instant now);
    [[nodiscard]] std::string answering_daemon() const;
    void try_next_endpoint(Instant now);
    void leave_stale_link(Instant now);
    void resume_receiving();
    void disconnect();
    [[nodiscard]] bool can_send() const { return link_ == Link::open || kept_; }
    void note_timeout(Instant now);
    [[nodiscard]] bool is_silent(const Endpoint& endpoint, Instant now) const {
        const auto found = silent_.find(describe(endpoint));
        return found != silent_.end() && now < found->second;
    }
    [[nodiscard]] std::size_t daemon_count() const { return config_.others.size() + 1; }
    [[nodiscard]] bool has_choice() const { return daemon_count() > 1; }
    [[nodiscard]] bool wants_connection() const;
    [[nodiscard]] std::string_view what_would_help() const;
    [[nodiscard]] bool round_known() const { return assigned_.has_value(); }
    [[nodiscard]] Instant connect_deadline() const;
    [[nodiscard]] Instant owed_until() const;
    /// When the silence of the daemon is reported while workers run.
    [[nodiscard]] Instant missed_at() const { return fencing_.silent_since(heard_until_) + config_.lease; }
    [[nodiscard]] Instant decision_due() const {
        return held_back_since_ ? fencing_.lost_at(*held_back_since_) : no_deadline;
    }
    /// A daemon that stops answering times out sooner than one that has not started yet.
    [[nodiscard]] Instant lost_while_joining_at() const {
        return ever_received_ ? fencing_.lost_at(std::max(heard_until_, joining_since_)) : no_deadline;
    }
    /// A node that can send but not receive is dropped 1.1 lease after its last message, which may leave up to one
    /// interval after the cut; a round without it still starts within 1.2 lease. To keep that bound, the next ping
    /// waits until TCP has noticed the missing acknowledgement: its probe leaves after 0.2 s and two round trips, and
    /// its timeout takes as long again. Not with slow answers: there, new data helps TCP to detect a loss.
    [[nodiscard]] Instant ping_due() const {
        return pinged_at_ + (!ping_answered_ && answers_are_quick() ? config_.lease * 3 / 20 : heartbeat_pace());
    }
    /// As the daemon has told for this round. Before that, as it will tell for the largest round of the job: all its
    /// nodes may wait at once.
    [[nodiscard]] Duration heartbeat_pace() const {
        return assigned_ ? native::bounded_heartbeat(config_.lease, Duration{1ms} * assigned_->heartbeat_ms)
                         : native::heartbeat_pace(config_.lease, join_.terms.nodes_max);
    }
    [[nodiscard]] bool answers_are_quick() const { return round_trip_ * 2 < config_.lease / 20; }
    /// True when an answer is overdue: messages that can wait are not sent.
    [[nodiscard]] bool answer_is_overdue(Instant now) const {
        return !ping_answered_ && answers_are_quick() && now >= pinged_at_ + config_.lease / 40;
    }
    /// With other daemons to try, one that never answered is abandoned sooner. A follower that is behind may name a
    /// daemon that is gone once more, when the next leader already answers: with running workers, the quarter of a
    /// lease that remains to find it (fencing.h) must not be spent there. Its first message gives it the quarter.
    [[nodiscard]] Instant link_stale_at() const {
        if (!has_choice() || link_answered_) return link_received_at_ + config_.lease / 2;
        const bool was_silent = fencing_.watching() && silent_.contains(describe(endpoint()));
        return link_received_at_ + config_.lease / (was_silent ? 8 : 4);
    }

    ClientConfig config_;
    Outputs out_;
    Membership membership_ = Membership::idle;

    // what is sent, and repeated after a reconnect
    native::Join join_;
    native::Join as_joined_;  ///< The join that assigned_ answered.
    bool join_held_ = false;  ///< Not sent yet: a promise to a peer binds until promised_until_.
    std::optional<native::Assigned> assigned_;
    bool succeeded_ = false;
    std::vector<Failure> failures_;  ///< Failures of this round until the daemon has ended it.
    std::optional<native::RoundReport> report_;
    std::optional<std::string> leave_;
    bool leave_sent_ = false;
    struct Asked {
        native::Command command;
        Instant at;
    };
    std::vector<Asked> commands_;  ///< not yet answered
    bool end_known_ = false;       ///< JobEnded was delivered
    bool acknowledged_ = false;
    bool final_ = false;  ///< the round's end was announced as the last
    Instant drained_at_;

    // the connection
    /// A connection without answers, which stays in use while the next one is tried.
    struct Kept {
        std::size_t endpoint_at = 0;
        std::optional<Endpoint> named_leader;
    };

    Link link_ = Link::none;
    std::size_t key_at_ = 0;                ///< 0: config_.key, then config_.older_keys
    std::optional<Kept> kept_;              ///< beside it link_ is `none` or `connecting`
    bool has_older_ = false;                ///< until DropOlder
    std::size_t endpoint_at_ = 0;           ///< 0: config_.endpoint, then config_.others
    std::optional<Endpoint> named_leader_;  ///< the leader, according to a daemon or etcd
    std::optional<Endpoint> last_leader_;   ///< whose answers counted last
    /// The daemons that did not answer, nor have since. Each is skipped until then: the others name the lost leader
    /// until another one is elected. That one may have been silent too, so a peer's word, or a new name, counts more.
    std::map<std::string, Instant> silent_;
    Instant attempted_at_;
    std::uint32_t connection_count_ = 0;
    std::uint32_t uncounted_ = 0;  ///< Attempts at daemons that do not lead, before any message of one that does.
    Instant retry_at_ = Instant::min();
    Duration backoff_;
    Instant opened_at_;
    Instant link_received_at_;          ///< when something was received on this connection, or it was opened
    bool link_answered_ = false;        ///< True after a message of the daemon on this connection.
    native::StateStalled early_stall_;  ///< Before anything else: of a leader, or why a daemon cannot become it.
    native::Hello hello_;               ///< Hello of this connection.
    std::string nonce_;                 ///< The daemon's nonce on this connection.
    bool trusted_ = true;               ///< The daemon has proved that it knows the secret, or there is none.
    std::uint64_t ping_sequence_ = 0;
    bool ping_answered_ = false;                 ///< the last one
    Duration round_trip_ = Duration::max() / 2;  ///< Round trip of the last answered ping.
    Instant pinged_at_ = Instant::min();
    std::optional<Instant> refused_since_;  ///< A connect met somebody with another key, and none since the daemon.
    std::string tried_;
    std::string store_;  ///< description of the PyTorch store that closes our connections; empty: none known
    /// Until the first Pong of this connection: reports carry times, and this may be another daemon with another clock.
    bool reports_held_ = false;

    // the daemon
    bool ever_received_ = false;
    Instant heard_until_;  ///< When the last message was sent that the daemon is known to have received.
    std::optional<Instant> missed_since_;  ///< Silence of more than a lease while workers run, already reported.
    ClockOffset offset_;
    Fencing fencing_;
    PeerProof peer_proof_;
    std::map<std::uint64_t, native::PeerAsk> asked_;  ///< Questions under way, by their numbers.
    Instant promised_until_ = Instant::min();
    /// Since when the daemon holds back a decision for this node. The lost timeout applies.
    std::optional<Instant> held_back_since_;

    // the wait
    Instant joining_since_;  ///< Or since when a spare has received nothing.
    bool parked_ = false;    ///< A spare. It may wait without a limit.
    WaitingLines lines_;
    Instant settled_at_ = Instant::min();
    Instant due_ = no_deadline;  ///< deadline() then.
};

}  // namespace muster::rendezvous
