// The norm over all gradients.
#include <cmath>

#include "rendezvous/base/text.h"
#include "worker_runtime/engine/gradient_math.h"
#include "worker_runtime/engine/reducer_body.h"

namespace muster::runtime {

namespace {

/// The part of a slice that lies in the elements [begin, end) of its bucket.
Buffer part_of(const GradientBucket& bucket, const BucketSlice& slice, std::size_t begin, std::size_t end) {
    const std::size_t first = std::max(slice.offset, begin);
    const std::size_t last = std::min(slice.offset + slice.count, end);
    Buffer part = bucket.gradients;
    part.count = last > first ? last - first : 0;
    part.data = static_cast<std::byte*>(part.data) + first * size_of(part.type);
    return part;
}

}  // namespace

Result<double> ReducerBody::clip_grad_norm(double max_norm) {
    if (!failure_) return failure_.error();
    if (in_pass_) return in_step({Errc::invalid_argument, "clip_grad_norm() belongs after finish()"});
    if (!(max_norm > 0)) {
        return in_step({Errc::invalid_argument, cat("clip_grad_norm() needs a norm > 0, not ", max_norm)});
    }
    const bool pieces = options_.result == GradientResult::own_piece;
    const auto for_each_part = [&](const auto& visit) {
        for (const auto& bucket : arena_.buckets()) {
            const std::size_t piece =
                bucket.gradients.count / (pieces ? static_cast<std::size_t>(communicator_.size()) : 1);
            const std::size_t begin = pieces ? piece * static_cast<std::size_t>(communicator_.rank()) : 0;
            for (const auto& slice : bucket.slices) {
                if (used(slice.parameter)) visit(part_of(bucket, slice, begin, begin + piece));
            }
        }
    };
    double sum = 0;
    for_each_part([&](const Buffer& part) { sum += sum_of_squares(part); });
    if (pieces) {
        const Buffer all{.data = &sum, .count = 1, .type = DataType::f64};
        auto added = communicator_.run(all_reduce(all, ReduceOp::sum));
        if (!added) return fail(with_context(added.error(), "norm of the gradients")).error();
    }
    const double norm = std::sqrt(sum);
    if (norm > max_norm) {
        for_each_part([&](const Buffer& part) { scale(part, max_norm / norm); });
    }
    return norm;
}

}  // namespace muster::runtime
