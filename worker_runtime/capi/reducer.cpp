#include "muster/gradient_reducer.h"

#include "worker_runtime/capi/arguments.h"
#include "worker_runtime/capi/exchange.h"
#include "worker_runtime/capi/objects.h"

using namespace muster;
using namespace muster::capi;

namespace {

Result<Parameter> read_parameter(const muster_parameter& given, std::size_t index) {
    if (given.name == nullptr) return invalid(cat("parameter ", index, " has no name"));
    const auto type = read_type(given.type);
    if (!type) return with_context(type.error(), cat("parameter \"", given.name, "\""));
    if (given.shape == nullptr && given.dimension_count > 0) {
        return invalid(cat("parameter \"", given.name, "\": `shape` is NULL"));
    }
    return Parameter{.name = given.name,
                     .shape = {given.shape, given.shape + given.dimension_count},
                     .type = *type,
                     .data = given.data};
}

Result<std::vector<Parameter>> read_parameters(const muster_parameter* given, std::size_t count) {
    if (given == nullptr && count > 0) return invalid("`parameters` is NULL");
    std::vector<Parameter> parameters;
    for (std::size_t i = 0; i < count; ++i) {
        parameters.push_back(MUSTER_TRY(read_parameter(given[i], i)));
    }
    return parameters;
}

Result<ReducerOptions> read_options(const muster_reducer_options* options) {
    const auto given = MUSTER_TRY(read(options));
    const auto wire = MUSTER_TRY(read_enumerator<WireFormat>(given.wire, 5, "wire format"));
    const auto order = MUSTER_TRY(read_enumerator<BucketOrder>(given.order, 2, "order of buckets"));
    const auto inputs = MUSTER_TRY(read_enumerator<Inputs>(given.uneven_inputs, 2, "value of uneven_inputs"));
    const auto check = MUSTER_TRY(read_enumerator<FiniteCheck>(given.finite_check, 2, "value of finite_check"));
    const auto result = MUSTER_TRY(read_enumerator<GradientResult>(given.own_piece, 2, "value of own_piece"));
    auto exchange = MUSTER_TRY(read_exchange(given.exchange));
    ReducerOptions chosen{.wire = wire, .order = order, .result = result, .inputs = inputs, .finite_check = check};
    if (given.bucket_cap_mb == MUSTER_BUCKET_AUTOMATIC) {
        chosen.bucket_cap_mb = ReducerOptions::automatic;
    } else if (given.bucket_cap_mb != 0) {
        chosen.bucket_cap_mb = given.bucket_cap_mb;
    }
    if (given.first_bucket_mb != 0) chosen.first_bucket_mb = given.first_bucket_mb;
    if (given.last_bucket_mb != 0) chosen.last_bucket_mb = given.last_bucket_mb;
    if (given.power_rank != 0) chosen.power_rank = given.power_rank;
    if (given.power_start_step != 0) chosen.power_start_step = given.power_start_step;
    chosen.exchange = std::move(exchange);
    return chosen;
}

/// Runs `body(reducer)`.
muster_status with_reducer(const char* function, muster_reducer* handle, auto&& body) {
    return with(function, reducers, handle, [&](auto& found) { return body(found.reducer); });
}

Result<void> check_index(const GradientReducer& reducer, int parameter) {
    const auto count = reducer.parameters().size();
    if (parameter >= 0 && static_cast<std::size_t>(parameter) < count) return {};
    return invalid(cat("there is no parameter ", parameter, "; they are 0 to ", count - 1));
}

Result<void> write_cost(const StepCost& of, muster_step_cost* cost) {
    return write({.size = 0,
                  .total_ns = of.total.count(),
                  .compute_ns = of.compute.count(),
                  .data_wait_ns = of.data_wait.count(),
                  .exposed_ns = of.exposed.count(),
                  .communication_ns = of.communication.count(),
                  .bytes = of.bytes,
                  .samples = of.samples},
                 cost);
}

Result<void> note_layout(const Result<Layout>& layout, int* moved) {
    if (!layout) return layout.error();
    if (moved != nullptr) *moved = *layout == Layout::moved ? 1 : 0;
    return {};
}

}  // namespace

