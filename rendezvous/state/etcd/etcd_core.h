// One daemon's part in a leader election over etcd, and the records that the leader keeps there. Pure: answers and
// writes in, requests and facts out. ETCD.md describes the keys and the reasons.
//
// Every input records a fact and ends in settle(), which derives what is due. At most one request of each kind is in
// flight. The driver answers every request, with an error after its timeout.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "rendezvous/rounds/server.h"
#include "rendezvous/state/etcd/etcd_protocol.h"

namespace muster::rendezvous {

struct EtcdConfig {
    std::string prefix = "muster/";
    std::string self;                ///< this daemon's endpoint for agents, "gpu07:29400"; no blanks
    bool is_of_one_job = false;      ///< remove the prefix at the end when nothing is kept below it
    bool candidate = true;           ///< false: only follows the leader
    std::string user;                ///< etcd user; empty: none
    std::string password;            ///< password of `user`
    std::size_t endpoint_count = 1;  ///< number of etcd members; a failure moves on to the next
    std::int64_t ttl_s = 1;          ///< TTL of the leader's lease; etcd grants at least 1.5 election timeouts
    Duration campaign_interval = 200ms;
    Duration retry_interval = 50ms;               ///< backoff after a failure
    Duration login_interval = 2s;                 ///< backoff after a wrong password, whose check is slow in etcd
    std::size_t operations_max = 100;             ///< per transaction; etcd's own default limit is 128
    std::size_t transaction_bytes_max = 1 << 20;  ///< before base64; etcd's own default limit is 1.5 MiB
};

// ---- outputs ----
struct SendToEtcd {
    std::uint64_t id = 0;
    std::size_t endpoint = 0;
    EtcdRequest request;
    Duration timeout;
    std::string token;  ///< authentication token; empty: none
};
/// This daemon is the leader from now on, and continues from these records.
struct Lead {
    std::vector<Record> records;
};
/// This daemon is a follower from now on. It may only refer agents to the leader.
struct StandBy {
    std::string leader;  ///< the leader's endpoint for agents; empty: unknown
};
struct Kept {
    std::uint64_t sequence = 0;  ///< this step and all before it
};
/// etcd refuses all writes, because its database is full. Repeated until one succeeds.
struct Failing {
    std::string why;
};
/// A line for the log.
struct LogNote {
    std::string line;
};
using EtcdOutput = std::variant<SendToEtcd, Lead, StandBy, Kept, Failing, LogNote>;

class EtcdCore {
  public:
    using Outputs = std::vector<EtcdOutput>;

    explicit EtcdCore(EtcdConfig config);

    Outputs start(Instant now) { return settle(now); }
    /// Writes a step of the leader. Ignored when this daemon is no longer the leader.
    Outputs write(std::uint64_t sequence, std::vector<Record> records, Instant now);
    /// These records of Lead are unusable: moves them below aside_key(), for inspection, before any other write.
    Outputs set_aside(const std::vector<Record>& records, Instant now);
    /// `PREFIX/aside/<fence>/`, different for each leader.
    [[nodiscard]] std::string aside_key() const;
    /// The key in etcd of a record.
    [[nodiscard]] std::string state_key(std::string_view record) const;
    Outputs answered(std::uint64_t id, const Result<EtcdAnswer>& answer, Instant now);
    Outputs tick(Instant now) { return settle(now); }
    /// An orderly stop: writes the queued steps, then gives up the leadership so that another daemon can take over.
    Outputs resign(Instant now);
    /// The records are no longer needed: a leader deletes them when it resigns.
    void sweep_at_end() { sweeps_ = true; }
    /// True when it has resigned and no request is open.
    [[nodiscard]] bool resigned() const { return resigned_; }

    [[nodiscard]] Instant deadline() const;
    /// The end of this daemon's leadership by its own clock; Instant::min() if it is not the leader.
    [[nodiscard]] Instant leads_until() const { return role_ == Role::leads ? lease_until_ : Instant::min(); }

