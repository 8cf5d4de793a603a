#include "worker_runtime/nccl/nccl_news.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/text.h"

namespace muster::runtime {

namespace {

/// Ranks that wait ask the store for news so often; more of them, less often, so that a stuck world of thousands asks a
/// few thousand times a second.
Duration interval_for(int size) {
    return std::max<Duration>(200ms, size * 500us);
}
/// For a question about what is there or not.
constexpr Duration probe_timeout = 20ms;
/// Ranks of one deadline say where they are at about the same moment.
constexpr Duration witness_delay = 150ms;

Instant soon(Duration delay) {
    return std::chrono::steady_clock::now() + delay;
}

}  // namespace

NcclNews::NcclNews(GroupTerms group, std::vector<NcclRank> ranks)
    : group_(std::move(group)), ranks_(std::move(ranks)), interval_(interval_for(group_.size)) {}

Result<std::shared_ptr<NcclNews>> NcclNews::start(const GroupTerms& group, std::vector<NcclRank> ranks) {
    std::shared_ptr<NcclNews> news(new NcclNews(group, std::move(ranks)));
    if (!group.place) return news;
    auto told = group.place->publish(news->rank_key(group.rank), news->progress_.encode(), soon(group.meeting_timeout));
    if (!told) return with_context(told.error(), news->here());
    return news;
}

std::string NcclNews::here() const {
    return cat("communicator ", group_.id, ", ", who(group_.rank));
}

std::string NcclNews::rank_key(int rank) const {
    return cat(group_.id, "/nccl/rank/", rank);
}

std::string NcclNews::failure_key() const {
    return cat(group_.id, "/nccl/failure");
}

void NcclNews::begin(std::uint64_t number, std::string what) {
    const std::lock_guard lock(mutex_);
    progress_ = {.number = number, .what = std::move(what)};
    told_ = false;
}

void NcclNews::tell(const NcclProgress& progress) {
    // A store that is gone is the agents' business; nothing can be told then.
    [[maybe_unused]] const auto told =
        group_.place->publish(rank_key(group_.rank), progress.encode(), soon(probe_timeout));
}

Result<void> NcclNews::look(Instant began) {
    if (!group_.place) return {};
    const Instant now = std::chrono::steady_clock::now();
    if (now - began < interval_) return {};
    const std::lock_guard lock(mutex_);
    if (now < next_look_) return {};
    next_look_ = now + interval_;
    if (!std::exchange(told_, true)) tell(progress_);
    if (const auto failure = told_failure()) return Error{Errc::peer_closed, cat(here(), ": ", *failure)};
    return {};
}

std::optional<std::string> NcclNews::told_failure() const {
    auto failure = group_.place->collect({failure_key()}, soon(probe_timeout));
    if (!failure) return std::nullopt;
    return std::move(failure->front());
}

void NcclNews::tell_failure(const std::string& why) {
    if (!group_.place) return;
    if (told_failure()) return;
    [[maybe_unused]] const auto told =
        group_.place->publish(failure_key(), cat(who(group_.rank), " says: ", why), soon(probe_timeout));
}

void NcclNews::tell_left() {
    if (!group_.place) return;
    const std::lock_guard lock(mutex_);
    progress_.left = true;
    tell(progress_);
}

Result<std::vector<NcclProgress>> NcclNews::all_progress() const {
    std::vector<std::string> keys;
    for (int rank = 0; rank < group_.size; ++rank) keys.push_back(rank_key(rank));
    auto texts = group_.place->collect(keys, soon(1s));
    if (!texts) return texts.error();
    std::vector<NcclProgress> all;
    for (const auto& text : *texts) {
        auto progress = NcclProgress::decode(text);
        if (!progress) return progress.error();
        all.push_back(std::move(*progress));
    }
    return all;
}

std::optional<std::string> NcclNews::explain_end(int rank) const {
    const auto text = group_.place->collect({rank_key(rank)}, soon(probe_timeout));
    const auto progress = text ? NcclProgress::decode(text->front()) : Result<NcclProgress>(text.error());
    if (progress && progress->left) return std::nullopt;
    if (auto failure = told_failure()) return failure;
    return cat(who(rank), " died");
}

std::string NcclNews::explain_missing() {
    if (!group_.place) return "there is no other rank: the GPU stands still";
    {
        const std::lock_guard lock(mutex_);
        if (!std::exchange(told_, true)) tell(progress_);
    }
    // What comes meanwhile is looked at all the same: nobody has published this key, so this is a wait with a limit.
    [[maybe_unused]] const auto failure = group_.place->collect({failure_key()}, soon(witness_delay));
    if (failure) return failure->front();
    const auto all = all_progress();
    if (!all) return cat("the store does not say who is missing: ", all.error().context);
    return explain(ranks_, *all, group_.rank);
}

}  // namespace muster::runtime
