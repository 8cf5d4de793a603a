#include "worker_runtime/reducer/bucket_pipeline.h"

#include <algorithm>
#include <chrono>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/communicator/profile_range.h"

namespace muster::runtime {

namespace {

std::string exposed_wait() {
    return "muster exposed wait";
}

constexpr std::uint32_t beside_buckets = 0xffff;

}  // namespace

std::size_t input_bytes(const Operation& operation, int world) {
    const bool pieces = operation.kind == OperationKind::reduce_scatter || operation.kind == OperationKind::all_to_all;
    return operation.count * size_of(operation.type) * (pieces ? static_cast<std::size_t>(world) : 1);
}

BucketPipeline::~BucketPipeline() {
    for (auto& flight : flights_) {
        for (auto& work : flight.earlier) (void)work.wait();
        (void)flight.work.wait();
    }
    (void)beside_.wait();
}

void BucketPipeline::begin(std::uint64_t plan_hash) {
    tag_ = static_cast<std::uint32_t>(plan_hash) << 16;
    flights_.clear();
}

Result<void> BucketPipeline::launch(const GradientBucket& bucket, Launch how) {
    const auto count = [&] {
        const InExchange within(*this);
        return exchange_->collective_count(bucket);
    }();
    flights_.push_back({.bucket = &bucket, .collective_count = count});
    auto& flight = flights_.back();
    MUSTER_TRY(advance(flight, how));
    if (!exchange_->chained()) return start_due(flights_.size() - 1);
    while (flight.stage < flight.collective_count) {
        flight.earlier.push_back(std::move(flight.work));
        if (auto begun = advance(flight, how); !begun) return begun;
    }
    return {};
}

Result<void> BucketPipeline::drain() {
    int most = 0;
    for (const auto& flight : flights_) most = std::max(most, flight.collective_count);
    if (exchange_->chained()) most = 0;
    const std::size_t end = flights_.size() + lag * static_cast<std::size_t>(most);
    for (std::size_t number = flights_.size(); number < end; ++number) {
        if (auto started = start_due(number); !started) return started;
    }
    for (auto& flight : flights_) {
        if (flight.stage > flight.collective_count) continue;  // the bucket has no more collectives
        MUSTER_TRY(await(flight));
        if (auto written = advance(flight, Launch::start); !written) return written;
    }
    flights_.clear();
    return {};
}

/// Starts the later collectives that are due with launch `number`, which may be beyond the last launch.
Result<void> BucketPipeline::start_due(std::size_t launch_number) {
    int stage = 1;
    for (std::size_t back = lag; back <= launch_number; back += lag, ++stage) {
        if (launch_number - back >= flights_.size()) continue;
        auto& flight = flights_[launch_number - back];
        if (stage >= flight.collective_count) continue;
        MUSTER_TRY(await(flight));
        if (auto begun = advance(flight, Launch::start); !begun) return begun;
    }
    return {};
}

Result<void> BucketPipeline::advance(Flight& flight, Launch how) {
    auto operation = [&] {
        const InExchange within(*this);
        return exchange_->advance(*flight.bucket, flight.stage);
    }();
    if (!operation) return give_up(in_bucket(operation.error(), *flight.bucket));
    const bool last = flight.stage == flight.collective_count;
    if (operation->has_value() == last) {
        return give_up({Errc::invalid_argument, cat("exchange ", exchange_->name(), " announced ",
                                                    flight.collective_count, " collectives for bucket ",
                                                    flight.bucket->index, " and returned ", last ? "more" : "fewer")});
    }
    ++flight.stage;
    if (last) return {};
    Operation next = **operation;
    next.tag = tag_ | static_cast<std::uint32_t>(flight.bucket->index % beside_buckets);
    if (flight.stage == 1 && next.after == nullptr) next.after = flight.bucket->ready;
    if (next.weighted && next.weights == nullptr && next.weight == static_cast<double>(flight.bucket->samples))
        next.weights = weights_;
    if (how == Launch::inline_) {
        auto done = complete(next);
        if (!done) return give_up(in_bucket(done.error(), *flight.bucket));
        return {};
    }
    meter_.add_bytes(input_bytes(next, communicator_.size()));
    flight.work = communicator_.start(next);
    if (!flight.work.done()) return {};
    if (auto refused = flight.work.wait(); !refused) return give_up(in_bucket(refused.error(), *flight.bucket));
    return {};
}

Result<void> BucketPipeline::await(Flight& flight) {
    for (auto& work : flight.earlier) {
        if (auto over = await(work, *flight.bucket); !over) return over;
    }
    flight.earlier.clear();
    return await(flight.work, *flight.bucket);
}

Result<void> BucketPipeline::await(Work& work, const GradientBucket& bucket) {
    const ProfileRange range(exposed_wait);
    const Instant began = std::chrono::steady_clock::now();
    auto over = work.wait();
    meter_.add_exposed(std::chrono::steady_clock::now() - began);
    meter_.add_communication(work.took());
    work = Work();
    if (!over) return in_bucket(over.error(), bucket);
    return {};
}

Result<void> BucketPipeline::run(Operation operation) {
    operation.tag = tag_ | beside_buckets;
    return complete(operation);
}

void BucketPipeline::start(Operation operation) {
    operation.tag = tag_ | beside_buckets;
    meter_.add_bytes(input_bytes(operation, communicator_.size()));
    beside_ = communicator_.start(operation);
}

Result<void> BucketPipeline::complete(const Operation& operation) {
    meter_.add_bytes(input_bytes(operation, communicator_.size()));
    const ProfileRange range(exposed_wait);
    const Instant began = std::chrono::steady_clock::now();
    auto done = communicator_.run(operation);
    const Duration took = std::chrono::steady_clock::now() - began;
    meter_.add_exposed(took);
    meter_.add_communication(took);
    return done;
}

/// Ends the communicator if it has not failed itself: the other ranks wait for this rank's next collective and learn
/// why it does not come.
Error BucketPipeline::give_up(Error error) {
    if (communicator_.status()) communicator_.abort(error.context);
    return error;
}

Error BucketPipeline::in_bucket(Error error, const GradientBucket& bucket) {
    return with_context(std::move(error), cat("gradients of bucket ", bucket.index));
}

}  // namespace muster::runtime