  private:
    enum class Role { follows, loads, leads };
    enum class Kind { login, lease, campaign, load, write };

    struct Question {
        std::uint64_t id = 0;
        EtcdRequest request;
        Instant sent_at;
        std::string token;
    };
    struct Errand {
        std::optional<Question> open;
        Instant not_before = Instant::min();
    };
    using Operation = std::variant<Put, Erase>;
    /// A transaction to send, and the step that it completes (0: none).
    struct Due {
        std::vector<Operation> operations;
        std::uint64_t keeps = 0;
    };
    struct Step {
        std::uint64_t sequence = 0;
        std::vector<Record> records;
    };

    Outputs settle(Instant now);
    void expire(Instant now);
    void settle_end(Instant now);
    void settle_login(Instant now);
    void settle_lease(Instant now);
    void settle_campaign(Instant now);
    void settle_load(Instant now);
    void settle_write(Instant now);
    void ask(Kind kind, EtcdRequest request, Duration timeout, Instant now);
    void failed(Kind kind, const Question& question, const Error& error, Instant now);
    void log_error(Kind kind, const Error& error);
    void answered_again(Kind kind);
    void note_full(const Error& error);
    void note_room();
    [[nodiscard]] bool may_ask() const { return config_.user.empty() || no_users_ || !token_.empty(); }
    void on_leader(const KeysReply& told, Instant now);
    void on_lease(const LeaseReply& told, const Question& question);
    void on_campaign(const TransactionReply& told, Instant now);
    void on_page(const KeysReply& told, Instant now);
    void on_written(const TransactionReply& told, Instant now);
    void won(std::int64_t fence);
    void loaded(Instant now);
    void written(std::int64_t revision);
    void step_down(std::string why, Instant now);
    void follow(std::string leader);
    void plan(std::map<std::string, std::string> changes, std::uint64_t sequence);
    void plan_end_of_batch();
    void plan_pieces(const std::map<std::string, std::string>& changes, const std::string& below);
    [[nodiscard]] std::string key(std::string_view name) const { return config_.prefix + std::string(name); }
    [[nodiscard]] std::string batch_key(std::size_t part) const;
    [[nodiscard]] std::string leader_value() const;
    [[nodiscard]] std::string serial_value(std::uint64_t number) const;
    Errand& errand(Kind kind) { return errands_[static_cast<std::size_t>(kind)]; }

    EtcdConfig config_;
    Outputs out_;
    Role role_ = Role::follows;
    Errand errands_[5];
    std::uint64_t last_id_ = 0;
    std::size_t endpoint_ = 0;
    std::set<std::pair<Kind, std::string>> complaints_;  ///< logged since a request of that kind was last answered

    std::string full_why_;  ///< etcd refuses writes; empty: it does not

    std::string token_;
    bool no_users_ = false;  ///< etcd has authentication disabled

    std::int64_t lease_ = 0;
    Duration ttl_{};
    Instant lease_until_ = Instant::min();  ///< by this clock, with a margin: etcd's lease lasts longer
    bool vacant_ = false;                   ///< there was no leader at the last read
    std::optional<std::string> known_leader_;

    std::int64_t fence_ = 0;
    std::int64_t page_keys_ = 0;  ///< fewer after each failure
    std::string load_from_;       ///< first key of the next page
    std::int64_t load_revision_ = 0;
    std::vector<EtcdKeyValue> pages_;

    std::uint64_t load_count_ = 0;  ///< one fence may see several terms of leadership
    std::uint64_t serial_ = 0;
    std::int64_t serial_revision_ = 0;
    std::deque<Step> waiting_;
    std::deque<Due> due_;
    std::set<std::string> kept_;  ///< keys of the records that exist once `due_` is written
    bool sweeps_ = false;
    bool resigning_ = false;
    bool resigned_ = false;
};

}  // namespace muster::rendezvous