extern "C" {

muster_status muster_reducer_make(muster_communicator* communicator, const muster_parameter* parameters, size_t count,
                                  const muster_reducer_options* options, muster_reducer** reducer) {
    return guarded(__func__, [&]() -> Result<void> {
        if (reducer != nullptr) *reducer = nullptr;
        auto found = MUSTER_TRY(communicators.find(communicator));
        auto& group = found->get();
        // From here on the other ranks wait for this one: they learn of what is refused.
        if (reducer == nullptr) return GradientReducer::refuse(group, invalid("`reducer` is NULL"));
        auto registered = read_parameters(parameters, count);
        if (!registered) return GradientReducer::refuse(group, registered.error());
        const auto chosen = read_options(options);
        if (!chosen) return GradientReducer::refuse(group, chosen.error());
        auto made = MUSTER_TRY(GradientReducer::make(group, std::move(*registered), *chosen));
        *reducer = reducers.add(std::make_shared<ReducerObject>(std::move(found), std::move(made)));
        return {};
    });
}

muster_status muster_reducer_begin_step(muster_reducer* reducer, float samples, int* moved) {
    return with_reducer(__func__, reducer, [&](auto& own) { return note_layout(own.begin_step(samples), moved); });
}

muster_status muster_reducer_begin_local_step(muster_reducer* reducer, int* moved) {
    return with_reducer(__func__, reducer, [&](auto& own) { return note_layout(own.begin_local_step(), moved); });
}

muster_status muster_reducer_gradient(muster_reducer* reducer, int parameter, void** data, size_t* count) {
    return with_reducer(__func__, reducer, [&](auto& own) -> Result<void> {
        MUSTER_TRY(check_index(own, parameter));
        const auto gradient = own.gradient(parameter);
        if (data != nullptr) *data = gradient.data;
        if (count != nullptr) *count = gradient.count;
        return {};
    });
}

muster_status muster_reducer_mark_ready(muster_reducer* reducer, int parameter) {
    return with_reducer(__func__, reducer, [&](auto& own) { return own.mark_ready(parameter); });
}

muster_status muster_reducer_mark_ready_after(muster_reducer* reducer, int parameter, void* event) {
    return with_reducer(__func__, reducer, [&](auto& own) -> Result<void> {
        if (event == nullptr) return invalid("`event` is NULL");
        return own.mark_ready(parameter, event);
    });
}

muster_status muster_reducer_finish(muster_reducer* reducer) {
    return with_reducer(__func__, reducer, [](auto& own) { return own.finish(); });
}

muster_status muster_reducer_join(muster_reducer* reducer, muster_status (*apply)(void* argument), void* argument) {
    return with_reducer(__func__, reducer, [&](auto& own) -> Result<void> {
        if (apply == nullptr) return invalid("`apply` is NULL");
        return own.join([&]() -> Result<void> {
            const auto status = apply(argument);
            if (status == MUSTER_OK) return {};
            return Error{Errc::cancelled, cat("apply() returned ", status)};
        });
    });
}

muster_status muster_reducer_used(muster_reducer* reducer, int parameter, int* used) {
    return with_reducer(__func__, reducer, [&](auto& own) -> Result<void> {
        auto good = check_index(own, parameter);
        return good ? give(used, "used", own.used(parameter)) : good;
    });
}

muster_status muster_reducer_zero_gradients(muster_reducer* reducer) {
    return with_reducer(__func__, reducer, [](auto& own) { return own.zero_gradients(); });
}

muster_status muster_reducer_zero_gradients_after(muster_reducer* reducer, void* event) {
    return with_reducer(__func__, reducer, [&](auto& own) -> Result<void> {
        if (event == nullptr) return invalid("`event` is NULL");
        return own.zero_gradients(event);
    });
}

muster_status muster_reducer_clip_grad_norm(muster_reducer* reducer, double max_norm, double* norm) {
    return with_reducer(__func__, reducer, [&](auto& own) -> Result<void> {
        const auto before = MUSTER_TRY(own.clip_grad_norm(max_norm));
        if (norm != nullptr) *norm = before;
        return {};
    });
}

muster_status muster_reducer_description(muster_reducer* reducer, char* text, size_t capacity, size_t* needed) {
    return with_reducer(__func__, reducer,
                        [&](auto& own) { return write_text(own.description(), text, capacity, needed); });
}

muster_status muster_reducer_keep(muster_reducer* reducer, muster_reducer_state* state) {
    return with(__func__, reducers, reducer, [&](ReducerObject& found) {
        auto& kept = found.kept;
        found.reducer.keep(kept);
        return write({.size = 0, .plan = kept.plan.c_str(), .own = kept.own.data(), .own_size = kept.own.size()},
                     state);
    });
}

muster_status muster_reducer_restore(muster_reducer* reducer, const muster_reducer_state* state) {
    return with_reducer(__func__, reducer, [&](auto& own) -> Result<void> {
        const auto given = MUSTER_TRY(read(state));
        if (given.own == nullptr && given.own_size > 0) return invalid("`own` is NULL");
        ReducerState from;
        if (given.plan != nullptr) from.plan = given.plan;
        const auto* const bytes = static_cast<const std::byte*>(given.own);
        if (given.own_size > 0) from.own.assign(bytes, bytes + given.own_size);
        return own.restore(from);
    });
}

muster_status muster_reducer_release(muster_reducer* reducer) {
    return guarded(__func__, [&] { return reducers.release(reducer); });
}

muster_status muster_reducer_add_data_wait(muster_reducer* reducer, int64_t nanoseconds) {
    return with_reducer(__func__, reducer, [&](auto& own) -> Result<void> {
        if (nanoseconds < 0) return invalid("a wait is a time >= 0");
        own.add_data_wait(std::chrono::nanoseconds(nanoseconds));
        return {};
    });
}

muster_status muster_reducer_last_step(muster_reducer* reducer, muster_step_cost* cost) {
    return with_reducer(__func__, reducer, [&](auto& own) { return write_cost(own.last_step(), cost); });
}

muster_status muster_reducer_first_step(muster_reducer* reducer, muster_step_cost* cost) {
    return with_reducer(__func__, reducer, [&](auto& own) { return write_cost(own.costs().first, cost); });
}

muster_status muster_reducer_mean_step(muster_reducer* reducer, muster_step_cost* cost) {
    return with_reducer(__func__, reducer, [&](auto& own) { return write_cost(own.costs().mean, cost); });
}

muster_status muster_reducer_lateness(muster_reducer* reducer, int rank, int64_t* nanoseconds) {
    return with_reducer(__func__, reducer, [&](auto& own) -> Result<void> {
        const auto lateness = own.costs().lateness;
        if (rank < 0 || static_cast<std::size_t>(rank) >= lateness.size())
            return invalid(cat("there is no rank ", rank, "; they are 0 to ", lateness.size() - 1));
        return give(nanoseconds, "nanoseconds", lateness[static_cast<std::size_t>(rank)].count());
    });
}

muster_status muster_reducer_scaling_report(muster_reducer* reducer, const muster_baseline* baseline,
                                            muster_scaling* scaling, char* text, size_t capacity, size_t* needed) {
    return with_reducer(__func__, reducer, [&](auto& own) -> Result<void> {
        std::optional<Baseline> other;
        if (baseline != nullptr) {
            const auto given = MUSTER_TRY(read(baseline));
            if (given.world_size < 1) return invalid(cat("the baseline has a world of ", given.world_size));
            other = {.world = given.world_size,
                     .samples_per_second = given.samples_per_second,
                     .samples_per_step = given.samples_per_step};
        }
        const auto costs = own.costs();
        const auto report = scaling_report(costs, other);
        if (scaling != nullptr) {
            MUSTER_TRY(write({.size = 0,
                              .strong = report.strong.value_or(0),
                              .weak = report.weak.value_or(0),
                              .estimated = report.estimated,
                              .samples_per_second = costs.samples_per_second(),
                              .step_count = costs.step_count},
                             scaling));
        }
        return write_text(report.text, text, capacity, needed);
    });
}
}
