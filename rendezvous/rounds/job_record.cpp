#include "rendezvous/rounds/job_record.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/job_record_rules.h"
#include "rendezvous/rounds/terms.h"
#include "rendezvous/wire/native/field_codec.h"

namespace muster::rendezvous {

// Beside their types, where the visitors look for them.
static void fields(auto& v, native::Is<RankRange> auto& m) {
    v.number(m.first);
    v.number(m.last);
}

static void fields(auto& v, native::Is<FailureGroups::Kept> auto& m) {
    v.sentence(m.key);
    v.choice(m.kind, FailureKind::communication_error);
    v.sentence(m.error);
    v.number(m.error_rank);
    v.number(m.count);
    v.list(m.ranges, RankRanges::pieces_max);
}

static void fields(auto& v, native::Is<ActivityLedger::Kept> auto& m) {
    v.name(m.host);
    v.part(m.first);
    v.number(m.count);
    v.list(m.ranges, RankRanges::pieces_max);
}

namespace {

enum class Kind : std::uint8_t { job = 1, member = 2, failures = 3, complete = 4, groups = 5 };

constexpr const char* complete_key = "complete";

/// Failures are known by name so that a report that comes again counts nothing. Nodes that have reported are marked as
/// such, so all that may come again after a restart is the first news of those that have not: so many are enough.
constexpr std::size_t fingerprints_max = 1'000;

/// Of restarts within a window, the newest.
constexpr std::size_t charges_max = 10'000;
/// More than GoodputLedger::kept has.
constexpr std::size_t goodput_numbers_max = 32;

/// A list element of one number.
template <class T>
struct Number {
    T value{};
};
struct GoneRow {
    std::uint32_t group_rank = 0;
    LostNode node;
};

/// What of a round lies in `job/<name>`.
struct RoundRow {
    native::RoundEnded end;  ///< its number, and how it ended where it has
    bool ended = false;
    std::uint32_t node_count = 0;
    std::vector<GoneRow> gone;
    std::vector<Number<std::uint32_t>> through_gone;
    TaughtRound taught;
    bool gave_up = false;
    bool left = false;
    bool drained = false;
    bool settled_budget = false;
    std::uint64_t failure_count = 0;
    std::vector<Number<std::uint64_t>> known_failures;
    std::uint32_t stopped_count = 0;
    std::int64_t checkpoint_step = -1;
    std::vector<std::string> notes;
    std::string final_why;
    std::string secret_salt;
    std::string secret_mark;
};

struct PastFailure {
    std::string host;
    Round round = 0;
};

struct JobRow {
    JobFacts facts;
    std::vector<Number<std::int64_t>> charges_at_ns;
    std::vector<PastFailure> past_failures;
    std::vector<Number<std::int64_t>> goodput;
    RoundRow round;
};

struct MemberRow {
    std::string job;
    Member member;
    std::vector<Number<Round>> first_cause_of;
};

struct FailuresRow {
    std::string job;
    std::vector<Failure> kept;
};

struct GroupsRow {
    std::string job;
    std::vector<FailureGroups::Kept> groups;
    std::vector<ActivityLedger::Kept> activities;
};

template <class M, class T>
concept Is = native::Is<M, T>;

template <class M>
concept IsNumber = requires(M m) {
    m.value;
};

void fields(auto& v, IsNumber auto& m) {
    v.number(m.value);
}
void fields(auto& v, Is<GoneRow> auto& m) {
    v.number(m.group_rank);
    v.sentence(m.node.who);
    v.number(m.node.incarnation);
}
void fields(auto& v, Is<PastFailure> auto& m) {
    v.name(m.host);
    v.number(m.round);
}

void fields(auto& v, Is<RoundRow> auto& m) {
    v.part(m.end);
    v.flag(m.ended);
    v.number(m.node_count);
    v.list(m.gone, native::peers_max);
    v.list(m.through_gone, native::peers_max);
    v.flag(m.taught.agreed);
    v.number(m.taught.claim_count);
    v.number(m.taught.dissent_count);
    v.number(m.taught.restarts_used);
    v.flag(m.gave_up);
    v.flag(m.left);
    v.flag(m.drained);
    v.flag(m.settled_budget);
    v.number(m.failure_count);
    v.list(m.known_failures, fingerprints_max);
    v.number(m.stopped_count);
    v.number(m.checkpoint_step);
    v.sentences(m.notes, native::notes_max);
    v.sentence(m.final_why);
    v.bytes(m.secret_salt, native::challenge_bytes_max);
    v.bytes(m.secret_mark, native::challenge_bytes_max);
}

void fields(auto& v, Is<JobRow> auto& m) {
    auto& facts = m.facts;
    v.name(facts.id);
    v.part(facts.terms);
    v.sentence(facts.terms_by);
    v.number(facts.next_arrival);
    v.number(facts.next_round);
    v.number(facts.restarts_used);
    v.list(m.charges_at_ns, charges_max);
    v.number(facts.round_ended_at_ns);
    v.number(facts.parted_at_ns);
    v.number(facts.checkpoint_step);
    v.number(facts.restarts_stalled);
    v.list(m.past_failures, node_failures_of_max);
    v.flag(facts.unsure);
    v.flag(facts.taught);
    v.flag(facts.short_of_nodes);
    v.flag(facts.left);
    v.optional(facts.ending);
    v.number(facts.ended_at_ns);
    v.names(facts.ended_on, native::peers_max);
    v.names(facts.former_hosts, former_hosts_max);
    v.number(facts.noticed_at_ns);
    v.sentence(facts.notice_why);
    v.list(m.goodput, goodput_numbers_max);
    v.part(m.round);
}

void fields(auto& v, Is<MemberRow> auto& m) {
    v.name(m.job);
    v.part(m.member.node);
    v.list(m.member.versions, native::versions_max);
    v.part(m.member.join);
    v.sentence(m.member.peer);
    v.flag(m.member.newly_started);
    v.number(m.member.arrival);
    v.number(m.member.connection_number);
    v.choice(m.member.place, Place::lost);
    v.number(m.member.round);
    v.number(m.member.group_rank);
    v.number(m.member.rank_base);
    v.flag(m.member.workers_gone);
    v.flag(m.member.reported);
    v.flag(m.member.sealed);
    v.list(m.first_cause_of, node_failures_of_max);
    v.flag(m.member.excluded);
    v.choice(m.member.health, Health::ignored);
    v.flag(m.member.noticed);
    v.flag(m.member.leaving);
    v.sentence(m.member.leave_reason);
}

void fields(auto& v, Is<FailuresRow> auto& m) {
    v.name(m.job);
    v.list(m.kept, FailureLedger::kept_per_kind_max * 4);
}

void fields(auto& v, Is<GroupsRow> auto& m) {
    v.name(m.job);
    v.list(m.groups, FailureGroups::kept_max);
    v.list(m.activities, ActivityLedger::groups_max);
}

template <class Row>
std::string encode(Kind kind, const Row& row) {
    std::string out;
    ByteWriter header(out);
    header.number(record_version);
    header.number(static_cast<std::uint8_t>(kind));
    native::Encoder(out).part(row);
    return out;
}

/// False when the bytes are not exactly one such row.
template <class Row>
bool decode(std::string_view bytes, Row& row) {
    native::Decoder decoder(bytes);
    decoder.part(row);
    return decoder.accepted();
}

SealedRound from_row(RoundRow row, std::vector<Failure> failures, GroupsRow groups) {
    SealedRound round;
    round.number = row.end.round;
    round.reason = row.end.reason;
    round.final = row.end.final;
    round.why = std::move(row.end.why);
    round.ended = row.ended;
    round.node_count = row.node_count;
    for (auto& node : row.gone) round.gone.emplace(node.group_rank, std::move(node.node));
    round.gave_up = row.gave_up;
    for (const auto& rank : row.through_gone) round.through_gone.insert(rank.value);
    round.through = round.through_gone;
    round.taught = row.taught;
    round.left = row.left;
    round.drained = row.drained;
    round.settled_budget = row.settled_budget;
    std::set<std::uint64_t> known;
    for (const auto& fingerprint : row.known_failures) known.insert(fingerprint.value);
    round.failures = FailureLedger(std::move(failures), std::move(known), row.failure_count,
                                   FailureGroups(std::move(groups.groups)));
    round.activities = ActivityLedger(std::move(groups.activities));
    round.stopped_count = row.stopped_count;
    round.checkpoint_step = row.checkpoint_step;
    round.notes = std::move(row.notes);
    round.final_why = std::move(row.final_why);
    round.secret.salt = std::move(row.secret_salt);
    round.secret.mark = std::move(row.secret_mark);
    return round;
}

/// Collects the rows of all jobs, then makes wholes of them.
class Collector {
  public:
    /// False when the record is none of this version's.
    bool take(const Record& record) {
        ByteReader header(record.value);
        const auto version = header.number<std::uint8_t>();
        const auto kind = header.number<std::uint8_t>();
        if (!header.ok() || version != record_version) return false;
        const auto rest = std::string_view(record.value).substr(2);
        switch (static_cast<Kind>(kind)) {
            case Kind::job: return take_job(record.key, rest);
            case Kind::member: return take_member(record.key, rest);
            case Kind::failures: return take_failures(record.key, rest);
            case Kind::groups: return take_groups(record.key, rest);
            case Kind::complete: state_.complete = true; return record.key == complete_key && rest.empty();
        }
        return false;
    }

