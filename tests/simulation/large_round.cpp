#include "tests/simulation/large_round.h"

#include <algorithm>

#include "rendezvous/base/text/text.h"
#include "rendezvous/client/core/clock_offset.h"

namespace muster::simulation {

namespace {

constexpr Duration before = 2s;           ///< the daemon answers for so long
constexpr Duration resent_after = 200ms;  ///< TCP's shortest retransmission timeout

native::Join next_join() {
    native::Join join;
    join.last_round = 0;
    return join;
}

}  // namespace

LargeRoundSetting large_round_of(std::uint64_t seed) {
    Random random(seed);
    LargeRoundSetting setting{.seed = seed};
    setting.size = static_cast<std::uint32_t>(random.between(1000, 1500));
    setting.heartbeat = random.between(Duration{250ms}, Duration{450ms});
    setting.cost = random.between(Duration{5us}, Duration{100us});
    setting.away = random.between(Duration{6s}, Duration{12s});
    if (random.chance(500)) {
        setting.latency_min = 5ms;
        setting.latency_max = 16ms;
    }
    if (random.chance(500)) setting.lost_permille = 1;
    if (random.chance(300)) setting.resent_permille = static_cast<std::uint32_t>(random.between(1, 200));
    if (random.chance(500)) setting.refusing_permille = static_cast<std::uint32_t>(random.between(1, 60));
    if (random.chance(500)) {
        setting.cut_permille = static_cast<std::uint32_t>(random.between(1, 970));
        setting.suspended_permille = static_cast<std::uint32_t>(random.between(0, 500));
    }
    return setting;
}

std::string broken_by(const LargeRoundResult& result) {
    if (result.alive_at_seal_count > 0)
        return cat("S8: ", result.alive_at_seal_count, " members that are cut off have workers at the next seal");
    if (result.ended_early_count > 0 && result.has_ways)
        return cat("S9: ", result.ended_early_count, " members ended their workers because the daemon was away");
    if (result.ended_early_count < result.size && !result.has_ways)
        return cat("S8: ", result.size - result.ended_early_count, " members kept their workers without a word of all");
    if (!result.sealed) return "L1: the next round was not sealed";
    return {};
}

LargeRound::LargeRound(LargeRoundSetting setting) : setting_(setting), random_(setting.seed) {
    for (std::uint32_t i = 0; i < setting_.size; ++i) {
        auto& member =
            *members_.emplace_back(std::make_unique<Member>(events_, [this, i] { give(i, rendezvous::TimePassed{}); }));
        rendezvous::ClientConfig config;
        config.endpoint = {"daemon", 1};
        config.job = "job";
        config.node = {cat("n", i), 1, i + 1};
        config.lease = setting_.lease;
        config.lost_timeout = setting_.lease * 12;
        config.fan_out = setting_.fan_out;
        member.core = std::make_unique<rendezvous::ClientCore>(std::move(config));
        member.offset = random_.between(Duration{0}, Duration{3600s});
        member.is_cut = random_.chance(setting_.cut_permille);
        member.refuses = i > 0 && random_.chance(setting_.refusing_permille);
        const auto pace = native::bounded_heartbeat(setting_.lease, setting_.heartbeat);
        events_.after(random_.between(Duration{0}, pace), [this, i] { settle_in(i); });
    }
    random_.pick(members_)->is_cut = false;  // a round needs somebody
}

LargeRoundResult LargeRound::run() {
    const auto run_until = [this](Moment until) {
        bool over = false;
        events_.at(until, [&] { over = true; });
        while (!over && events_.run_one()) {
        }
    };
    run_until(before);
    is_away_ = true;
    run_until(before + setting_.away);
    for (const auto& member : members_) result_.ended_early_count += !is_alive(*member);
    daemon_returns();
    const auto all_joined = [this] {
        return std::ranges::all_of(members_, [](const auto& one) { return one->is_cut || one->joined; });
    };
    for (auto until = events_.now(); !all_joined() && until < before + setting_.away + 5 * setting_.lease;)
        run_until(until += setting_.lease / 100);
    result_.sealed = all_joined();
    result_.has_ways = has_ways();
    result_.size = setting_.size;
    for (const auto& member : members_) {
        result_.alive_at_seal_count += member->is_cut && is_alive(*member);
        result_.busiest = std::max(result_.busiest, member->busy);
    }
    return result_;
}

bool LargeRound::is_alive(const Member& member) const {
    return !member.killed && events_.now() < member.fed_at + setting_.lease * 8 / 10;
}

bool LargeRound::hears_daemon(const Member& member) const {
    return !is_away_ || (has_returned_ && !member.is_cut);
}

bool LargeRound::reaches(const Member& from, const Member& to) const {
    return !has_returned_ || from.is_cut == to.is_cut;
}

native::Peers LargeRound::place_of(std::uint32_t index) const {
    native::Peers peers{.round = 0, .place = {index, setting_.size, setting_.fan_out}, .above = {}};
    for (auto at = index; at > 0 && peers.above.size() < native::peers_above_max;) {
        at = peers.place.parent_of(at);
        peers.above.push_back({at, "n", 1});
    }
    return peers;
}

bool LargeRound::has_ways() const {
    for (std::uint32_t i = 1; i < setting_.size; ++i) {
        const auto above = place_of(i).above;
        if (std::ranges::all_of(above, [this](const auto& one) { return members_[one.group_rank]->refuses; }))
            return false;
    }
    return true;
}

void LargeRound::settle_in(std::uint32_t index) {
    auto& member = *members_[index];
    carry_out(index, member.core->join({}, local(member)));
    give(index, rendezvous::ConnectionOpened{"daemon"});
    native::Assigned assigned;
    assigned.round = 0;
    assigned.group_rank = index;
    assigned.group_world_size = setting_.size;
    assigned.heartbeat_ms = static_cast<std::uint32_t>(setting_.heartbeat / 1ms);
    give(index, rendezvous::MessageReceived{native::Pong{member.pinged.sequence, member.pinged.sent_ns, 1}});
    give(index, rendezvous::MessageReceived{assigned});
    give(index, rendezvous::MessageReceived{place_of(index)});
    feed(index);
}

void LargeRound::feed(std::uint32_t index) {
    auto& member = *members_[index];
    if (member.suspended || member.killed) return;
    if (member.core->may_feed(local(member))) member.fed_at = events_.now();
    events_.after(setting_.lease / 10, [this, index] { feed(index); });
}

void LargeRound::give(std::uint32_t index, const rendezvous::ClientInput& input) {
    auto& member = *members_[index];
    if (!member.suspended) carry_out(index, member.core->step(input, local(member)));
}

void LargeRound::carry_out(std::uint32_t index, const std::vector<rendezvous::ClientOutput>& outputs) {
    auto& member = *members_[index];
    for (const auto& output : outputs) {
        if (const auto* send = std::get_if<rendezvous::Send>(&output)) said(index, send->message);
        if (const auto* query = std::get_if<rendezvous::QueryPeer>(&output)) ask(index, *query);
        // A stopped daemon's host accepts connections.
        if (std::holds_alternative<rendezvous::Connect>(output) && !(has_returned_ && member.is_cut))
            events_.after(latency(), [this, index] { give(index, rendezvous::ConnectionOpened{"daemon"}); });
        if (std::holds_alternative<rendezvous::Fenced>(output)) {
            member.killed = true;
            events_.after(1ms, [this, index] {
                auto& fenced = *members_[index];
                carry_out(index, fenced.core->round_report({.round = 0, .failures = {}}, local(fenced)));
                carry_out(index, fenced.core->join(next_join(), local(fenced)));
            });
        }
    }
    const auto due = member.core->deadline();
    member.alarm.set(due == no_deadline ? never : due - Instant(1h + member.offset));
}

void LargeRound::said(std::uint32_t index, const native::Message& message) {
    auto& member = *members_[index];
    const auto* join = std::get_if<native::Join>(&message);
    if (join != nullptr && join->last_round == 0 && hears_daemon(member)) member.joined = true;
    const auto* ping = std::get_if<native::Ping>(&message);
    if (ping == nullptr) return;
    member.pinged = *ping;
    if (setting_.bug == TreeBug::skips_heartbeats && (index + ++member.ping_count) % 4 != 0) return;
    if (!hears_daemon(member)) return;
    const bool is_lost = setting_.resent_permille > 0 && random_.chance(setting_.resent_permille);
    const auto late = is_lost ? resent_after : Duration{0};
    events_.after(2 * latency() + late, [this, index, pong = native::Pong{ping->sequence, ping->sent_ns, 1}] {
        if (hears_daemon(*members_[index])) give(index, rendezvous::MessageReceived{pong});
    });
}

void LargeRound::handle(std::uint32_t index, EventQueue::Happening what) {
    auto& member = *members_[index];
    member.busy += setting_.cost;
    member.busy_until = std::max(member.busy_until, events_.now()) + setting_.cost;
    events_.at(member.busy_until, std::move(what));
}

void LargeRound::ask(std::uint32_t index, const rendezvous::QueryPeer& query) {
    ++result_.question_count;
    auto question = query.ask;
    const auto to = question.group_rank;
    const auto& place = place_of(index);
    if (to != place.above.front().group_rank) ++result_.stepped_over_count;
    if (setting_.bug == TreeBug::vouches_for_silent) question.covered = ~std::uint32_t{0};
    if (setting_.bug == TreeBug::forgets_ages) question.age_ns = 0;
    const auto open = std::make_shared<bool>(true);
    events_.after(query.timeout, [this, index, open, number = question.number] {
        answer(index, open, {.number = number, .answer = std::nullopt});
    });
    if (random_.chance(setting_.lost_permille)) return;
    if (members_[to]->refuses) {
        events_.after(2 * latency(), [this, index, open, number = question.number] {
            answer(index, open, {.number = number, .answer = std::nullopt});
        });
        return;
    }
    // The connection takes a round trip.
    events_.after(latency() + latency() + latency(), [this, index, to, question = std::move(question), open] {
        if (reaches(*members_[index], *members_[to]))
            handle(to, [this, index, to, question, open] { asked(index, to, question, open); });
    });
}

void LargeRound::asked(std::uint32_t from, std::uint32_t to, const native::PeerAsk& question,
                       std::shared_ptr<bool> open) {
    auto& member = *members_[to];
    if (member.suspended) return;
    if (setting_.bug == TreeBug::skips_parents) speak_for_parent(member, to, question);
    auto said = member.core->answer(question, local(member));
    give(to, rendezvous::TimePassed{});
    if (!said) return;
    if (setting_.bug == TreeBug::forgets_ages && said->all_age_ns > 0) said->all_age_ns = 0;
    events_.after(latency(), [this, from, to, open = std::move(open), number = question.number, said] {
        if (!reaches(*members_[to], *members_[from])) return;
        handle(from, [this, from, open, number, said] { answer(from, open, {.number = number, .answer = said}); });
    });
}

void LargeRound::speak_for_parent(Member& member, std::uint32_t to, const native::PeerAsk& question) {
    const auto place = place_of(to).place;
    const auto parent = place.parent_of(question.asker);
    if (parent == to) return;
    auto spoken = question;
    spoken.asker = parent;
    spoken.covered = 0;
    spoken.age_ns = spoken.held_ns = 0;
    // The first one gets an answer, which the second one echoes.
    spoken.echo = 0;
    member.core->answer(spoken, local(member));
    spoken.echo = spoken.number;
    member.core->answer(spoken, local(member));
}

void LargeRound::answer(std::uint32_t index, std::shared_ptr<bool> open, rendezvous::PeerAnswered answered) {
    if (std::exchange(*open, false)) give(index, answered);
}

void LargeRound::daemon_returns() {
    has_returned_ = true;
    for (std::uint32_t i = 0; i < setting_.size; ++i) {
        auto& member = *members_[i];
        if (member.is_cut) {
            if (random_.chance(setting_.suspended_permille))
                events_.after(random_.between(Duration{0}, setting_.lease / 2),
                              [this, i] { members_[i]->suspended = true; });
            continue;
        }
        // It answers the ping that was unread, and has ended the round long ago.
        events_.after(random_.between(Duration{0}, Duration{50ms}), [this, i] {
            auto& heard = *members_[i];
            give(i, rendezvous::MessageReceived{native::Pong{heard.pinged.sequence, heard.pinged.sent_ns, 1}});
            give(i, rendezvous::MessageReceived{
                        native::RoundEnded{0, native::RoundEndReason::node_lost, false, "a node is lost"}});
            heard.killed = true;
            carry_out(i, heard.core->round_report({.round = 0, .failures = {}}, local(heard)));
            carry_out(i, heard.core->join(next_join(), local(heard)));
        });
    }
}

}  // namespace muster::simulation
