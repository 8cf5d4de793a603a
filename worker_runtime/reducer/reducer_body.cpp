#include "worker_runtime/reducer/reducer_body.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/arithmetic/gradient_math.h"
#include "worker_runtime/core/step_record.h"

namespace muster::runtime {

Result<Layout> ReducerBody::begin(PassKind kind, float samples) {
    MUSTER_TRY(check_outside());
    if (!failure_) return failure_.error();
    if (in_pass_)
        return in_step({Errc::invalid_argument, "it has begun already: call finish() before the next one begins"});
    if (!(samples >= 0) || std::isinf(samples)) {
        return in_step({Errc::invalid_argument, cat("samples must be a finite number >= 0, not ", samples)});
    }
    Layout layout = Layout::kept;
    if (new_buckets_due_) {
        auto made = make_buckets_anew();
        if (!made) return fail(made.error()).error();
        layout = *made;
    }
    step_range_ = ProfileRange([&] { return cat("muster step ", step_, kind == PassKind::local ? " (local)" : ""); });
    kind_ = kind;
    samples_ = samples;
    if (kind != PassKind::local) {
        for (auto& bucket : arena_.buckets()) {
            bucket.samples = samples;
            bucket.step = step_;
        }
        pipeline_.begin(plan_.hash);
        if (kind == PassKind::synchronised) {
            log_live();
            send_weights();
        }
    }
    behind_events_ = false;
    not_finite_.clear();
    if (device_ && options_.finite_check == FiniteCheck::on) {
        if (auto begun = device_check_.begin_step(); !begun) return fail(begun.error()).error();
    }
    schedule_->begin_pass();
    in_pass_ = true;
    return layout;
}

Result<void> ReducerBody::mark_ready(std::int32_t parameter, void* after) {
    if (auto outside = check_outside(); !outside) [[unlikely]]
        return outside;
    if (!in_pass_.load(std::memory_order_relaxed) || parameter < 0 ||
        static_cast<std::size_t>(parameter) >= parameters_.size()) [[unlikely]] {
        return marked_wrongly(parameter);
    }
    if (after != nullptr) {
        if (auto waits = wait_on_device(after); !waits) return waits;
    }
    switch (schedule_->mark_ready(parameter)) {
        case Marked::noted: return {};
        case Marked::twice: return marked_wrongly(parameter);
        case Marked::bucket_complete: break;
    }
    if (kind_ == PassKind::local) return {};
    const std::lock_guard lock(launching_);
    return launch(schedule_->take_launchable());
}

Result<void> ReducerBody::marked_wrongly(std::int32_t parameter) const {
    // Another thread's launch may have failed meanwhile, which ended the pass.
    const std::lock_guard lock(launching_);
    if (!failure_) return failure_;
    if (parameter < 0 || static_cast<std::size_t>(parameter) >= parameters_.size()) {
        return in_step({Errc::invalid_argument,
                        cat("there is no parameter ", parameter, "; the last one is ", parameters_.size() - 1)});
    }
    const auto& name = parameters_[static_cast<std::size_t>(parameter)].name;
    if (!in_pass_) {
        return in_step({Errc::invalid_argument, cat("parameter \"", name, "\" was marked ready before begin_step()")});
    }
    return in_step({Errc::invalid_argument,
                    cat("parameter \"", name, "\" was marked ready twice on rank ", communicator_.rank(),
                        ": mark it once, when its gradient is complete, even if the model uses it several times")});
}

/// Launches all buckets but the last one of the step, which finish() runs itself.
Result<void> ReducerBody::launch(BucketRange range) {
    if (!failure_) return failure_;
    for (std::size_t b = range.begin; b < range.end; ++b) {
        auto& bucket = arena_.buckets()[b];
        if (auto noted = note_not_finite(bucket); !noted) return fail(noted.error());
        if (device_) {
            if (auto launched = launch_behind_device(bucket); !launched) return fail(launched.error());
            continue;
        }
        const bool last = b + 1 == plan_.regular_count;
        auto launched = pipeline_.launch(bucket, last ? Launch::inline_ : Launch::start);
        if (!launched) return fail(launched.error());
    }
    return {};
}

Result<void> ReducerBody::finish() {
    MUSTER_TRY(check_outside());
    if (!failure_) return failure_;
    if (!in_pass_) return in_step({Errc::invalid_argument, "finish() needs a begin_step() first"});
    in_pass_ = false;
    const BucketRange rest = schedule_->end_pass();
    if (kind_ == PassKind::local) {
        for (const auto parameter : schedule_->observed()) marked_before_[static_cast<std::size_t>(parameter)] = true;
        any_marked_before_ = true;
        step_range_.end();
        return {};
    }
    for (std::size_t b = rest.begin; b < rest.end; ++b) {
        if (auto zeroed = zero_unmarked(arena_.buckets()[b]); !zeroed) return fail(zeroed.error());
    }
    MUSTER_TRY(launch(rest));
    for (std::size_t b = plan_.regular_count; b < plan_.buckets.size(); ++b) {
        if (auto noted = note_not_finite(arena_.buckets()[b]); !noted) return fail(noted.error());
    }
    if (auto over = finish_on_device(); !over) return fail(over.error());
    MUSTER_TRY(finish_synchronised());
    const auto sound = report_unsound();
    end_step();
    return sound;
}

Result<void> ReducerBody::finish_synchronised() {
    if (auto told = tell_and_learn(); !told) return fail(told.error());
    if (auto launched = launch_rare(); !launched) return fail(launched.error());
    if (auto drained = pipeline_.drain(); !drained) return fail(drained.error());
    return {};
}

/// Exchanges the control block of this step and acts on it.
Result<void> ReducerBody::tell_and_learn() {
    control_->clear();
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        if (used_here(static_cast<std::int32_t>(i))) control_->set_used(i);
    }
    for (const auto parameter : not_finite_) {
        control_->set_not_finite(static_cast<std::size_t>(parameter), communicator_.rank());
    }
    control_->set_waited(communicator_.rank(), meter_.last().exposed);
    control_->set_samples(communicator_.rank(), samples_);
    // The order is learned only from ordinary steps, not from one whose marks were spread over local steps.
    const bool typical = learner_ && !any_marked_before_;
    if (typical && learner_->observe(plan_, schedule_->observed())) control_->ask_for_new_buckets();
    const Buffer block{.data = control_memory_.data(),
                       .count = StepControl::size_bytes(parameters_.size(), communicator_.size()),
                       .type = DataType::u8};
    if (auto told = pipeline_.run(all_reduce(block, ReduceOp::max)); !told) {
        return with_context(told.error(), "exchange which parameters were used");
    }
    for (std::size_t i = 0; i < used_.size(); ++i) used_[i] = control_->used(i);
    if (options_.order == BucketOrder::observed) {
        const bool usage_changed = usage_.observe(used_);
        new_buckets_due_ = usage_changed || control_->new_buckets_asked();
    }
    return {};
}

