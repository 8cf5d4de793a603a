// What a GradientReducer remembers from step to step, for a checkpoint.
#include <cstring>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/reducer/reducer_body.h"

namespace muster::runtime {

namespace {

constexpr std::int64_t version = 1;

/// The numbers at the beginning: version, step, whether new buckets are due, caps (3), parameters, rare parameters.
/// Then follow the order, the history of use, and what rank 0 has learned of the order.
constexpr std::size_t fixed_count = 8;

std::optional<std::vector<std::int64_t>> numbers_of(const std::string& text) {
    std::vector<std::int64_t> numbers;
    for (const auto& word : split(text, ' ')) {
        numbers.emplace_back();
        if (!parse_number(word, numbers.back())) return std::nullopt;
    }
    return numbers;
}

}  // namespace

void ReducerBody::keep(ReducerState& to) const {
    std::vector<std::int64_t> numbers = {version,
                                         static_cast<std::int64_t>(step_),
                                         new_buckets_due_ ? 1 : 0,
                                         static_cast<std::int64_t>(caps_.first_bytes),
                                         static_cast<std::int64_t>(caps_.cap_bytes),
                                         static_cast<std::int64_t>(caps_.last_bytes),
                                         static_cast<std::int64_t>(parameters_.size()),
                                         static_cast<std::int64_t>(order_.rare_count)};
    const auto add = [&numbers](const auto& more) { numbers.insert(numbers.end(), more.begin(), more.end()); };
    add(order_.parameters);
    add(usage_.state());
    if (learner_) add(learner_->state());
    std::vector<std::string> words;
    for (const auto number : numbers) words.push_back(cat(number));
    to.plan = muster::join(words, " ");
    to.own.clear();
    exchange_->keep(to.own);
    if (to.own.empty()) return;
    const auto hash = std::as_bytes(std::span(&plan_.hash, 1));
    to.own.insert(to.own.end(), hash.begin(), hash.end());
}

Result<void> ReducerBody::restore(const ReducerState& from) {
    MUSTER_TRY(check_outside());
    if (!failure_) return failure_.error();
    const auto refuse = [](std::string_view why) {
        return Error{Errc::invalid_argument, cat("a gradient reducer's saved state ", why)};
    };
    if (step_ != 0 || in_pass_) return refuse("must be given before the first step");
    if (from.plan.empty()) return {};
    const auto numbers = numbers_of(from.plan);
    const auto count = parameters_.size();
    if (!numbers || numbers->size() < fixed_count || numbers->front() != version) return refuse("does not read");
    if ((*numbers)[6] != static_cast<std::int64_t>(count) || numbers->size() < fixed_count + 4 * count) {
        return refuse(cat("is of ", (*numbers)[6], " parameters, and there are ", count));
    }
    const std::span all(*numbers);
    auto order = order_of(all.subspan(fixed_count, count), all[7]);
    if (!order || all[1] < 0 || all[3] < 0 || all[4] < 1 || all[5] < 0 ||
        !usage_.restore(all.subspan(fixed_count + count, 3 * count)))
        return refuse("is damaged");
    const auto learned = all.subspan(fixed_count + 4 * count);
    caps_.first_bytes = static_cast<std::size_t>(all[3]);
    caps_.cap_bytes = static_cast<std::size_t>(all[4]);
    caps_.last_bytes = static_cast<std::size_t>(all[5]);
    if (learner_) {
        learner_ = std::make_unique<OrderLearner>(parameters_, caps_);
        if (!learned.empty() && !learner_->restore(learned)) return refuse("has a damaged order");
    }
    if (auto taken = take_order(std::move(*order)); !taken) return fail(with_context(taken.error(), "saved buckets"));
    step_ = static_cast<std::uint64_t>(all[1]);
    first_step_ = step_;
    // A world of one learns no order and has none to keep.
    new_buckets_due_ = all[2] != 0 && options_.order == BucketOrder::observed;
    if (from.own.empty()) return {};
    std::uint64_t hash = 0;
    if (from.own.size() < sizeof hash) return refuse("is cut short");
    const auto residuals = std::span(from.own).first(from.own.size() - sizeof hash);
    std::memcpy(&hash, residuals.data() + residuals.size(), sizeof hash);
    if (hash == plan_.hash && exchange_->restore(residuals)) return {};
    return refuse(
        cat("is not of wire ", exchange_->name(), " with these parameters; start with the wire it was made with"));
}

}  // namespace muster::runtime
