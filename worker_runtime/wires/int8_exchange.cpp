#include "worker_runtime/wires/int8_exchange.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "worker_runtime/arithmetic/int8_blocks.h"
#include "worker_runtime/wires/staging.h"

namespace muster::runtime {

namespace {

/// The parts of a piece in the wire format.
struct Piece {
    float* samples;
    float* scales;
    std::int8_t* codes;
};

Piece piece_at(void* data, std::size_t index, std::size_t piece_bytes, std::size_t piece_elements) {
    auto* const start = static_cast<std::byte*>(data) + index * piece_bytes;
    auto* const floats = reinterpret_cast<float*>(start);
    return {floats, floats + 1, reinterpret_cast<std::int8_t*>(floats + 1 + piece_elements / int8_block)};
}

/// Returns the elements [begin, end) of a piece's block `b`, as offsets in the bucket; empty if it is beyond.
std::pair<std::size_t, std::size_t> block_range(std::size_t first, std::size_t b, std::size_t count) {
    const std::size_t begin = std::min(first + b * int8_block, count);
    return {begin, std::min(begin + int8_block, count)};
}

}  // namespace

Result<void> Int8Exchange::prepare(const ExchangeTerms& terms, std::span<const GradientBucket> buckets) {
    rank_ = static_cast<std::size_t>(terms.rank);
    world_ = static_cast<std::size_t>(terms.world);
    residuals_.prepare(terms.parameters, buckets);
    staging_.assign(buckets.size(), {});
    StagingPlan plan(memory_);
    for (const auto& bucket : buckets) {
        if (bucket.gradients.type != DataType::f32) continue;
        auto& mine = staging_[bucket.index];
        mine.piece_elements = int8_piece_elements(bucket.gradients.count, world_);
        mine.piece_bytes = int8_piece_bytes(mine.piece_elements);
        mine.lost_average.assign(mine.piece_elements, 0);
        const Buffer all{.data = nullptr, .count = world_ * mine.piece_bytes, .type = DataType::u8};
        plan.add(mine.outgoing, all);
        plan.add(mine.incoming, all);
    }
    return plan.take(terms);
}

Result<std::optional<Operation>> Int8Exchange::advance(const GradientBucket& bucket, int stage) {
    auto& staging = staging_[bucket.index];
    if (bucket.gradients.type != DataType::f32) {
        if (stage > 0) return std::optional<Operation>();
        return std::optional(all_reduce_weighted(bucket.gradients, bucket.samples));
    }
    if (stage == 0) {
        encode(bucket, staging);
        return std::optional(all_to_all(staging.outgoing, staging.incoming, static_cast<int>(world_)));
    }
    if (stage == 1) {
        average(staging);
        Buffer mine = staging.outgoing;
        mine.count = staging.piece_bytes;
        mine.data = static_cast<std::byte*>(mine.data) + rank_ * staging.piece_bytes;
        return std::optional(all_gather(mine, staging.outgoing));
    }
    decode(bucket, staging);
    return std::optional<Operation>();
}

/// Encodes all pieces. The gradients stay unchanged until decode() overwrites them.
void Int8Exchange::encode(const GradientBucket& bucket, Staging& staging) {
    const auto* const gradients = static_cast<const float*>(bucket.gradients.data);
    const std::size_t count = bucket.gradients.count;
    const auto residual = residuals_.of(bucket);
    for (std::size_t p = 0; p < world_; ++p) {
        const Piece piece = piece_at(staging.outgoing.data, p, staging.piece_bytes, staging.piece_elements);
        *piece.samples = bucket.samples;
        for (std::size_t b = 0; b < staging.piece_elements / int8_block; ++b) {
            const auto [begin, end] = block_range(p * staging.piece_elements, b, count);
            // A rank without samples sends zeros; its residuals wait for a step with samples.
            const std::size_t sent = bucket.samples > 0 ? end - begin : 0;
            auto* const codes = piece.codes + b * int8_block;
            piece.scales[b] = quantise(gradients + begin, 1, sent, residual.data() + begin, codes);
            std::memset(codes + sent, 0, int8_block - sent);
        }
    }
}

void Int8Exchange::average(Staging& staging) {
    const Piece mine = piece_at(staging.outgoing.data, rank_, staging.piece_bytes, staging.piece_elements);
    float samples = 0;
    for (std::size_t r = 0; r < world_; ++r) {
        samples += *piece_at(staging.incoming.data, r, staging.piece_bytes, staging.piece_elements).samples;
    }
    const float share = 1 / samples;
    *mine.samples = samples;
    for (std::size_t b = 0; b < staging.piece_elements / int8_block; ++b) {
        std::array<float, int8_block> sums{};
        for (std::size_t r = 0; r < world_; ++r) {
            const Piece theirs = piece_at(staging.incoming.data, r, staging.piece_bytes, staging.piece_elements);
            add_scaled(sums.data(), theirs.codes + b * int8_block, int8_block, *theirs.samples * theirs.scales[b]);
        }
        float* const lost = staging.lost_average.data() + b * int8_block;
        mine.scales[b] = quantise(sums.data(), share, int8_block, lost, mine.codes + b * int8_block);
    }
}

void Int8Exchange::decode(const GradientBucket& bucket, const Staging& staging) const {
    auto* const gradients = static_cast<float*>(bucket.gradients.data);
    for (std::size_t p = 0; p < world_; ++p) {
        const Piece piece = piece_at(staging.outgoing.data, p, staging.piece_bytes, staging.piece_elements);
        for (std::size_t b = 0; b < staging.piece_elements / int8_block; ++b) {
            const auto [begin, end] = block_range(p * staging.piece_elements, b, bucket.gradients.count);
            dequantise(piece.codes + b * int8_block, end - begin, piece.scales[b], gradients + begin);
        }
    }
}

void Int8Exchange::keep(std::vector<std::byte>& to) const {
    for (const auto& residual : residuals_.all()) add_bytes(to, residual);
    for (const auto& staging : staging_) add_bytes(to, staging.lost_average);
}

bool Int8Exchange::restore(std::span<const std::byte> from) {
    bool fits = true;
    for (auto& residual : residuals_.all()) fits = fits && take_bytes(from, residual);
    for (auto& staging : staging_) fits = fits && take_bytes(from, staging.lost_average);
    return fits && from.empty();
}

}  // namespace muster::runtime
