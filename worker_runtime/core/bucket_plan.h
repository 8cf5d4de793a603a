// Assigns gradients to buckets: a pure function of the parameters, an order and the caps. Ranks that agree on these
// have the same buckets.
//
// The rule is PyTorch's (Li et al., "PyTorch Distributed", VLDB 2020), with strict caps: take the parameters in the
// expected order of their gradients; keep one open bucket for each data type; close it before it would exceed its cap.
// The first bucket of a type is small, so that communication starts early. A tensor larger than the cap gets its own
// bucket. Three things are ours:
//   - Buckets are sorted by the position of their last parameter, which is when they can be launched.
//   - The last bucket is cut to `last_bytes` where parameter borders allow, because nothing hides its all-reduce.
//   - Parameters that no rank has used recently are at the end of the order, in their own buckets (`rare`). These are
//     reduced at the end of a step, and only if a rank used one, so they delay no other bucket.
//
// All buckets are in one arena, each aligned to a page; inside, gradients are aligned to a cache line (PyTorch aligns
// neither).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/parameter.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster::runtime {

inline constexpr std::size_t gradient_alignment_bytes = 64;
inline constexpr std::size_t bucket_alignment_bytes = 4096;

struct BucketCaps {
    std::size_t first_bytes = std::size_t{1} << 20;
    std::size_t cap_bytes = std::size_t{25} << 20;
    std::size_t last_bytes = std::size_t{1} << 20;
    /// A bucket's size is a multiple of this times the alignment: the world where buckets are cut into a piece for each
    /// rank, else 1.
    std::size_t pieces = 1;
};

/// `caps` as fits a group whose all-reduce takes `latency` + bytes / `bytes_per_second`: buckets so large that latency
/// is 5 % of their time, and ends of an eighth of that. Between 1 and 256 MiB.
BucketCaps caps_for(Duration latency, double bytes_per_second, BucketCaps caps);

/// Expected order of the gradients: every parameter's index once.
struct ParameterOrder {
    std::vector<std::int32_t> parameters;
    std::size_t rare_count = 0;  ///< so many at the end were not used lately
};

struct PlannedBucket {
    DataType type = DataType::f32;
    bool rare = false;
    std::vector<std::int32_t> parameters;  ///< In the order of their position.
    std::size_t start_bytes = 0;           ///< Offset in the arena.
    std::size_t size_bytes = 0;            ///< with padding; never 0
};

struct GradientPlace {
    std::int32_t bucket = 0;
    std::size_t offset_bytes = 0;  ///< Offset in the bucket.
    std::size_t count = 0;         ///< elements
};

struct BucketPlan {
    std::vector<PlannedBucket> buckets;  ///< In launch order, the rare ones at the end.
    std::size_t regular_count = 0;       ///< buckets that are not rare
    std::vector<GradientPlace> places;   ///< Place of each parameter.
    std::size_t arena_bytes = 0;
    std::uint64_t hash = 0;  ///< Hash of all of it, and of the parameters' names, shapes and types.
};

/// The order to begin with: last registered first, as backward passes go.
ParameterOrder reverse_order(std::size_t parameter_count);

/// `order` must be complete (see decode_order()), the parameters checked.
BucketPlan plan_buckets(std::span<const Parameter> parameters, const ParameterOrder& order, const BucketCaps& caps);

/// For a peer; decode_order() gives bad_frame unless it is a complete order of `parameter_count` parameters.
std::string encode(const ParameterOrder& order);
Result<ParameterOrder> decode_order(std::string_view bytes, std::size_t parameter_count);

/// From numbers; nothing unless they are a complete order of as many parameters.
std::optional<ParameterOrder> order_of(std::span<const std::int64_t> parameters, std::int64_t rare_count);

/// The size of every encoded order of that many parameters.
std::size_t encoded_order_bytes(std::size_t parameter_count);

}  // namespace muster::runtime
