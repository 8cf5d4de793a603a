#include "muster/sharded_optimizer.h"

#include <algorithm>
#include <vector>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/core/optimizer_math.h"
#include "worker_runtime/optimizer/shard_math.h"
#include "worker_runtime/transport/device_queue.h"

namespace muster {

namespace {

/// Returns this rank's piece of a bucket.
Buffer own_piece(const GradientBucket& bucket, const Communicator& communicator) {
    Buffer piece = bucket.gradients;
    piece.count /= static_cast<std::size_t>(communicator.size());
    piece.data =
        static_cast<std::byte*>(piece.data) + static_cast<std::size_t>(communicator.rank()) * piece.size_bytes();
    return piece;
}

}  // namespace

struct ShardedOptimizer::Body {
    /// The position of a piece among the gradients.
    struct Place {
        std::size_t bucket;
        std::size_t offset;  ///< Offset in the bucket, in elements.
    };

    Body(GradientReducer& its_reducer, const OptimizerRule& its_rule)
        : reducer(its_reducer), rule(its_rule), updates(its_reducer.parameters().size()) {
        auto& communicator = reducer.communicator();
        auto* const device = communicator.device();
        math = device ? runtime::make_device_shards(*device, communicator.timeout()) : runtime::make_host_shards();
    }

    Buffer in_bucket(std::size_t index) const {
        Buffer elements = reducer.buckets()[places[index].bucket].gradients;
        elements.data = static_cast<std::byte*>(elements.data) + places[index].offset * size_of(elements.type);
        elements.count = pieces[index].values.size();
        return elements;
    }
    Result<void> take_pieces();
    Result<void> take_piece(const GradientBucket& bucket, const BucketSlice& slice);
    Result<void> update();
    Result<void> share();
    Result<void> hand_out(const GradientBucket& bucket);

