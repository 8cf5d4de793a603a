#include "worker_runtime/core/bucket_plan.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "rendezvous/base/check.h"
#include "rendezvous/base/text/bytes.h"
#include "worker_runtime/core/registration.h"

namespace muster::runtime {

namespace {

std::size_t round_up(std::size_t value, std::size_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

/// At least one line, so that no bucket is empty.
std::size_t padded_bytes(const Parameter& parameter) {
    const std::size_t bytes = element_count(parameter) * size_of(parameter.type);
    return std::max(round_up(bytes, gradient_alignment_bytes), gradient_alignment_bytes);
}

/// Fills buckets of one kind (regular or rare) from a run of the order.
class Filler {
  public:
    /// `positions`: of each parameter in the order.
    Filler(std::span<const Parameter> parameters, const BucketCaps& caps, const std::vector<std::size_t>& positions,
           bool rare)
        : parameters_(parameters), caps_(caps), positions_(positions), rare_(rare) {}

    void add(std::int32_t index) {
        const auto& parameter = parameters_[static_cast<std::size_t>(index)];
        auto& open = open_[static_cast<std::size_t>(parameter.type)];
        const std::size_t bytes = padded_bytes(parameter);
        const bool first = !started_[static_cast<std::size_t>(parameter.type)];
        const std::size_t cap = first && !rare_ ? std::min(caps_.first_bytes, caps_.cap_bytes) : caps_.cap_bytes;
        if (open.size_bytes + bytes > cap) close(parameter.type);
        open.parameters.push_back(index);
        open.size_bytes += bytes;
    }

    /// All buckets, by the position of their last parameter.
    std::vector<PlannedBucket> finish() {
        for (int type = 0; type < data_type_count; ++type) close(static_cast<DataType>(type));
        sort();
        if (!rare_) cut_last();
        std::vector<PlannedBucket> buckets;
        for (auto& each : closed_) {
            buckets.push_back({.type = each.type, .rare = rare_, .parameters = std::move(each.parameters)});
        }
        return buckets;
    }

  private:
    struct Open {
        DataType type = DataType::f32;
        std::vector<std::int32_t> parameters;
        std::size_t size_bytes = 0;
    };

    [[nodiscard]] std::size_t last_position(const Open& bucket) const {
        return positions_[static_cast<std::size_t>(bucket.parameters.back())];
    }

    void sort() {
        std::sort(closed_.begin(), closed_.end(),
                  [this](const Open& a, const Open& b) { return last_position(a) < last_position(b); });
    }

    void close(DataType type) {
        auto& open = open_[static_cast<std::size_t>(type)];
        if (open.parameters.empty()) return;
        open.type = type;
        closed_.push_back(std::move(open));
        open = Open{};
        started_[static_cast<std::size_t>(type)] = true;
    }

    /// The trailing parameters that fit into `last_bytes` become a bucket of their own.
    void cut_last() {
        if (closed_.empty() || closed_.back().size_bytes <= caps_.last_bytes) return;
        auto& whole = closed_.back();
        Open tail{.type = whole.type, .parameters = {}, .size_bytes = 0};
        std::size_t kept = whole.parameters.size();
        while (kept > 1) {
            const std::size_t bytes = padded_bytes(parameters_[static_cast<std::size_t>(whole.parameters[kept - 1])]);
            if (tail.size_bytes + bytes > caps_.last_bytes) break;
            tail.size_bytes += bytes;
            --kept;
        }
        if (kept == whole.parameters.size()) return;
        const auto border = whole.parameters.begin() + static_cast<std::ptrdiff_t>(kept);
        tail.parameters.assign(border, whole.parameters.end());
        whole.parameters.erase(border, whole.parameters.end());
        closed_.push_back(std::move(tail));
        sort();
    }

    std::span<const Parameter> parameters_;
    const BucketCaps& caps_;
    const std::vector<std::size_t>& positions_;
    bool rare_;
    std::array<Open, data_type_count> open_{};
    std::array<bool, data_type_count> started_{};
    std::vector<Open> closed_;
};

/// Gives every bucket and gradient its place.
void lay_out(BucketPlan& plan, std::span<const Parameter> parameters, const BucketCaps& caps) {
    plan.places.resize(parameters.size());
    for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
        auto& bucket = plan.buckets[b];
        bucket.start_bytes = plan.arena_bytes;
        for (const auto index : bucket.parameters) {
            const auto& parameter = parameters[static_cast<std::size_t>(index)];
            plan.places[static_cast<std::size_t>(index)] = {.bucket = static_cast<std::int32_t>(b),
                                                            .offset_bytes = bucket.size_bytes,
                                                            .count = element_count(parameter)};
            bucket.size_bytes += padded_bytes(parameter);
        }
        bucket.size_bytes = round_up(bucket.size_bytes, gradient_alignment_bytes * caps.pieces);
        plan.arena_bytes += round_up(bucket.size_bytes, bucket_alignment_bytes);
    }
}

std::uint64_t hash_of(const BucketPlan& plan, std::span<const Parameter> parameters) {
    std::string bytes = encode(Registration{.parameters = {parameters.begin(), parameters.end()}, .settings = {}});
    ByteWriter writer(bytes);
    for (const auto& bucket : plan.buckets) {
        writer.number(static_cast<std::uint8_t>(bucket.type));
        writer.number(static_cast<std::uint8_t>(bucket.rare));
        writer.number(static_cast<std::uint64_t>(bucket.start_bytes));
        writer.number(static_cast<std::uint64_t>(bucket.size_bytes));
        for (const auto index : bucket.parameters) writer.number(index);
    }
    return hash_bytes(bytes);
}

bool is_complete(const ParameterOrder& order, std::size_t parameter_count) {
    std::vector<bool> seen(parameter_count);
    for (const auto index : order.parameters) {
        if (index < 0 || static_cast<std::size_t>(index) >= parameter_count || seen[static_cast<std::size_t>(index)]) {
            return false;
        }
        seen[static_cast<std::size_t>(index)] = true;
    }
    return order.parameters.size() == parameter_count && order.rare_count <= parameter_count;
}

}  // namespace

BucketCaps caps_for(Duration latency, double bytes_per_second, BucketCaps caps) {
    constexpr double latency_share = 0.05;
    constexpr std::size_t mib = std::size_t{1} << 20;
    const double bytes = std::chrono::duration<double>(latency).count() * bytes_per_second / latency_share;
    caps.cap_bytes = static_cast<std::size_t>(std::clamp<double>(bytes, mib, 256 * mib)) / mib * mib;
    caps.first_bytes = std::max(caps.cap_bytes / 8, mib / 4);
    caps.last_bytes = caps.first_bytes;
    return caps;
}

ParameterOrder reverse_order(std::size_t parameter_count) {
    ParameterOrder order{.parameters = std::vector<std::int32_t>(parameter_count), .rare_count = 0};
    std::iota(order.parameters.rbegin(), order.parameters.rend(), 0);
    return order;
}

BucketPlan plan_buckets(std::span<const Parameter> parameters, const ParameterOrder& order, const BucketCaps& caps) {
    MUSTER_CHECK(is_complete(order, parameters.size()), order.parameters.size(), parameters.size());
    std::vector<std::size_t> positions(parameters.size());
    for (std::size_t i = 0; i < positions.size(); ++i) positions[static_cast<std::size_t>(order.parameters[i])] = i;
    BucketPlan plan;
    Filler regular(parameters, caps, positions, false);
    Filler rare(parameters, caps, positions, true);
    const std::size_t border = parameters.size() - order.rare_count;
    for (std::size_t i = 0; i < parameters.size(); ++i) (i < border ? regular : rare).add(order.parameters[i]);
    plan.buckets = regular.finish();
    plan.regular_count = plan.buckets.size();
    for (auto& bucket : rare.finish()) plan.buckets.push_back(std::move(bucket));
    lay_out(plan, parameters, caps);
    plan.hash = hash_of(plan, parameters);
    return plan;
}

std::size_t encoded_order_bytes(std::size_t parameter_count) {
    return sizeof(std::uint32_t) + parameter_count * sizeof(std::int32_t);
}

std::string encode(const ParameterOrder& order) {
    std::string bytes;
    ByteWriter writer(bytes);
    writer.number(static_cast<std::uint32_t>(order.rare_count));
    for (const auto index : order.parameters) writer.number(index);
    return bytes;
}

std::optional<ParameterOrder> order_of(std::span<const std::int64_t> parameters, std::int64_t rare_count) {
    ParameterOrder order;
    for (const auto parameter : parameters) {
        if (parameter < 0 || parameter >= static_cast<std::int64_t>(parameters.size())) return std::nullopt;
        order.parameters.push_back(static_cast<std::int32_t>(parameter));
    }
    order.rare_count = static_cast<std::size_t>(rare_count);
    return rare_count >= 0 && is_complete(order, parameters.size()) ? std::optional(std::move(order)) : std::nullopt;
}

Result<ParameterOrder> decode_order(std::string_view bytes, std::size_t parameter_count) {
    ByteReader reader(bytes);
    ParameterOrder order;
    order.rare_count = reader.number<std::uint32_t>();
    while (reader.ok() && reader.remaining() > 0) order.parameters.push_back(reader.number<std::int32_t>());
    if (!reader.ok() || !is_complete(order, parameter_count)) {
        return Error{Errc::bad_frame, "a peer's order of parameters is damaged"};
    }
    return order;
}

}  // namespace muster::runtime