/// Buckets of rarely used parameters are exchanged only if some rank used one in this step.
Result<void> ReducerBody::launch_rare() {
    for (std::size_t b = plan_.regular_count; b < plan_.buckets.size(); ++b) {
        auto& bucket = arena_.buckets()[b];
        bool wanted = false;
        for (const auto& slice : bucket.slices) wanted = wanted || used(slice.parameter);
        if (!wanted) continue;
        MUSTER_TRY(zero_unmarked(bucket));
        MUSTER_TRY(device_ ? launch_behind_device(bucket) : pipeline_.launch(bucket, Launch::start));
    }
    return {};
}

bool ReducerBody::used_here(std::int32_t parameter) const {
    return schedule_->is_ready(parameter) || marked_before_[static_cast<std::size_t>(parameter)];
}

Result<void> ReducerBody::zero_unmarked(const GradientBucket& bucket) {
    for (const auto& slice : bucket.slices) {
        if (used_here(slice.parameter)) continue;
        if (auto zeroed = set_to_zero(arena_.gradient(slice.parameter)); !zeroed) return zeroed;
    }
    return {};
}

/// If gradients are on a GPU, take_not_finite() reports it.
Result<void> ReducerBody::note_not_finite(const GradientBucket& bucket) {
    if (options_.finite_check == FiniteCheck::off) return {};
    if (device_) return device_check_.look_at(bucket);
    for (const auto& slice : bucket.slices) {
        const bool bad = used_here(slice.parameter) && has_non_finite(arena_.gradient(slice.parameter));
        if (bad) not_finite_.push_back(slice.parameter);
    }
    return {};
}

