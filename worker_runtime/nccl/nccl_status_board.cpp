#include "worker_runtime/nccl/nccl_status_board.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

/// The interval at which waiting ranks ask the store. It grows with the world, so that thousands of stuck ranks send a
/// few thousand requests per second.
Duration interval_for(int size) {
    return std::max<Duration>(200ms, size * 500us);
}
/// For a query whether a key exists.
constexpr Duration probe_timeout = 20ms;
/// The number of turns of compare() after the last operation: neighbours may be behind, or need an answer.
constexpr int quiet_age_max = 5;
/// The number of turns in which a neighbour must publish the operation that differs.
constexpr int dispute_age_max = 5;
/// Ranks with the same deadline publish their progress at about the same time.
constexpr Duration witness_delay = 150ms;
/// The end of a process that uses a GPU takes long between its connections' end and its own: the driver frees what it
/// had.
constexpr Duration cause_wait = 3s;

Instant soon(Duration delay) {
    return std::chrono::steady_clock::now() + delay;
}

/// The status of a rank: its progress, the marks of its operations, and its operations where a neighbour differs.
struct RankStatus {
    std::string_view progress;
    std::string_view marks;
    std::string_view dispute;
};

RankStatus parse_rank_status(std::string_view text) {
    const auto lines = split(text, '\n');
    if (lines.size() != 3) return {.progress = text, .marks = {}, .dispute = {}};
    return {.progress = lines[0], .marks = lines[1], .dispute = lines[2]};
}

Result<NcclProgress> progress_in(const std::string& text) {
    return NcclProgress::decode(std::string(parse_rank_status(text).progress));
}

}  // namespace

NcclStatusBoard::NcclStatusBoard(GroupTerms group, std::vector<NcclRank> ranks)
    : group_(std::move(group)), ranks_(std::move(ranks)), interval_(interval_for(group_.size)) {}

Result<std::shared_ptr<NcclStatusBoard>> NcclStatusBoard::start(const GroupTerms& group, std::vector<NcclRank> ranks) {
    std::shared_ptr<NcclStatusBoard> news(new NcclStatusBoard(group, std::move(ranks)));
    if (!group.place) return news;
    auto told = group.place->publish(news->rank_key(group.rank), news->own_text(), soon(group.meeting_timeout));
    if (!told) return with_context(told.error(), news->here());
    return news;
}

std::string NcclStatusBoard::here() const {
    return cat("communicator ", group_.id, ", ", who(group_.rank));
}

std::string NcclStatusBoard::rank_key(int rank) const {
    return cat(group_.id, "/nccl/rank/", rank);
}

std::string NcclStatusBoard::failure_key() const {
    return cat(group_.id, "/nccl/failure");
}

std::uint64_t NcclStatusBoard::begin(const OperationSignature& signature) {
    const std::lock_guard lock(mutex_);
    order_.add(signature);
    told_ = false;
    return order_.count();
}

std::string NcclStatusBoard::own_text() const {
    const NcclProgress progress{.number = order_.count(),
                                .what = order_.count() > 0 ? description_of(order_.last()) : std::string(),
                                .left = left_};
    return cat(progress.encode(), "\n", encode(order_.marks()), "\n", dispute_);
}

void NcclStatusBoard::tell() {
    const std::lock_guard telling(publish_mutex_);
    std::string text;
    {
        const std::lock_guard lock(mutex_);
        told_ = true;
        text = own_text();
    }
    // An unreachable store is handled by the agents, so an error is ignored here.
    [[maybe_unused]] const auto told = group_.place->publish(rank_key(group_.rank), text, soon(probe_timeout));
}

void NcclStatusBoard::publish_status() {
    {
        const std::lock_guard lock(mutex_);
        if (told_) return;
    }
    tell();
}

Result<void> NcclStatusBoard::check_alive(Instant began) {
    if (!group_.place) return {};
    const Instant now = std::chrono::steady_clock::now();
    if (now - began < interval_) return {};
    {
        const std::lock_guard lock(mutex_);
        if (now < next_check_) return {};
        next_check_ = now + interval_;
    }
    publish_status();
    if (const auto failure = published_failure()) return Error{Errc::peer_closed, cat(here(), ": ", *failure)};
    return {};
}

std::optional<std::string> NcclStatusBoard::published_failure() const {
    auto failure = group_.place->collect({failure_key()}, soon(probe_timeout));
    if (!failure) return std::nullopt;
    return std::move(failure->front());
}

void NcclStatusBoard::publish_failure(const std::string& why) {
    if (!group_.place) return;
    if (published_failure()) return;
    [[maybe_unused]] const auto told =
        group_.place->publish(failure_key(), cat(who(group_.rank), " says: ", why), soon(probe_timeout));
}

void NcclStatusBoard::publish_left() {
    if (!group_.place) return;
    {
        const std::lock_guard lock(mutex_);
        left_ = true;
    }
    tell();
}

