#include "muster/sharded_optimizer.h"

#include "worker_runtime/capi/arguments.h"
#include "worker_runtime/capi/objects.h"

using namespace muster;
using namespace muster::capi;

namespace {

/// Runs `body(optimizer)`.
muster_status with_optimizer(const char* function, muster_optimizer* handle, auto&& body) {
    return with(function, optimizers, handle, [&](auto& found) { return body(found.optimizer); });
}

constexpr int kind_count = 3;

muster_optimizer_rule fields_of(int kind, const auto& rule) {
    return {.size = 0,
            .kind = kind,
            .learning_rate = rule.learning_rate,
            .momentum = 0,
            .beta1 = rule.beta1,
            .beta2 = rule.beta2,
            .epsilon = rule.epsilon,
            .weight_decay = rule.weight_decay};
}

template <class AdamKind>
OptimizerRule rule_of(const muster_optimizer_rule& given) {
    return AdamKind{.learning_rate = given.learning_rate,
                    .beta1 = given.beta1,
                    .beta2 = given.beta2,
                    .epsilon = given.epsilon,
                    .weight_decay = given.weight_decay};
}

muster_optimizer_rule defaults_of(int kind) {
    if (kind == MUSTER_ADAM) return fields_of(kind, Adam{});
    if (kind == MUSTER_ADAMW) return fields_of(kind, AdamW{});
    const Sgd rule;
    muster_optimizer_rule fields{};
    fields.kind = kind;
    fields.learning_rate = rule.learning_rate;
    fields.momentum = rule.momentum;
    fields.weight_decay = rule.weight_decay;
    return fields;
}

Result<OptimizerRule> read_rule(const muster_optimizer_rule* rule) {
    if (rule == nullptr) return invalid("`rule` is NULL");
    const auto given = MUSTER_TRY(read(rule));
    const auto kind = MUSTER_TRY(read_enumerator<int>(given.kind, kind_count, "optimizer"));
    if (kind == MUSTER_ADAM) return rule_of<Adam>(given);
    if (kind == MUSTER_ADAMW) return rule_of<AdamW>(given);
    return OptimizerRule(
        Sgd{.learning_rate = given.learning_rate, .momentum = given.momentum, .weight_decay = given.weight_decay});
}

}  // namespace

extern "C" {

muster_status muster_optimizer_defaults(int kind, muster_optimizer_rule* rule) {
    return guarded(__func__, [&]() -> Result<void> {
        return write(defaults_of(MUSTER_TRY(read_enumerator<int>(kind, kind_count, "optimizer"))), rule);
    });
}

muster_status muster_optimizer_make(muster_reducer* reducer, const muster_optimizer_rule* rule,
                                    muster_optimizer** optimizer) {
    return guarded(__func__, [&]() -> Result<void> {
        MUSTER_TRY(give(optimizer, "optimizer", nullptr));
        auto found = MUSTER_TRY(reducers.find(reducer));
        const auto chosen = MUSTER_TRY(read_rule(rule));
        auto made = MUSTER_TRY(ShardedOptimizer::make(found->reducer, chosen));
        *optimizer = optimizers.add(std::make_shared<OptimizerObject>(std::move(found), std::move(made)));
        return {};
    });
}

muster_status muster_optimizer_step(muster_optimizer* optimizer) {
    return with_optimizer(__func__, optimizer, [](auto& own) { return own.step(); });
}

muster_status muster_optimizer_set_learning_rate(muster_optimizer* optimizer, double learning_rate) {
    return with_optimizer(__func__, optimizer, [&](auto& own) -> Result<void> {
        if (!(learning_rate >= 0)) return invalid(cat(learning_rate, " is not a learning rate; it must be >= 0"));
        own.set_learning_rate(learning_rate);
        return {};
    });
}

muster_status muster_optimizer_piece_count(muster_optimizer* optimizer, size_t* count) {
    return with_optimizer(__func__, optimizer, [&](auto& own) { return give(count, "count", own.pieces().size()); });
}

muster_status muster_optimizer_get_piece(muster_optimizer* optimizer, size_t index, muster_optimizer_piece* piece) {
    return with_optimizer(__func__, optimizer, [&](auto& own) -> Result<void> {
        const auto pieces = own.pieces();
        if (index >= pieces.size()) return invalid(cat("there is no piece ", index, " of ", pieces.size()));
        const OptimizerPiece& found = pieces[index];
        return write({.size = 0,
                      .parameter = found.parameter,
                      .offset = found.offset,
                      .count = found.values.size(),
                      .values = found.values.data(),
                      .first = found.first.empty() ? nullptr : found.first.data(),
                      .second = found.second.empty() ? nullptr : found.second.data(),
                      .updates = found.updates},
                     piece);
    });
}

muster_status muster_optimizer_reload(muster_optimizer* optimizer) {
    return with_optimizer(__func__, optimizer, [](auto& own) { return own.reload(); });
}

muster_status muster_optimizer_release(muster_optimizer* optimizer) {
    return guarded(__func__, [&] { return optimizers.release(optimizer); });
}
}