/// Errors that make the averages meaningless, equal on all ranks. Training may continue.
Result<void> ReducerBody::report_unsound() const {
    bool counted = false;
    for (int rank = 0; rank < communicator_.size(); ++rank) counted = counted || control_->samples(rank) > 0;
    if (!counted) return in_step({Errc::invalid_argument, "no rank has samples in this step, so there is no average"});
    const auto found = control_->first_not_finite();
    if (!found) return {};
    return in_step({Errc::invalid_argument, cat("the gradient of parameter \"", parameters_[found->parameter].name,
                                                "\" has a NaN or an infinity on rank ", found->rank)});
}

void ReducerBody::end_step() {
    std::vector<Duration> waits(static_cast<std::size_t>(communicator_.size()));
    double samples = 0;
    for (int rank = 0; rank < communicator_.size(); ++rank) {
        waits[static_cast<std::size_t>(rank)] = control_->waited(rank);
        samples += control_->samples(rank);
    }
    // They belong to the step before.
    const bool judged = step_ - first_step_ > StepMeter::warm_up_count;
    if (judged) meter_.add_waits(waits);
    const auto& cost = meter_.end_step(std::chrono::steady_clock::now(), samples,
                                       layout_changed_ ? StepKind::unusual : StepKind::ordinary);
    if (auto* const record = live_step_record(); record != nullptr) {
        const auto own = waits[static_cast<std::size_t>(communicator_.rank())];
        add_cost(*record, cost, judged ? *std::max_element(waits.begin(), waits.end()) - own : Duration{});
    }
    layout_changed_ = false;
    marked_before_.assign(parameters_.size(), false);
    any_marked_before_ = false;
    step_range_.end();
    ++step_;
}

/// Asks whether any rank has a batch left. The answer overwrites the question.
Operation ReducerBody::ask_for_life() const {
    return all_reduce({.data = live_, .count = 1, .type = DataType::u8}, ReduceOp::max);
}

/// Ranks without a batch wait for the answer; ranks with one know that it is yes.
void ReducerBody::log_live() {
    if (options_.inputs == Inputs::even) return;
    *live_ = 1;
    pipeline_.start(ask_for_life());
}

Result<void> ReducerBody::join(const std::function<Result<void>()>& apply) {
    if (options_.inputs == Inputs::even) {
        return in_step({Errc::invalid_argument, "join() needs a reducer made with Inputs::uneven on all ranks"});
    }
    for (;;) {
        MUSTER_TRY(begin(PassKind::company, 0));
        *live_ = 0;
        auto asked = pipeline_.run(ask_for_life());
        if (!asked) return fail(with_context(asked.error(), "ask whether any rank has a batch left"));
        if (*live_ == 0) {
            in_pass_ = false;
            step_range_.end();
            return {};
        }
        send_weights();
        MUSTER_TRY(finish());
        if (auto applied = apply(); !applied) return applied;
    }
}

Result<void> ReducerBody::fail(Error error) {
    failure_ = in_step(std::move(error));
    in_pass_ = false;
    step_range_.end();
    return failure_;
}

Result<void> ReducerBody::check_outside() const {
    if (!pipeline_.is_inside()) [[likely]]
        return {};
    return in_step({Errc::invalid_argument, "an exchange must not call the reducer that calls it"});
}

Error ReducerBody::in_step(Error error) const {
    return with_context(std::move(error), cat("gradient step ", step_));
}

}  // namespace muster::runtime
