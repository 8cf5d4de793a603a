// The implementation of GradientReducer. The cores decide (plan, schedule, learned order); this class connects them
// with the communicator, the memory and the clock.
//
// One step:
//   begin()        new buckets, when the ranks agreed on them at the end of the step before; the schedule starts afresh
//   mark_ready()   hot: a few atomic operations. The mark that completes a bucket launches what the schedule allows
//   finish()       what is not marked is zeroed; the remaining buckets are launched, the last of them in this thread
//                  (where gradients lie on a GPU, behind it, see reducer_device.cpp);
//                  then the control block (core/step_control.h) tells all ranks what all used, and rare buckets that
//                  some rank used follow; then everything is waited for
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "muster/gradient_reducer.h"
#include "worker_runtime/communicator/profile_range.h"
#include "worker_runtime/core/bucket_plan.h"
#include "worker_runtime/core/bucket_schedule.h"
#include "worker_runtime/core/order_learner.h"
#include "worker_runtime/core/registration.h"
#include "worker_runtime/core/step_control.h"
#include "worker_runtime/core/step_meter.h"
#include "worker_runtime/core/used_parameters.h"
#include "worker_runtime/reducer/bucket_pipeline.h"
#include "worker_runtime/reducer/device_finite_check.h"
#include "worker_runtime/reducer/device_norm.h"
#include "worker_runtime/reducer/gradient_arena.h"

namespace muster::runtime {

enum class PassKind {
    local,
    synchronised,
    company,  ///< averaged, but this rank has no batch: it takes part with weight 0
};

class ReducerBody {
  public:
    ReducerBody(Communicator& communicator, std::vector<Parameter> parameters, const ReducerOptions& options);

    /// The parts of make() that can fail.
    Result<void> set_up();

    Result<Layout> begin(PassKind kind, float samples);
    Result<void> mark_ready(std::int32_t parameter, void* after);
    Result<void> finish();
    Result<void> join(const std::function<Result<void>()>& apply);

    void keep(ReducerState& to) const;
    Result<void> restore(const ReducerState& from);

    Result<double> clip_grad_norm(double max_norm, void* after);
    Result<bool> scale_gradients(double factor, void* after);
    Result<void> zero_gradients(void* after);

    [[nodiscard]] Buffer gradient(std::int32_t parameter) const { return arena_.gradient(parameter); }
    [[nodiscard]] bool used(std::int32_t parameter) const { return used_[static_cast<std::size_t>(parameter)]; }
    [[nodiscard]] std::span<const GradientBucket> buckets() const { return arena_.buckets(); }
    [[nodiscard]] std::span<const Parameter> parameters() const { return parameters_; }
    [[nodiscard]] const ReducerOptions& options() const { return options_; }
    [[nodiscard]] Communicator& communicator() const { return communicator_; }
    [[nodiscard]] std::uint64_t step_count() const { return step_ - first_step_; }
    [[nodiscard]] StepMeter& meter() { return meter_; }
    [[nodiscard]] CostSummary costs() const;
    [[nodiscard]] std::string description() const;

  private:
    [[nodiscard]] Result<void> check_options() const;
    [[nodiscard]] Result<void> check_device() const;
    [[nodiscard]] Registration registration() const;
    [[nodiscard]] ExchangeTerms exchange_terms() const;
    Result<void> choose_caps();
    void log_buckets() const;
    Result<void> take_order(ParameterOrder order);
    Result<Layout> make_buckets_anew();
    Result<ParameterOrder> agree_on_order();

    [[nodiscard]] Operation ask_for_life() const;
    void log_live();
    void send_weights();
    Result<void> wait_on_device(void* after);
    Result<void> launch_behind_device(GradientBucket& bucket);
    Result<void> finish_on_device();
    Result<void> set_to_zero(const Buffer& gradient);
    [[nodiscard]] std::vector<Buffer> used_parts(bool own) const;
    Result<double> norm_after_finish(const char* function, void* after);
    Result<void> add_squares(const std::vector<Buffer>& parts, double& sum);
    Result<void> scale_parts(const std::vector<Buffer>& parts, double factor);
    Result<void> launch(BucketRange range);
    Result<void> finish_synchronised();
    Result<void> tell_and_learn();
    Result<void> launch_rare();
    Result<void> zero_unmarked(const GradientBucket& bucket);
    Result<void> note_not_finite(const GradientBucket& bucket);
    Result<void> take_not_finite();
    [[nodiscard]] bool used_here(std::int32_t parameter) const;
    [[nodiscard]] Result<void> report_unsound() const;
    void end_step();
    Result<void> marked_wrongly(std::int32_t parameter) const;
    Result<void> fail(Error error);
    [[nodiscard]] Error in_step(Error error) const;
    /// Checks for calls that an exchange must not make.
    [[nodiscard]] Result<void> check_outside() const;

    Communicator& communicator_;
    std::vector<Parameter> parameters_;
    ReducerOptions options_;
    DeviceQueue* const device_;  ///< the GPU queue if gradients are on a GPU; else null
    std::shared_ptr<BucketExchange> exchange_;
    BucketCaps caps_;

    ParameterOrder order_;  ///< the order from which the plan was made
    BucketPlan plan_;
    GradientArena arena_;
    std::unique_ptr<BucketSchedule> schedule_;
    std::unique_ptr<OrderLearner> learner_;  ///< on rank 0 only
    UsedParameters usage_;
    bool new_buckets_due_ = false;  ///< the same on all ranks

    Memory control_memory_;
    std::optional<StepControl> control_;
    std::uint8_t* live_ = nullptr;  ///< one byte of control memory: 1 if this rank has a batch

    float samples_ = 1;           ///< samples of this rank in the step
    std::vector<float> weights_;  ///< if gradients are on a GPU: samples of all ranks
    bool kernels_ = false;        ///< true if kernels can be launched on the gradients
    DeviceFiniteCheck device_check_;
    DeviceNorm device_norm_;

    StepMeter meter_;
    /// Serialises launches, because several threads may complete buckets at once. Guards failure_ during marks.
    mutable std::mutex launching_;
    BucketPipeline pipeline_;  ///< declared after all memory that its work uses

    std::atomic<bool> in_pass_ = false;  ///< a failed launch resets it while other threads mark
    ProfileRange step_range_;
    std::atomic<bool> behind_events_ = false;  ///< the device's queue runs after the caller's work of this step
    PassKind kind_ = PassKind::local;
    std::uint64_t step_ = 0;
    std::uint64_t first_step_ = 0;     ///< first step of this reducer: above 0 after a restore
    bool layout_changed_ = false;      ///< since the last averaged step
    std::vector<bool> marked_before_;  ///< in local steps since the last averaged one
    bool any_marked_before_ = false;
    std::vector<bool> used_;  ///< by any rank, in the last averaged step
    std::vector<std::int32_t> not_finite_;
    Result<void> failure_;
};

/// The exchange that the options name. invalid_argument: the options contradict each other. `on_device`: gradients are
/// on a GPU.
Result<std::shared_ptr<BucketExchange>> make_exchange(const ReducerOptions& options, bool on_device);

}  // namespace muster::runtime
