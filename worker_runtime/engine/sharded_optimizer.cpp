#include "muster/sharded_optimizer.h"

#include <algorithm>
#include <deque>
#include <vector>

#include "rendezvous/base/text.h"
#include "worker_runtime/core/optimizer_math.h"
#include "worker_runtime/engine/gradient_math.h"

namespace muster {

namespace {

/// This rank's piece of a bucket.
Buffer own_piece(const GradientBucket& bucket, const Communicator& communicator) {
    Buffer piece = bucket.gradients;
    piece.count /= static_cast<std::size_t>(communicator.size());
    piece.data =
        static_cast<std::byte*>(piece.data) + static_cast<std::size_t>(communicator.rank()) * piece.size_bytes();
    return piece;
}

}  // namespace

/// What this rank keeps of one slice of a bucket.
struct ShardedOptimizer::Body {
    struct Part {
        std::size_t bucket;
        std::size_t offset;  ///< in the bucket, elements
        std::vector<float> values{};
        std::vector<float> first{};
        std::vector<float> second{};
    };

    Body(GradientReducer& its_reducer, const OptimizerRule& its_rule)
        : reducer(its_reducer), rule(its_rule), updates(its_reducer.parameters().size()) {}

    Buffer in_bucket(const Part& part) const {
        Buffer elements = reducer.buckets()[part.bucket].gradients;
        elements.data = static_cast<std::byte*>(elements.data) + part.offset * size_of(elements.type);
        elements.count = part.values.size();
        return elements;
    }
    void take_pieces();
    void take_part(const GradientBucket& bucket, const BucketSlice& slice);
    void update_part(std::size_t index);
    Result<void> share();

    GradientReducer& reducer;
    OptimizerRule rule;
    std::vector<std::uint64_t> updates;  ///< of each parameter; the same on all ranks
    std::deque<Part> parts;              ///< by bucket
    std::vector<OptimizerPiece> pieces;  ///< of the same
    std::vector<float> scratch;
};

void ShardedOptimizer::Body::take_pieces() {
    for (const auto& bucket : reducer.buckets()) {
        for (const auto& slice : bucket.slices) take_part(bucket, slice);
    }
}

void ShardedOptimizer::Body::take_part(const GradientBucket& bucket, const BucketSlice& slice) {
    const auto& communicator = reducer.communicator();
    const std::size_t length = bucket.gradients.count / static_cast<std::size_t>(communicator.size());
    const std::size_t piece_begin = length * static_cast<std::size_t>(communicator.rank());
    const std::size_t begin = std::max(slice.offset, piece_begin);
    const std::size_t end = std::min(slice.offset + slice.count, piece_begin + length);
    if (begin >= end) return;
    auto& part = parts.emplace_back(Part{.bucket = bucket.index, .offset = begin});
    part.values.resize(end - begin);
    const int moments = runtime::moment_count(rule);
    if (moments > 0) part.first.resize(end - begin);
    if (moments > 1) part.second.resize(end - begin);
    const auto& parameter = reducer.parameters()[static_cast<std::size_t>(slice.parameter)];
    const auto* const from =
        static_cast<const std::byte*>(parameter.data) + (begin - slice.offset) * size_of(parameter.type);
    runtime::convert({from, end - begin, parameter.type},
                     {.data = part.values.data(), .count = end - begin, .type = DataType::f32});
    pieces.push_back({.parameter = slice.parameter,
                      .offset = begin - slice.offset,
                      .values = part.values,
                      .first = part.first,
                      .second = part.second,
                      .updates = &updates[static_cast<std::size_t>(slice.parameter)]});
}

void ShardedOptimizer::Body::update_part(std::size_t index) {
    auto& part = parts[index];
    const Buffer gradient = in_bucket(part);
    scratch.resize(gradient.count);
    runtime::convert(gradient, {.data = scratch.data(), .count = gradient.count, .type = DataType::f32});
    runtime::update(rule, *pieces[index].updates, scratch, part.values, part.first, part.second);
}

/// The pieces of all ranks, through the buckets' memory, into the parameters.
Result<void> ShardedOptimizer::Body::share() {
    auto& communicator = reducer.communicator();
    std::vector<Work> works;
    auto part = parts.begin();
    for (const auto& bucket : reducer.buckets()) {
        for (; part != parts.end() && part->bucket == bucket.index; ++part) {
            runtime::convert({part->values.data(), part->values.size(), DataType::f32}, in_bucket(*part));
        }
        works.push_back(communicator.start(all_gather(own_piece(bucket, communicator), bucket.gradients)));
    }
    Result<void> outcome;
    for (const auto& bucket : reducer.buckets()) {
        if (auto gathered = works[bucket.index].wait(); !gathered && outcome) {
            outcome = with_context(gathered.error(), cat("parameters of bucket ", bucket.index));
        }
        if (!outcome) continue;  // the memory must not be left before all work is over
        for (const auto& slice : bucket.slices) {
            const auto& parameter = reducer.parameters()[static_cast<std::size_t>(slice.parameter)];
            const auto* const from =
                static_cast<const std::byte*>(bucket.gradients.data) + slice.offset * size_of(bucket.gradients.type);
            runtime::convert({from, slice.count, parameter.type},
                             {.data = parameter.data, .count = slice.count, .type = parameter.type});
        }
    }
    return outcome;
}

Result<ShardedOptimizer> ShardedOptimizer::make(GradientReducer& reducer, const OptimizerRule& rule) {
    if (reducer.options().result != GradientResult::own_piece) {
        return Error{Errc::invalid_argument,
                     "a sharded optimizer needs a reducer that was made with GradientResult::own_piece"};
    }
    if (reducer.communicator().device()) {
        return Error{
            Errc::unsupported,
            "the sharded optimizer computes on the host, and this reducer's gradients lie on a GPU: reduce with "
            "GradientResult::own_piece, update your piece there, and all_gather the parameters"};
    }
    for (const auto& parameter : reducer.parameters()) {
        if (parameter.type == DataType::f64) {
            return Error{Errc::unsupported,
                         cat("parameter \"", parameter.name, "\" is f64; sharded optimizers keep f32")};
        }
    }
    if (auto good = runtime::check(rule); !good) return good.error();
    auto body = std::make_unique<Body>(reducer, rule);
    body->take_pieces();
    return ShardedOptimizer(std::move(body));
}

ShardedOptimizer::ShardedOptimizer(std::unique_ptr<Body> body) : body_(std::move(body)) {}
ShardedOptimizer::~ShardedOptimizer() = default;
ShardedOptimizer::ShardedOptimizer(ShardedOptimizer&&) noexcept = default;
ShardedOptimizer& ShardedOptimizer::operator=(ShardedOptimizer&&) noexcept = default;

Result<void> ShardedOptimizer::step() {
    for (std::size_t i = 0; i < body_->updates.size(); ++i) {
        if (body_->reducer.used(static_cast<int>(i))) ++body_->updates[i];
    }
    for (std::size_t i = 0; i < body_->parts.size(); ++i) {
        if (body_->reducer.used(body_->pieces[i].parameter)) body_->update_part(i);
    }
    return body_->share();
}

Result<void> ShardedOptimizer::reload() {
    return body_->share();
}

void ShardedOptimizer::set_learning_rate(double learning_rate) {
    std::visit([&](auto& rule) { rule.learning_rate = learning_rate; }, body_->rule);
}

std::span<const OptimizerPiece> ShardedOptimizer::pieces() const {
    return body_->pieces;
}

}  // namespace muster
