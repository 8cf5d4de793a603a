#include "rendezvous/rounds/job_record.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <utility>

#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/job_record_rules.h"
#include "rendezvous/rounds/terms.h"
#include "rendezvous/wire/native/field_codec.h"

namespace muster::rendezvous {

// Beside their types, where the visitors look for them.
static void fields(auto& v, native::Is<FailureGroups::Kept> auto& m) {
    v(m.key);
    v.choice(m.kind, FailureKind::communication_error);
    v(m.error, m.error_rank, m.count);
    v.list(m.ranges, RankRanges::pieces_max);
}

static void fields(auto& v, native::Is<ActivityLedger::Kept> auto& m) {
    v.name(m.host);
    v(m.first, m.count);
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
/// More than GoodputLedger::Kept has.
constexpr std::size_t goodput_numbers_max = 64;

struct GoneRow {
    std::uint32_t group_rank = 0;
    LostNode node;
};

/// What of a round lies in `job/<name>`. `Sealed` is a SealedRound, or a reference to the one that is encoded.
template <class Sealed>
struct RoundRow {
    Sealed sealed{};
    std::vector<GoneRow> gone{};
    std::vector<std::uint32_t> through_gone{};
    std::uint64_t failure_count = 0;
    std::vector<std::uint64_t> known_failures{};
};

struct PastFailure {
    std::string host;
    Round round = 0;
};

template <class Sealed>
struct JobRow {
    JobFacts facts{};
    RoundRow<Sealed> round{};
    std::vector<PastFailure> past_failures{};
};

struct MemberRow {
    std::string job;
    Member member;
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
concept IsRoundRow = Is<M, RoundRow<SealedRound>> || Is<M, RoundRow<const SealedRound&>>;
template <class M>
concept IsJobRow = Is<M, JobRow<SealedRound>> || Is<M, JobRow<const SealedRound&>>;

void fields(auto& v, Is<PastFailure> auto& m) {
    v.name(m.host);
    v(m.round);
}

void fields(auto& v, IsRoundRow auto& m) {
    auto& round = m.sealed;
    v(round.number);
    v.choice(round.reason, native::RoundEndReason::daemon_restarted);
    v(round.final, round.why, round.ended, round.node_count);
    v.list(m.gone, native::peers_max);
    v.list(m.through_gone, native::peers_max);
    v(round.taught.agreed, round.taught.claim_count, round.taught.dissent_count, round.taught.restarts_used,
      round.gave_up, round.left, round.drained, round.settled_budget, m.failure_count);
    v.list(m.known_failures, fingerprints_max);
    v(round.stopped_count, round.checkpoint_step);
    v.list(round.notes, native::notes_max);
    v(round.final_why);
    v.bytes(round.secret.salt, native::challenge_bytes_max);
    v.bytes(round.secret.mark, native::challenge_bytes_max);
}

void fields(auto& v, IsJobRow auto& m) {
    auto& facts = m.facts;
    v.name(facts.id);
    v(facts.terms, facts.terms_by, facts.next_arrival, facts.next_round, facts.restarts_used);
    v.list(facts.charges_at_ns, charges_max);
    v(facts.round_ended_at_ns, facts.parted_at_ns, facts.checkpoint_step, facts.restarts_stalled);
    v.list(m.past_failures, node_failures_of_max);
    v(facts.unsure, facts.taught, facts.short_of_nodes, facts.left, facts.ending, facts.ended_at_ns);
    v.names(facts.ended_on, native::peers_max);
    v.names(facts.former_hosts, former_hosts_max);
    v(facts.noticed_at_ns, facts.notice_why);
    v.list(facts.goodput.numbers, goodput_numbers_max);
    v.names(facts.goodput.sections, sections_max);
    v(m.round);
}

void fields(auto& v, Is<MemberRow> auto& m) {
    v.name(m.job);
    v(m.member.node);
    v.list(m.member.versions, native::versions_max);
    v(m.member.join, m.member.peer, m.member.newly_started, m.member.arrival, m.member.connection_number);
    v.choice(m.member.place, Place::lost);
    v(m.member.round, m.member.group_rank, m.member.rank_base, m.member.workers_gone, m.member.reported,
      m.member.sealed);
    v.list(m.member.first_cause_of, node_failures_of_max);
    v(m.member.excluded);
    v.choice(m.member.health, Health::ignored);
    v(m.member.noticed, m.member.leaving, m.member.leave_reason);
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

std::string encode(Kind kind, const auto& row) {
    std::string out;
    ByteWriter header(out);
    header.number(record_version);
    header.number(static_cast<std::uint8_t>(kind));
    native::Encoder encoder(out);
    encoder(row);
    return out;
}

/// False when the bytes are not exactly one such row.
bool decode(std::string_view bytes, auto& row) {
    native::Decoder decoder(bytes);
    decoder(row);
    return decoder.accepted();
}

SealedRound from_row(RoundRow<SealedRound> row, std::vector<Failure> failures, GroupsRow groups) {
    auto& round = row.sealed;
    for (auto& node : row.gone) round.gone.emplace(node.group_rank, std::move(node.node));
    round.through_gone = {row.through_gone.begin(), row.through_gone.end()};
    round.through = round.through_gone;
    round.failures = FailureLedger(std::move(failures), {row.known_failures.begin(), row.known_failures.end()},
                                   row.failure_count, FailureGroups(std::move(groups.groups)));
    round.activities = ActivityLedger(std::move(groups.activities));
    return std::move(round);
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
        JobRow<SealedRound> row;
        if (!decode(rest, row) || row.facts.id.empty() || key != job_key(row.facts.id)) return false;
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

    std::map<std::string, JobRow<SealedRound>> rows_;
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
    JobRow<const SealedRound&> row{.facts = facts, .round = {.sealed = round}};
    auto& charges = row.facts.charges_at_ns;
    if (charges.size() > charges_max) charges.erase(charges.begin(), charges.end() - charges_max);
    for (const auto& past : facts.pasts)
        for (const auto failed : past.first_cause_of)
            if (row.past_failures.size() < node_failures_of_max) row.past_failures.push_back({past.host, failed});
    for (const auto& [group_rank, node] : round.gone) row.round.gone.push_back({group_rank, node});
    row.round.through_gone = {round.through_gone.begin(), round.through_gone.end()};
    row.round.failure_count = round.failures.count();
    const auto& known = round.failures.known();
    std::copy_n(known.begin(), std::min(known.size(), fingerprints_max), std::back_inserter(row.round.known_failures));
    return encode(Kind::job, row);
}

std::string encode_member(const std::string& job, const Member& member) {
    return encode(Kind::member, MemberRow{job, member});
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