    Result<KeptState> finish() {
        for (auto& [id, row] : rows_) {
            KeptJob job{
                std::move(row.facts),
                from_row(std::move(row.round), std::exchange(failures_[id], {}), std::exchange(groups_[id], {})),
                std::exchange(members_[id], {})};
            for (const auto& member : job.members) {
                job.facts.next_arrival = std::max(job.facts.next_arrival, member.arrival + 1);
                if (member.place == Place::succeeded) job.round.through.insert(member.group_rank);
            }
            if (const auto why = impossible_in(job); !why.empty())
                return Error{Errc::bad_frame, cat("the records of job '", id, "' are invalid: ", why)};
            job.round.unfinished = job.round.node_count - static_cast<std::uint32_t>(job.round.through.size());
            state_.jobs.push_back(std::move(job));
        }
        const auto lacks_job = [this](const auto& part) { return !rows_.contains(part.first); };
        if (std::ranges::any_of(members_, lacks_job) || std::ranges::any_of(failures_, lacks_job) ||
            std::ranges::any_of(groups_, lacks_job))
            return Error{Errc::bad_frame, "there are records of a job without the job's own record"};
        return std::move(state_);
    }

  private:
    bool take_job(const std::string& key, std::string_view rest) {
        JobRow row;
        if (!decode(rest, row) || row.facts.id.empty() || key != job_key(row.facts.id)) return false;
        for (const auto& charge : row.charges_at_ns) row.facts.charges_at_ns.push_back(charge.value);
        for (const auto& number : row.goodput) row.facts.goodput.push_back(number.value);
        auto& pasts = row.facts.pasts;
        for (const auto& failed : row.past_failures) {
            if (pasts.empty() || pasts.back().host != failed.host) pasts.push_back({failed.host, {}});
            pasts.back().first_cause_of.push_back(failed.round);
        }
        const auto id = row.facts.id;
        rows_[id] = std::move(row);
        return true;
    }
    bool take_member(const std::string& key, std::string_view rest) {
        MemberRow row;
        if (!decode(rest, row) || key != member_key(row.job, row.member.node.incarnation)) return false;
        for (const auto& failed : row.first_cause_of) row.member.first_cause_of.push_back(failed.value);
        members_[row.job].push_back(std::move(row.member));
        return true;
    }
    bool take_failures(const std::string& key, std::string_view rest) {
        FailuresRow row;
        if (!decode(rest, row) || key != failures_key(row.job)) return false;
        failures_[row.job] = std::move(row.kept);
        return true;
    }

