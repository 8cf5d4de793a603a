// A reducer whose gradients are on a GPU. The host never touches them; its work on them is put into the
// communicator's DeviceQueue, a stream of the reducer's own:
//
//   mark_ready(i, event)  the queue waits for the event
//   launch of a bucket    the bucket's event is recorded there, behind all gradients marked so far and the zeroes of
//                         those that were not; the bucket's collective waits for it on the GPU (Operation::after)
//   finish()              waits on the host until the queue, and so the backward pass, is complete: that is compute
//                         time. What the collectives need longer is exposed time
//
// Collectives run one after another on the communicator's stream without the host (communicator_lane.cpp). So the
// weights of all ranks (their samples) must be known before: they are exchanged when the step begins.
#include "muster/communicator.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/arithmetic/gradient_math.h"
#include "worker_runtime/reducer/reducer_body.h"
#include "worker_runtime/transport/device_queue.h"

namespace muster::runtime {

void ReducerBody::send_weights() {
    if (!device_) return;
    if (communicator_.size() == 1) {
        weights_.front() = samples_;
    } else {
        pipeline_.start(all_gather({&samples_, 1, DataType::f32}, buffer(std::span<float>(weights_))));
    }
}

Result<void> ReducerBody::wait_on_device(void* after) {
    if (!device_) {
        return in_step(
            {Errc::invalid_argument, cat("a CUDA event was given, but gradients are in host memory (",
                                         communicator_.transport(), "): wait for the GPU and pass no event")});
    }
    auto waits = device_->wait_for(after);
    if (!waits) return in_step(waits.error());
    behind_events_ = true;
    return {};
}

Result<void> ReducerBody::set_to_zero(const Buffer& gradient) {
    if (!device_) {
        set_zero(gradient);
        return {};
    }
    // The optimizer of the previous step may still read it. An event of this step's backward pass comes after that.
    if (!behind_events_.exchange(true)) {
        if (auto settled = device_->settle(); !settled) return settled;
    }
    return device_->fill_zero(gradient.data, gradient.size_bytes());
}

Result<void> ReducerBody::launch_behind_device(GradientBucket& bucket) {
    bucket.ready = MUSTER_TRY(device_->mark(bucket.index));
    return pipeline_.launch(bucket, Launch::start);
}

Result<void> ReducerBody::finish_on_device() {
    if (!device_) return {};
    auto over = device_->finish(communicator_.timeout());
    return over && options_.finite_check == FiniteCheck::on ? take_not_finite() : over;
}

Result<void> ReducerBody::take_not_finite() {
    for (const auto parameter : MUSTER_TRY(device_check_.found())) {
        if (used_here(parameter)) not_finite_.push_back(parameter);
    }
    return {};
}

Result<void> ReducerBody::zero_gradients(void* after) {
    if (after != nullptr) {
        if (auto waits = wait_on_device(after); !waits) return waits;
    }
    return arena_.clear();
}

}  // namespace muster::runtime
