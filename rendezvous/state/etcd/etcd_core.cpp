#include "rendezvous/state/etcd/etcd_core.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/job_record.h"

namespace muster::rendezvous {

namespace {

constexpr Duration answer_timeout = 1s;
constexpr std::int64_t page_keys_max = 200;

}  // namespace

EtcdCore::EtcdCore(EtcdConfig config) : config_(std::move(config)), ttl_(std::chrono::seconds(config_.ttl_s)) {
    MUSTER_CHECK(config_.endpoint_count > 0 && config_.self.find(' ') == std::string::npos, config_.self);
}

// ---- names ----

/// Contains the lease, so that a repeated campaign whose first answer was lost is recognised as won.
std::string EtcdCore::leader_value() const {
    return cat(config_.self, ' ', lease_);
}

/// Unique per write, so that a late duplicate is recognised.
std::string EtcdCore::serial_value(std::uint64_t number) const {
    return cat(fence_, '/', load_count_, '/', number);
}

// ---- inputs ----

EtcdCore::Outputs EtcdCore::write(std::uint64_t sequence, std::vector<Record> records, Instant now) {
    expire(now);
    if (role_ == Role::leads) waiting_.push_back({sequence, std::move(records)});
    return settle(now);
}

EtcdCore::Outputs EtcdCore::answered(std::uint64_t id, const Result<EtcdAnswer>& answer, Instant now) {
    expire(now);
    const auto found =
        std::ranges::find_if(errands_, [id](const Errand& errand) { return errand.open && errand.open->id == id; });
    if (found == std::end(errands_)) return settle(now);  // a request of an earlier role
    const auto kind = static_cast<Kind>(found - std::begin(errands_));
    const auto question = *std::exchange(found->open, std::nullopt);
    if (!answer) {
        failed(kind, question, answer.error(), now);
        return settle(now);
    }
    answered_again(kind);
    // A full etcd refuses these two, and the transaction also where its condition does not hold.
    if (std::holds_alternative<GrantLease>(question.request) || std::holds_alternative<Transaction>(question.request))
        note_room();
    // The codec guarantees that the answer's type matches the request.
    switch (kind) {
        case Kind::login: token_ = std::get<TokenReply>(*answer).token; break;
        case Kind::lease: on_lease(std::get<LeaseReply>(*answer), question); break;
        case Kind::campaign:
            if (const auto* told = std::get_if<KeysReply>(&*answer))
                on_leader(*told, now);
            else
                on_campaign(std::get<TransactionReply>(*answer), now);
            break;
        case Kind::load: on_page(std::get<KeysReply>(*answer), now); break;
        case Kind::write: on_written(std::get<TransactionReply>(*answer), now); break;
    }
    return settle(now);
}

EtcdCore::Outputs EtcdCore::resign(Instant now) {
    resigning_ = true;
    return settle(now);
}

/// The last leader of a job deletes all keys, the leader key included. The lease expires by itself.
void EtcdCore::settle_end(Instant now) {
    const bool leads = role_ == Role::leads;
    const bool busy = leads && !(due_.empty() && waiting_.empty() && !errand(Kind::write).open);
    if (!resigning_ || busy) return;
    resigned_ = true;
    const bool empty = kept_.empty() || (kept_.size() == 1 && kept_.contains(complete_record().key));
    if (leads && (sweeps_ || (config_.is_of_one_job && empty))) {
        Transaction sweep;
        sweep.compare = {{key("leader"), Compare::Target::created, fence_}};
        // Everything except the records that were set aside.
        const auto aside = key("aside/");
        sweep.then = {Erase{config_.prefix, aside}, Erase{range_end(aside), range_end(config_.prefix)}};
        out_.push_back(SendToEtcd{++last_id_, endpoint_, std::move(sweep), answer_timeout, token_});
    } else if (lease_ != 0) {
        out_.push_back(SendToEtcd{++last_id_, endpoint_, RevokeLease{lease_}, answer_timeout, token_});
    }
    lease_ = 0;
    step_down("it ends", now);
}

void EtcdCore::ask(Kind kind, EtcdRequest request, Duration timeout, Instant now) {
    auto& errand = this->errand(kind);
    auto token = kind == Kind::login ? std::string{} : token_;
    errand.open = Question{++last_id_, request, now, token};
    out_.push_back(SendToEtcd{last_id_, endpoint_, std::move(request), timeout, std::move(token)});
}

void EtcdCore::failed(Kind kind, const Question& question, const Error& error, Instant now) {
    errand(kind).not_before = now + config_.retry_interval;
    // The revision may have been compacted: start again. Or the page was too large for one answer or its time: records
    // of failures may have a megabyte each.
    if (kind == Kind::load) {
        page_keys_ = std::max<std::int64_t>(page_keys_ / 4, 1);
        load_from_ = config_.prefix;
        load_revision_ = 0;
        pages_.clear();
    }
    if (kind == Kind::login && error.code == Errc::unsupported) {
        no_users_ = true;
        out_.push_back(LogNote{cat("etcd has authentication disabled; the user ", config_.user, " is ignored")});
    } else if (error.code == Errc::permission_denied && !config_.user.empty()) {
        // Each etcd member forgets a token that was unused for some minutes, and all tokens at a restart.
        no_users_ = false;
        if (token_ == question.token) token_.clear();
        if (kind == Kind::login) log_error(kind, error);
    } else {
        if (error.code == Errc::limit_exceeded)
            note_full(error);
        else
            log_error(kind, error);
        // A refusal will repeat, so wait longer.
        if (kind == Kind::login || error.code == Errc::permission_denied)
            errand(kind).not_before = now + config_.login_interval;
        else if (error.code == Errc::refused || error.code == Errc::limit_exceeded)
            errand(kind).not_before = now + config_.campaign_interval;
        endpoint_ = (endpoint_ + 1) % config_.endpoint_count;
    }
}

/// Logs each failure once until a request of this kind is answered again. Unreachability is logged once for all kinds.
void EtcdCore::log_error(Kind kind, const Error& error) {
    constexpr std::size_t complaints_max = 8;
    const bool unreached =
        error.code == Errc::unreachable || error.code == Errc::timed_out || error.code == Errc::peer_closed;
    if (complaints_.size() >= complaints_max) return;
    const std::pair what(unreached ? Kind::lease : kind, unreached ? std::string{} : error.context);
    if (!complaints_.insert(what).second) return;
    std::string line = cat("etcd: ", error.context);
    if (error.context.find("permission denied") != std::string::npos)
        line += cat("; grant ", config_.user.empty() ? "access without a user" : cat("the user ", config_.user),
                    " permission to read and write the keys below ", config_.prefix);
    out_.push_back(LogNote{std::move(line)});
}

void EtcdCore::answered_again(Kind kind) {
    if (complaints_.empty()) return;
    std::erase_if(complaints_, [kind](const auto& one) { return one.first == kind || one.second.empty(); });
    if (complaints_.empty()) out_.push_back(LogNote{"etcd answers again"});
}

/// One text for all members, because agents are told each change of it.
void EtcdCore::note_full(const Error& error) {
    if (full_why_.empty()) {
        full_why_ = error.context;
        out_.push_back(LogNote{cat(full_why_, "; running rounds continue, but no decision is made until it has room")});
    }
    out_.push_back(Failing{full_why_});
}

/// A follower is told the leader again, which ends its stall; that of a leader ends with the write.
void EtcdCore::note_room() {
    if (std::exchange(full_why_, {}).empty()) return;
    out_.push_back(LogNote{"etcd accepts writes again"});
    known_leader_.reset();
}

// ---- what is due ----

/// Runs first: an answer that arrives after the lease's end does not renew it.
void EtcdCore::expire(Instant now) {
    if (lease_ == 0 || now < lease_until_) return;
    lease_ = 0;
    errand(Kind::lease) = {};
    step_down("its lease in etcd could not be renewed", now);
}

EtcdCore::Outputs EtcdCore::settle(Instant now) {
    if (!resigned_) expire(now);
    if (!resigned_) settle_end(now);
    if (resigned_) return std::exchange(out_, {});
    settle_login(now);
    settle_lease(now);
    settle_campaign(now);
    settle_load(now);
    settle_write(now);
    return std::exchange(out_, {});
}

void EtcdCore::settle_login(Instant now) {
    const auto& errand = this->errand(Kind::login);
    if (may_ask() || errand.open || now < errand.not_before) return;
    ask(Kind::login, Authenticate{config_.user, config_.password}, answer_timeout, now);
}

void EtcdCore::settle_lease(Instant now) {
    const auto& errand = this->errand(Kind::lease);
    if (!config_.candidate || !may_ask() || errand.open || now < errand.not_before) return;
    // Short enough to retry at another member.
    const auto timeout = std::min<Duration>(answer_timeout, ttl_ / 4);
    if (lease_ == 0)
        ask(Kind::lease, GrantLease{config_.ttl_s}, answer_timeout, now);
    else
        ask(Kind::lease, KeepLease{lease_}, timeout, now);
}

/// A follower only reads, which is cheap for etcd, and campaigns when there is no leader.
void EtcdCore::settle_campaign(Instant now) {
    const auto& errand = this->errand(Kind::campaign);
    const bool stands_by = role_ == Role::follows && (lease_ != 0 || !config_.candidate);
    if (!stands_by || !may_ask() || errand.open || now < errand.not_before) return;
    if (!vacant_) return ask(Kind::campaign, ReadKeys{key("leader"), {}, 1, 0}, answer_timeout, now);
    Transaction campaign;
    campaign.compare = {{key("leader"), Compare::Target::created, 0}};
    campaign.then = {Put{key("leader"), leader_value(), lease_}};
    campaign.otherwise = {key("leader")};
    ask(Kind::campaign, std::move(campaign), answer_timeout, now);
}

void EtcdCore::settle_load(Instant now) {
    const auto& errand = this->errand(Kind::load);
    if (role_ != Role::loads || !may_ask() || errand.open || now < errand.not_before) return;
    ask(Kind::load, ReadKeys{load_from_, range_end(config_.prefix), page_keys_, load_revision_}, answer_timeout, now);
}

Instant EtcdCore::deadline() const {
    if (resigned_) return no_deadline;
    auto first = lease_ == 0 ? no_deadline : lease_until_;
    const auto consider = [&](Kind kind, bool wanted) {
        const auto& errand = errands_[static_cast<std::size_t>(kind)];
        if (wanted && !errand.open) first = std::min(first, errand.not_before);
    };
    consider(Kind::login, !may_ask());
    if (!may_ask()) return first;
    consider(Kind::lease, config_.candidate);
    consider(Kind::campaign, role_ == Role::follows && (lease_ != 0 || !config_.candidate));
    consider(Kind::load, role_ == Role::loads);
    consider(Kind::write, role_ == Role::leads && !(due_.empty() && waiting_.empty()));
    return first;
}

// ---- lease and election ----

void EtcdCore::on_lease(const LeaseReply& told, const Question& question) {
    if (told.ttl_s <= 0) {
        lease_until_ = Instant::min();  // expired; settle() acts on it
        return;
    }
    lease_ = told.lease;
    ttl_ = std::chrono::seconds(told.ttl_s);
    // Counted from the sending; etcd counts from the receipt, so its lease lasts longer.
    lease_until_ = question.sent_at + ttl_ * 9 / 10;
    errand(Kind::lease).not_before = question.sent_at + ttl_ / 4;
}

void EtcdCore::on_leader(const KeysReply& told, Instant now) {
    vacant_ = told.keys.empty() && config_.candidate;
    if (vacant_) return;  // settle() campaigns at once
    errand(Kind::campaign).not_before = now + config_.campaign_interval;
    if (told.keys.empty()) return follow({});
    const auto& leader = told.keys.front();
    if (lease_ != 0 && leader.value == leader_value()) return won(leader.created);
    follow(leader.value.substr(0, leader.value.find(' ')));
}

void EtcdCore::on_campaign(const TransactionReply& told, Instant now) {
    errand(Kind::campaign).not_before = now + config_.campaign_interval;
    vacant_ = false;
    if (told.succeeded) return won(told.revision);
    const auto& leader = told.read.front();
    if (!leader) return;  // deleted in between
    if (lease_ != 0 && leader->value == leader_value()) return won(leader->created);
    follow(leader->value.substr(0, leader->value.find(' ')));
}

void EtcdCore::won(std::int64_t fence) {
    role_ = Role::loads;
    fence_ = fence;
    page_keys_ = page_keys_max;
    load_from_ = config_.prefix;
    load_revision_ = 0;
    pages_.clear();
    errand(Kind::load) = {};
    errand(Kind::write) = {};
}

void EtcdCore::follow(std::string leader) {
    if (known_leader_ == leader) return;
    known_leader_ = leader;
    out_.push_back(StandBy{std::move(leader)});
}

void EtcdCore::step_down(std::string why, Instant now) {
    errand(Kind::campaign) = {std::nullopt, now};
    errand(Kind::load) = {};
    errand(Kind::write) = {};
    waiting_.clear();
    due_.clear();
    kept_.clear();
    pages_.clear();
    fence_ = 0;
    const auto role = std::exchange(role_, Role::follows);
    if (role == Role::leads && !resigned_) out_.push_back(LogNote{cat("this daemon is no longer the leader: ", why)});
    // The previous leader may not be the leader any more either.
    known_leader_.reset();
    follow({});
}

}  // namespace muster::rendezvous