    GradientReducer& reducer;
    OptimizerRule rule;
    std::uint64_t spent = reducer.step_count();  ///< Number of steps whose gradients were consumed.
    std::vector<std::uint64_t> updates;          ///< Updates of each parameter; equal on all ranks.
    std::unique_ptr<runtime::ShardMath> math;
    std::vector<Place> places;           ///< Indexed by bucket.
    std::vector<OptimizerPiece> pieces;  ///< Indexed by bucket.
};

Result<void> ShardedOptimizer::Body::take_pieces() {
    const auto each = 1 + static_cast<std::size_t>(runtime::moment_count(rule));
    std::size_t count = 0;
    for (const auto& bucket : reducer.buckets()) count += own_piece(bucket, reducer.communicator()).count;
    MUSTER_TRY(math->take(reducer.communicator(), each * count));
    for (const auto& bucket : reducer.buckets()) {
        for (const auto& slice : bucket.slices) {
            if (auto taken = take_piece(bucket, slice); !taken) return taken;
        }
    }
    return math->finish();
}

/// Adds this rank's part of a slice of a bucket to the pieces.
Result<void> ShardedOptimizer::Body::take_piece(const GradientBucket& bucket, const BucketSlice& slice) {
    const auto& communicator = reducer.communicator();
    const std::size_t length = bucket.gradients.count / static_cast<std::size_t>(communicator.size());
    const std::size_t piece_begin = length * static_cast<std::size_t>(communicator.rank());
    const std::size_t begin = std::max(slice.offset, piece_begin);
    const std::size_t end = std::min(slice.offset + slice.count, piece_begin + length);
    if (begin >= end) return {};
    const int moments = runtime::moment_count(rule);
    const std::size_t count = end - begin;
    places.push_back({.bucket = bucket.index, .offset = begin});
    const auto& piece =
        pieces.emplace_back(OptimizerPiece{.parameter = slice.parameter,
                                           .offset = begin - slice.offset,
                                           .values = math->next(count),
                                           .first = moments > 0 ? math->next(count) : std::span<float>(),
                                           .second = moments > 1 ? math->next(count) : std::span<float>(),
                                           .updates = &updates[static_cast<std::size_t>(slice.parameter)]});
    const auto& parameter = reducer.parameters()[static_cast<std::size_t>(slice.parameter)];
    const auto* const from = static_cast<const std::byte*>(parameter.data) + piece.offset * size_of(parameter.type);
    return math->load({from, count, parameter.type}, in_bucket(pieces.size() - 1), piece.values);
}

Result<void> ShardedOptimizer::Body::update() {
    if (reducer.step_count() == spent) {
        return Error{Errc::invalid_argument,
                     "sharded optimizer: no gradients were averaged since it was made, updated or reloaded: "
                     "call finish() first"};
    }
    for (std::size_t i = 0; i < updates.size(); ++i) {
        if (reducer.used(static_cast<int>(i))) ++updates[i];
    }
    for (std::size_t i = 0; i < pieces.size(); ++i) {
        if (!reducer.used(pieces[i].parameter)) continue;
        if (auto done = math->update(rule, *pieces[i].updates, in_bucket(i), pieces[i]); !done) return done;
    }
    return {};
}

/// Gathers the updated pieces of all ranks in the buckets, and copies them to the parameters.
Result<void> ShardedOptimizer::Body::share() {
    auto& communicator = reducer.communicator();
    // From here on the buckets contain parameters, which must not be used as gradients.
    spent = reducer.step_count();
    std::vector<Work> works;
    Result<void> outcome;
    std::size_t next = 0;
    for (const auto& bucket : reducer.buckets()) {
        for (; next < pieces.size() && places[next].bucket == bucket.index; ++next) {
            if (outcome) outcome = math->store(pieces[next].values, in_bucket(next));
        }
        auto ready = math->mark(bucket.index);
        if (!ready && outcome) outcome = ready.error();
        if (!outcome) break;
        Operation gather = all_gather(own_piece(bucket, communicator), bucket.gradients);
        gather.after = *ready;
        works.push_back(communicator.start(gather));
    }
    for (std::size_t b = 0; b < works.size(); ++b) {
        const auto& bucket = reducer.buckets()[b];
        if (auto gathered = works[b].wait(); !gathered && outcome) {
            outcome = with_context(gathered.error(), cat("parameters of bucket ", bucket.index));
        }
        // Waits for all work even after a failure, because the work uses the buckets' memory.
        if (outcome) outcome = hand_out(bucket);
    }
    return outcome ? math->finish() : outcome;
}

Result<void> ShardedOptimizer::Body::hand_out(const GradientBucket& bucket) {
    const auto type = bucket.gradients.type;
    for (const auto& slice : bucket.slices) {
        const auto& parameter = reducer.parameters()[static_cast<std::size_t>(slice.parameter)];
        const auto* const from = static_cast<const std::byte*>(bucket.gradients.data) + slice.offset * size_of(type);
        if (auto done = math->hand_out({from, slice.count, type}, parameter.data); !done) return done;
    }
    return {};
}

Result<ShardedOptimizer> ShardedOptimizer::make(GradientReducer& reducer, const OptimizerRule& rule) {
    if (reducer.options().result != GradientResult::own_piece) {
        return Error{Errc::invalid_argument,
                     "a sharded optimizer needs a reducer that was made with GradientResult::own_piece"};
    }
    if (auto* const device = reducer.communicator().device()) {
        if (auto kernels = device->has_kernels(); !kernels) {
            return Error{
                Errc::unsupported,
                cat("the sharded optimizer computes on the GPU, where the gradients are: ", kernels.error().context,
                    "; or reduce with GradientResult::own_piece, update your piece there, and all_gather the "
                    "parameters")};
        }
    }
    for (const auto& parameter : reducer.parameters()) {
        if (parameter.type == DataType::f64) {
            return Error{Errc::unsupported,
                         cat("parameter \"", parameter.name, "\" is f64; sharded optimizers keep f32")};
        }
    }
    MUSTER_TRY(runtime::check(rule));
    auto body = std::make_unique<Body>(reducer, rule);
    MUSTER_TRY(body->take_pieces());
    return ShardedOptimizer(std::move(body));
}

ShardedOptimizer::ShardedOptimizer(std::unique_ptr<Body> body) : body_(std::move(body)) {}
ShardedOptimizer::~ShardedOptimizer() = default;
ShardedOptimizer::ShardedOptimizer(ShardedOptimizer&&) noexcept = default;
ShardedOptimizer& ShardedOptimizer::operator=(ShardedOptimizer&&) noexcept = default;

Result<void> ShardedOptimizer::step() {
    auto updated = body_->update();
    return updated ? body_->share() : updated;
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