    bool take_groups(const std::string& key, std::string_view rest) {
        GroupsRow row;
        if (!decode(rest, row) || key != groups_key(row.job)) return false;
        const auto id = row.job;
        groups_[id] = std::move(row);
        return true;
    }

    std::map<std::string, JobRow> rows_;
    std::map<std::string, std::vector<Member>> members_;
    std::map<std::string, std::vector<Failure>> failures_;
    std::map<std::string, GroupsRow> groups_;
    KeptState state_;
};

}  // namespace

std::string job_key(const std::string& job) {
    return cat("job/", job);
}

std::string member_key(const std::string& job, Incarnation incarnation) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::array<char, 16> text{};
    for (auto place = text.rbegin(); place != text.rend(); ++place, incarnation >>= 4)
        *place = digits[incarnation & 15];
    return cat("member/", std::string_view(text.data(), text.size()), "/", job);
}

std::string failures_key(const std::string& job) {
    return cat("failures/", job);
}

std::string groups_key(const std::string& job) {
    return cat("groups/", job);
}

Record complete_record() {
    return {complete_key, std::string{static_cast<char>(record_version), static_cast<char>(Kind::complete)}};
}

std::string encode_job(const JobFacts& facts, const SealedRound& round) {
    JobRow row{facts,
               {},
               {},
               {},
               {.end = {round.number, round.reason, round.final, round.why},
                .ended = round.ended,
                .node_count = round.node_count,
                .gone = {},
                .through_gone = {},
                .taught = round.taught,
                .gave_up = round.gave_up,
                .left = round.left,
                .drained = round.drained,
                .settled_budget = round.settled_budget,
                .failure_count = round.failures.count(),
                .known_failures = {},
                .stopped_count = round.stopped_count,
                .checkpoint_step = round.checkpoint_step,
                .notes = round.notes,
                .final_why = round.final_why,
                .secret_salt = round.secret.salt,
                .secret_mark = round.secret.mark}};
    for (const auto number : facts.goodput) row.goodput.push_back({number});
    const auto& charges = facts.charges_at_ns;
    for (auto at = charges.size() > charges_max ? charges.size() - charges_max : 0; at < charges.size(); ++at)
        row.charges_at_ns.push_back({charges[at]});
    for (const auto& past : facts.pasts)
        for (const auto failed : past.first_cause_of)
            if (row.past_failures.size() < node_failures_of_max) row.past_failures.push_back({past.host, failed});
    for (const auto& [group_rank, node] : round.gone) row.round.gone.push_back({group_rank, node});
    for (const auto rank : round.through_gone) row.round.through_gone.push_back({rank});
    for (const auto fingerprint : round.failures.known()) {
        if (row.round.known_failures.size() == fingerprints_max) break;
        row.round.known_failures.push_back({fingerprint});
    }
    return encode(Kind::job, row);
}

std::string encode_member(const std::string& job, const Member& member) {
    MemberRow row{job, member, {}};
    for (const auto round : member.first_cause_of) row.first_cause_of.push_back({round});
    return encode(Kind::member, row);
}

std::string encode_failures(const std::string& job, const FailureLedger& failures) {
    return encode(Kind::failures, FailuresRow{job, failures.kept()});
}

std::string encode_groups(const std::string& job, const SealedRound& round) {
    return encode(Kind::groups, GroupsRow{job, round.failures.kept_groups(), round.activities.kept()});
}

Result<KeptState> decode_state(const std::vector<Record>& records) {
    Collector collector;
    for (const auto& record : records)
        if (!collector.take(record))
            return Error{Errc::bad_frame, cat("the record ", record.key, " is damaged or of another version")};
    return collector.finish();
}

}  // namespace muster::rendezvous