Result<std::vector<NcclProgress>> NcclStatusBoard::all_progress() const {
    std::vector<std::string> keys;
    for (int rank = 0; rank < group_.size; ++rank) keys.push_back(rank_key(rank));
    auto texts = MUSTER_TRY(group_.place->collect(keys, soon(1s)));
    std::vector<NcclProgress> all;
    for (const auto& text : texts) {
        all.push_back(MUSTER_TRY(progress_in(text)));
    }
    return all;
}

std::optional<std::string> NcclStatusBoard::explain_end(int rank) const {
    const auto text = group_.place->collect({rank_key(rank)}, soon(probe_timeout));
    const auto progress = text ? progress_in(text->front()) : Result<NcclProgress>(text.error());
    if (progress && progress->left) return std::nullopt;
    if (auto failure = published_failure()) return failure;
    return cat(who(rank), " died");
}

Error NcclStatusBoard::cause_of(const Error& reported) const {
    if (reported.code != Errc::peer_closed || !group_.place) return reported;
    // With a parent it asks again and again. Else it would keep the store's connection to itself, and the thread that
    // sees a peer's end could not tell it.
    const auto others_turn = std::make_shared<ParentGroup>([] { return Result<void>(); }, group_.size);
    const auto failure = group_.place->collect({failure_key()}, {soon(cause_wait), others_turn});
    return failure ? Error{Errc::peer_closed, cat(here(), ": ", failure->front())} : reported;
}

std::string NcclStatusBoard::explain_missing() {
    if (!group_.place) return "there is no other rank: the GPU makes no progress";
    publish_status();
    // Waits for other ranks to publish their status. The key does not exist yet, so only a failure ends this early.
    [[maybe_unused]] const auto failure = group_.place->collect({failure_key()}, soon(witness_delay));
    if (failure) return failure->front();
    const auto all = all_progress();
    if (!all) return cat("cannot read from the store which ranks are missing: ", all.error().context);
    return explain(ranks_, *all, group_.rank);
}

bool NcclStatusBoard::is_unchanged() {
    const std::lock_guard lock(mutex_);
    quiet_age_ = order_.count() == compared_count_ ? quiet_age_ + 1 : 0;
    compared_count_ = order_.count();
    return quiet_age_ > quiet_age_max && !found_;
}

Result<void> NcclStatusBoard::compare() {
    if (!group_.place || is_unchanged()) return {};
    publish_status();
    if (found_) {
        if (auto failure = published_failure()) return Error{Errc::peer_closed, cat(here(), ": ", *failure)};
    }
    std::vector<int> neighbours;
    std::vector<std::string> keys;
    for (const int rank : {group_.rank - 1, group_.rank + 1}) {
        if (rank < 0 || rank >= group_.size) continue;
        neighbours.push_back(rank);
        keys.push_back(rank_key(rank));
    }
    const auto texts = group_.place->collect(keys, soon(probe_timeout));
    if (!texts) return {};
    for (std::size_t i = 0; i < texts->size(); ++i) {
        if (auto same = compare_with(neighbours[i], (*texts)[i]); !same) return same;
    }
    if (!found_ || ++found_age_ <= dispute_age_max) return {};
    // A neighbour that has waited in one operation for long no longer compares; its progress names that operation.
    {
        const std::lock_guard lock(mutex_);
        if (const auto difference = order_.find(found_in_)) return differ(found_with_, *difference);
    }
    return Error{Errc::invalid_argument,
                 cat(here(), ": ranks differ in an operation from ", found_->agreed + 1, " to ", found_->differs, ": ",
                     who(group_.rank), " and ", who(found_with_), " did not run the same")};
}

/// The hashes show that there is a difference; the text of the rank that found it names the operation.
Result<void> NcclStatusBoard::compare_with(int rank, std::string_view text) {
    const auto news = parse_rank_status(text);
    const auto marks = decode_marks(news.marks);
    if (!marks) return {};
    {
        const std::lock_guard lock(mutex_);
        if (const auto difference = order_.find(news.dispute)) return differ(rank, *difference);
        if (found_) return {};
        found_ = order_.compare(*marks);
        if (!found_) return {};
        found_with_ = rank;
        if (const auto seen = NcclProgress::decode(std::string(news.progress))) {
            found_in_ = cat(seen->number, "=", seen->what);
        }
        dispute_ = order_.dispute_text(*found_);
    }
    tell();
    return {};
}

Error NcclStatusBoard::differ(int rank, const OrderDifference& difference) const {
    const std::string own = cat(who(group_.rank), " runs ", difference.own);
    const std::string theirs = cat(who(rank), " runs ", difference.theirs);
    return {Errc::invalid_argument, cat(here(), ": ranks differ in operation ", difference.number, ": ",
                                        rank < group_.rank ? theirs : own, ", ", rank < group_.rank ? own : theirs)};
}

}  // namespace muster::runtime
