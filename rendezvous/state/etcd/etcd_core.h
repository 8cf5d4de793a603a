// One daemon's part in an election over etcd, and what the leader keeps there. Pure: answers and writes in, questions
// and facts out. ETCD.md has the keys and the reasons.
//
// Every input notes a fact and ends in settle(), which derives what is due. At most one question of each kind is on its
// way; the driver answers every question, with a failure where its time-out passes.
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
    std::string self;                ///< where agents find this daemon, "gpu07:29400"; no blanks
    bool is_of_one_job = false;      ///< the prefix is removed at the end, where nothing is kept below it any more
    bool candidate = true;           ///< false: it only wants to know who leads
    std::string user;                ///< of etcd; empty: it has no users
    std::string password;            ///< of `user`
    std::size_t endpoint_count = 1;  ///< etcd members to ask; after a failure the next one
    std::int64_t ttl_s = 1;          ///< of the leader's lease; etcd grants no less than 1.5 of its election time-outs
    Duration campaign_interval = 200ms;
    Duration retry_interval = 50ms;               ///< after a failure
    Duration login_interval = 2s;                 ///< after a wrong password: etcd takes its time to find that out
    std::size_t operations_max = 100;             ///< of one transaction; etcd's own default limit is 128
    std::size_t transaction_bytes_max = 1 << 20;  ///< before base64; etcd's own default limit is 1.5 MiB
};

// ---- what it wants done ----
struct AskEtcd {
    std::uint64_t id = 0;
    std::size_t endpoint = 0;
    EtcdRequest request;
    Duration timeout;
    std::string token;  ///< of whoever asks; empty: none
};
/// From now on this daemon leads, and goes on from these records.
struct Lead {
    std::vector<Record> records;
};
/// It does not lead (any more); another one may be known that does. Nothing may be told to agents from now on but that.
struct StandBy {
    std::string leader;  ///< where agents find it; empty: not known
};
struct Kept {
    std::uint64_t sequence = 0;  ///< this step and all before it
};
/// For the log.
struct Remark {
    std::string line;
};
using EtcdOutput = std::variant<AskEtcd, Lead, StandBy, Kept, Remark>;

class EtcdCore {
  public:
    using Outputs = std::vector<EtcdOutput>;

    explicit EtcdCore(EtcdConfig config);

    Outputs start(Instant now) { return settle(now); }
    /// Of the leader; ignored once it does not lead, because its steps count for nothing then.
    Outputs write(std::uint64_t sequence, std::vector<Record> records, Instant now);
    /// The state that Lead came with, these records, is of no use: before anything else is written it is moved to where
    /// nobody reads it but people (aside_key).
    Outputs set_aside(const std::vector<Record>& records, Instant now);
    /// Below it they lie, `PREFIX/aside/<fence>/`; each leader has its own.
    [[nodiscard]] std::string aside_key() const;
    Outputs answered(std::uint64_t id, const Result<EtcdAnswer>& answer, Instant now);
    Outputs tick(Instant now) { return settle(now); }
    /// The daemon ends in order: what was given to be kept is written, and then another one may lead at once.
    Outputs resign(Instant now);
    /// What is kept below the prefix is of no use any more: where this one leads, it goes when it resigns.
    void sweep_at_end() { sweeps_ = true; }
    /// It has resigned, and nothing more will be asked.
    [[nodiscard]] bool resigned() const { return resigned_; }

    [[nodiscard]] Instant deadline() const;
    /// Until then, by its own clock, this daemon may speak as the leader; Instant::min() where it does not lead.
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
    /// One transaction to come, and the step that counts as kept with it (0: none).
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
    void complain(Kind kind, const Error& error);
    void answered_again(Kind kind);
    [[nodiscard]] bool may_ask() const { return config_.user.empty() || no_users_ || !token_.empty(); }
    void on_leader(const KeysTold& told, Instant now);
    void on_lease(const LeaseTold& told, const Question& question);
    void on_campaign(const TransactionTold& told, Instant now);
    void on_page(const KeysTold& told, Instant now);
    void on_written(const TransactionTold& told, Instant now);
    void won(std::int64_t fence);
    void loaded(Instant now);
    void written(std::int64_t revision);
    void step_down(std::string why, Instant now);
    void follow(std::string leader);
    void plan(std::map<std::string, std::string> changes, std::uint64_t sequence);
    void plan_end_of_batch();
    void plan_pieces(const std::map<std::string, std::string>& changes, const std::string& below);
    [[nodiscard]] std::string key(std::string_view name) const { return config_.prefix + std::string(name); }
    [[nodiscard]] std::string state_key(std::string_view record) const;
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
    std::set<std::pair<Kind, std::string>> complaints_;  ///< since a question of that kind was last answered

    std::string token_;
    bool no_users_ = false;  ///< it was asked for a token, and gives none

    std::int64_t lease_ = 0;
    Duration ttl_{};
    Instant lease_until_ = Instant::min();  ///< by this clock, with a margin: etcd's lasts longer
    bool vacant_ = false;                   ///< nobody led when it was last looked
    std::optional<std::string> known_leader_;

    std::int64_t fence_ = 0;
    std::string load_from_;  ///< the first key of the next page
    std::int64_t load_revision_ = 0;
    std::vector<KeyTold> pages_;

    std::uint64_t load_count_ = 0;  ///< it may lead again under the same fence
    std::uint64_t serial_ = 0;
    std::int64_t serial_revision_ = 0;
    std::deque<Step> waiting_;
    std::deque<Due> due_;
    std::set<std::string> kept_;  ///< the records that are there when all this is written
    bool sweeps_ = false;
    bool resigning_ = false;
    bool resigned_ = false;
};

}  // namespace muster::rendezvous
