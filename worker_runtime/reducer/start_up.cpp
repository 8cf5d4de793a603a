#include "worker_runtime/reducer/start_up.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/transport/device_queue.h"

namespace muster::runtime {

namespace {

/// What ranks compare first: a hash and the size of a rank's encoded registration, and whether it is invalid.
struct Card {
    std::int64_t hash = 0;
    std::int64_t size_bytes = 0;
    std::int64_t invalid = 0;
};
constexpr std::size_t card_words = sizeof(Card) / sizeof(std::int64_t);

Buffer bytes_of(std::string& text) {
    return {.data = text.data(), .count = text.size(), .type = DataType::u8};
}

/// `rank`'s encoded registration, on all ranks.
Result<std::string> fetch(Communicator& communicator, const std::string& mine, int rank, std::int64_t size_bytes) {
    std::string text = mine;
    text.resize(static_cast<std::size_t>(size_bytes));
    MUSTER_TRY(communicator.run(broadcast(bytes_of(text), rank)));
    return text;
}

Duration fastest(Communicator& communicator, const Buffer& buffer, int times, Result<void>& outcome) {
    Duration best = Duration::max();
    for (int i = 0; i < times && outcome; ++i) {
        const auto began = std::chrono::steady_clock::now();
        outcome = communicator.run(all_reduce(buffer, ReduceOp::sum));
        best = std::min<Duration>(best, std::chrono::steady_clock::now() - began);
    }
    return best;
}

}  // namespace

Result<void> compare_registrations(Communicator& communicator, const Registration& registration,
                                   const Result<void>& local) {
    const std::string mine = encode(registration);
    const auto world = static_cast<std::size_t>(communicator.size());
    const Card card{.hash = static_cast<std::int64_t>(hash_bytes(mine)),
                    .size_bytes = static_cast<std::int64_t>(mine.size()),
                    .invalid = local ? 0 : 1};
    std::vector<Card> cards(world);
    const auto done =
        communicator.run(all_gather({&card, card_words, DataType::i64},
                                    {.data = cards.data(), .count = card_words * world, .type = DataType::i64}));
    if (!local) return local;
    if (!done) return with_context(done.error(), "compare models");
    for (std::size_t rank = 0; rank < world; ++rank) {
        if (cards[rank].invalid != 0) {
            return Error{Errc::invalid_argument,
                         cat("rank ", rank, " could not make its gradient reducer: see the error of that rank")};
        }
    }
    for (std::size_t rank = 1; rank < world; ++rank) {
        if (cards[rank].hash == cards[0].hash && cards[rank].size_bytes == cards[0].size_bytes) continue;
        const auto first = fetch(communicator, mine, 0, cards[0].size_bytes);
        if (!first) return with_context(first.error(), "compare models");
        const auto other = fetch(communicator, mine, static_cast<int>(rank), cards[rank].size_bytes);
        if (!other) return with_context(other.error(), "compare models");
        const auto left = MUSTER_TRY(decode_registration(*first));
        const auto right = MUSTER_TRY(decode_registration(*other));
        return Error{Errc::invalid_argument, first_difference(left, 0, right, static_cast<int>(rank))};
    }
    return {};
}

Result<void> broadcast_parameters(Communicator& communicator, std::span<const Parameter> parameters,
                                  std::span<const GradientBucket> buckets) {
    DeviceQueue* const device = communicator.device();
    const auto move = [&](void* to, const void* from, std::size_t size_bytes) -> Result<void> {
        if (size_bytes == 0) return {};
        if (device) return device->copy(to, from, size_bytes);
        std::memcpy(to, from, size_bytes);
        return {};
    };
    const auto copy = [&](const GradientBucket& bucket, bool in) -> Result<void> {
        for (const auto& slice : bucket.slices) {
            const std::size_t size = size_of(bucket.gradients.type);
            auto* const there = static_cast<std::byte*>(bucket.gradients.data) + slice.offset * size;
            void* const here = parameters[static_cast<std::size_t>(slice.parameter)].data;
            MUSTER_TRY(move(in ? there : here, in ? here : there, slice.count * size));
        }
        return device ? device->finish(communicator.timeout()) : Result<void>();
    };
    const auto send = [&](const GradientBucket& bucket) -> Result<void> {
        const bool root = communicator.rank() == 0;
        if (root) MUSTER_TRY(copy(bucket, true));
        MUSTER_TRY(communicator.run(broadcast(bucket.gradients, 0)));
        return root ? Result<void>() : copy(bucket, false);
    };
    for (const auto& bucket : buckets) {
        if (auto sent = send(bucket); !sent) return with_context(sent.error(), "broadcast rank 0's parameters");
    }
    return {};
}

Result<BucketCaps> measured_caps(Communicator& communicator, BucketCaps caps) {
    constexpr std::size_t probe_bytes = std::size_t{8} << 20;
    constexpr std::size_t tiny_bytes = 64;
    auto memory = communicator.allocate(probe_bytes);
    if (!memory) return with_context(memory.error(), "measure latency and bandwidth");
    Result<void> outcome;
    const auto probe = [&](std::size_t bytes, int times) {
        return fastest(communicator, {.data = memory->data(), .count = bytes / 4, .type = DataType::f32}, times,
                       outcome);
    };
    const Duration latency = probe(tiny_bytes, 20);
    const Duration transfer = probe(probe_bytes, 5);
    std::array<std::int64_t, 2> rank_0{latency.count(), transfer.count()};
    if (outcome) outcome = communicator.run(broadcast(buffer(std::span<std::int64_t>(rank_0)), 0));
    if (!outcome) return with_context(outcome.error(), "measure latency and bandwidth");
    const double seconds = std::max<double>(1, static_cast<double>(rank_0[1] - rank_0[0])) / 1e9;
    return caps_for(Duration(rank_0[0]), static_cast<double>(probe_bytes) / seconds, caps);
}

}  // namespace muster::runtime
