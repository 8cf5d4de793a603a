#include "worker_runtime/capi/exchange.h"

#include <optional>
#include <string>
#include <vector>

#include "worker_runtime/capi/arguments.h"

namespace muster::capi {

namespace {

using Slices = std::vector<muster_bucket_slice>;

/// Far more than any exchange takes; a caller's nonsense must not become a loop without end.
constexpr int collective_count_max = 64;

muster_bucket shown(const GradientBucket& bucket, const Slices& slices) {
    return {.size = sizeof(muster_bucket),
            .index = bucket.index,
            .gradients = bucket.gradients.data,
            .count = bucket.gradients.count,
            .type = static_cast<int>(bucket.gradients.type),
            .samples = bucket.samples,
            .step = bucket.step,
            .slices = slices.data(),
            .slice_count = slices.size(),
            .ready = bucket.ready};
}

Result<Operation> read_collective(const muster_next& next, int world) {
    const auto type = MUSTER_TRY(read_type(next.type));
    const auto reduce = MUSTER_TRY(read_reduce(next.reduce));
    MUSTER_TRY(check_count(next.count, type, world));
    const auto count = next.count, all = count * static_cast<std::size_t>(world);
    const Buffer data{.data = next.output, .count = count, .type = type};
    switch (next.collective) {
        case MUSTER_NEXT_ALL_REDUCE: return all_reduce(data, reduce);
        case MUSTER_NEXT_ALL_REDUCE_WEIGHTED: return all_reduce_weighted(data, next.weight);
        case MUSTER_NEXT_REDUCE_SCATTER: return reduce_scatter({next.input, all, type}, data, reduce);
        case MUSTER_NEXT_ALL_GATHER: return all_gather({next.input, count, type}, {next.output, all, type});
        case MUSTER_NEXT_BROADCAST: return broadcast(data, next.root);
        case MUSTER_NEXT_ALL_TO_ALL: return all_to_all({next.input, all, type}, {next.output, all, type}, world);
        default: return invalid(cat(next.collective, " is not a collective; MUSTER_NEXT_... are 0 to 6"));
    }
}

class CallersExchange final : public BucketExchange {
  public:
    explicit CallersExchange(const muster_exchange& given) : given_(given), name_(given.name) { given_.name = nullptr; }

    [[nodiscard]] std::string name() const override { return name_; }

    Result<void> prepare(const ExchangeTerms& terms, std::span<const GradientBucket> buckets) override {
        world_ = terms.world;
        slices_.clear();
        for (const auto& bucket : buckets) {
            auto& slices = slices_.emplace_back();
            for (const auto& slice : bucket.slices) slices.push_back({slice.parameter, slice.offset, slice.count});
        }
        if (given_.prepare == nullptr) return {};
        std::vector<muster_bucket> all;
        for (std::size_t i = 0; i < buckets.size(); ++i) all.push_back(shown(buckets[i], slices_[i]));
        std::vector<const muster_bucket*> pointers;
        for (const auto& one : all) pointers.push_back(&one);
        return done("prepare()", given_.prepare(given_.argument, pointers.data(), pointers.size()));
    }

    [[nodiscard]] int collective_count(const GradientBucket& bucket) const override {
        if (given_.collective_count == nullptr) return 1;
        const auto own = shown(bucket, slices_[bucket.index]);
        const int count = given_.collective_count(given_.argument, &own);
        if (count >= 0 && count <= collective_count_max) return count;
        wrong_count_ = count;  // which advance() refuses
        return 0;
    }

    Result<std::optional<Operation>> advance(const GradientBucket& bucket, int stage) override {
        if (wrong_count_)
            return Error{Errc::invalid_argument, cat("collective_count() of exchange ", name_, " returned ",
                                                     *wrong_count_, "; 0 to ", collective_count_max, " are valid")};
        const auto own = shown(bucket, slices_[bucket.index]);
        muster_next next = {};
        next.size = sizeof next;
        const auto status = given_.advance(given_.argument, &own, stage, &next);
        MUSTER_TRY(done(cat("advance() of exchange ", name_), status));
        if (next.collective == MUSTER_NEXT_NONE) return std::optional<Operation>();
        auto operation = read_collective(next, world_);
        if (!operation) return with_context(operation.error(), cat("exchange ", name_, ", stage ", stage));
        operation->after = next.after;
        return std::optional(*operation);
    }

    void keep(std::vector<std::byte>& to) const override {
        if (given_.keep == nullptr) return;
        const auto before = to.size();
        to.resize(before + given_.keep(given_.argument, nullptr));
        if (to.size() > before) (void)given_.keep(given_.argument, to.data() + before);
    }

    bool restore(std::span<const std::byte> from) override {
        if (given_.restore == nullptr) return from.empty();
        return given_.restore(given_.argument, from.data(), from.size()) != 0;
    }

  private:
    [[nodiscard]] static Result<void> done(std::string_view function, muster_status status) {
        if (status == MUSTER_OK) return {};
        return Error{Errc::cancelled, cat(function, " returned ", status, " (", muster_status_name(status), ")")};
    }

    muster_exchange given_;
    const std::string name_;
    int world_ = 1;
    std::vector<Slices> slices_;  ///< Indexed by bucket.
    mutable std::optional<int> wrong_count_{};
};

}  // namespace

Result<std::shared_ptr<BucketExchange>> read_exchange(const muster_exchange* given) {
    if (given == nullptr) return std::shared_ptr<BucketExchange>();
    const auto exchange = read(given);
    if (!exchange) return with_context(exchange.error(), "`exchange`");
    if (exchange->name == nullptr || exchange->advance == nullptr)
        return invalid("an exchange needs a `name` and `advance`");
    if ((exchange->keep == nullptr) != (exchange->restore == nullptr))
        return invalid("an exchange needs both `keep` and `restore`, or neither");
    return std::shared_ptr<BucketExchange>(std::make_shared<CallersExchange>(*exchange));
}

}  // namespace muster::capi
