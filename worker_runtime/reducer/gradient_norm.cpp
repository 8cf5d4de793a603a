// The norm over all gradients. On a GPU kernels compute it; without kernels the gradients are copied to the host.
#include <algorithm>
#include <cmath>
#include <vector>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/arithmetic/gradient_math.h"
#include "worker_runtime/reducer/reducer_body.h"
#include "worker_runtime/transport/device_queue.h"

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

/// GPU memory is copied to the host in pieces of this size.
constexpr std::size_t reduced_at_once = std::size_t{8} << 20;

enum class Copied { there, there_and_back };

/// Visits `part`, which is on a GPU, piece by piece in host memory.
Result<void> brought(DeviceQueue& device, Duration timeout, const Buffer& part, Copied copied, auto&& visit) {
    std::vector<std::byte> room(std::min(reduced_at_once, part.size_bytes()));
    const std::size_t most = reduced_at_once / size_of(part.type);
    for (std::size_t at = 0; at < part.count; at += most) {
        Buffer piece{.data = room.data(), .count = std::min(most, part.count - at), .type = part.type};
        auto* const there = static_cast<std::byte*>(part.data) + at * size_of(part.type);
        MUSTER_TRY(device.copy(room.data(), there, piece.size_bytes()));
        MUSTER_TRY(device.finish(timeout));
        visit(piece);
        if (copied == Copied::there) continue;
        MUSTER_TRY(device.copy(there, room.data(), piece.size_bytes()));
        MUSTER_TRY(device.finish(timeout));
    }
    return {};
}

/// Visits the parts in place, or copied to host memory.
Result<void> on_host(DeviceQueue* device, Duration timeout, const std::vector<Buffer>& parts, Copied copied,
                     auto&& visit) {
    for (const auto& part : parts) {
        if (!device) {
            visit(part);
        } else {
            MUSTER_TRY(brought(*device, timeout, part, copied, visit));
        }
    }
    return {};
}

}  // namespace

Result<double> ReducerBody::clip_grad_norm(double max_norm, void* after) {
    if (!(max_norm > 0)) {
        return in_step({Errc::invalid_argument, cat("clip_grad_norm() needs a norm > 0, not ", max_norm)});
    }
    const auto norm = norm_after_finish("clip_grad_norm()", after);
    if (!norm || !(*norm > max_norm)) return norm;
    const auto scaled = scale_parts(used_parts(options_.result == GradientResult::own_piece), max_norm / *norm);
    if (!scaled) return fail(with_context(scaled.error(), "norm of the gradients")).error();
    return norm;
}

Result<bool> ReducerBody::scale_gradients(double factor, void* after) {
    if (!(factor > 0) || !std::isfinite(factor))
        return in_step({Errc::invalid_argument, cat("scale_gradients() needs a finite factor > 0, not ", factor)});
    if (options_.wire == WireFormat::int8 || options_.wire == WireFormat::power)
        return in_step(
            {Errc::invalid_argument,
             "scale_gradients() does not work with the wires int8 and power, because an infinity would stay in "
             "the rounding errors that they keep; use the wire same, bf16 or f16"});
    const auto norm = MUSTER_TRY(norm_after_finish("scale_gradients()", after));
    if (!std::isfinite(norm)) return false;
    const auto scaled = scale_parts(used_parts(options_.result == GradientResult::own_piece), factor);
    if (!scaled) return fail(with_context(scaled.error(), "scale the gradients")).error();
    return true;
}

/// Equal on all ranks, and not finite if an average is not.
Result<double> ReducerBody::norm_after_finish(const char* function, void* after) {
    if (!failure_) return failure_.error();
    if (in_pass_) return in_step({Errc::invalid_argument, cat(function, " must be called after finish()")});
    if (after != nullptr) {
        MUSTER_TRY(wait_on_device(after));
    }
    // If each rank would have to copy all averages from its GPU, the ranks divide them among themselves.
    const bool divided = options_.result == GradientResult::own_piece || device_;
    double sum = 0;
    auto done = add_squares(used_parts(divided), sum);
    if (done && divided) {
        const Buffer all{.data = &sum, .count = 1, .type = DataType::f64};
        done = communicator_.run(all_reduce(all, ReduceOp::sum));
    }
    if (!done) return fail(with_context(done.error(), "norm of the gradients")).error();
    return std::sqrt(sum);
}

/// The gradients of all used parameters; with `own`, only the part in this rank's pieces.
std::vector<Buffer> ReducerBody::used_parts(bool own) const {
    const auto world = static_cast<std::size_t>(communicator_.size());
    std::vector<Buffer> parts;
    for (const auto& bucket : arena_.buckets()) {
        const std::size_t piece = own ? (bucket.gradients.count + world - 1) / world : bucket.gradients.count;
        const std::size_t begin = own ? piece * static_cast<std::size_t>(communicator_.rank()) : 0;
        bool joined = false;
        for (const auto& slice : bucket.slices) {
            const Buffer part = part_of(bucket, slice, begin, begin + piece);
            const bool counts = used(slice.parameter) && part.count > 0;
            // One kernel processes adjacent slices together: the padding between them is zero.
            if (counts && joined) {
                parts.back().count = static_cast<std::size_t>(static_cast<std::byte*>(part.data) -
                                                              static_cast<std::byte*>(parts.back().data)) /
                                         size_of(part.type) +
                                     part.count;
            } else if (counts) {
                parts.push_back(part);
            }
            joined = counts && kernels_;
        }
    }
    return parts;
}

Result<void> ReducerBody::add_squares(const std::vector<Buffer>& parts, double& sum) {
    if (!kernels_) {
        return on_host(device_, communicator_.timeout(), parts, Copied::there,
                       [&](const Buffer& part) { sum += sum_of_squares(part); });
    }
    auto done = device_norm_.begin();
    for (const auto& part : parts) {
        if (done) done = device_norm_.add(part);
    }
    if (!done) return done;
    sum = MUSTER_TRY(device_norm_.total());
    return {};
}

Result<void> ReducerBody::scale_parts(const std::vector<Buffer>& parts, double factor) {
    if (!kernels_) {
        return on_host(device_, communicator_.timeout(), parts, Copied::there_and_back,
                       [&](const Buffer& part) { scale(part, factor); });
    }
    for (const auto& part : parts) {
        MUSTER_TRY(device_norm_.scale(part, factor));
    }
    return device_norm_.finish();
}

}  // namespace muster::runtime
