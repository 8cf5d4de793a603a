#include "tests/gpu/device_training.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "rendezvous/base/text/text.h"
#include "tests/gpu/gpu_ranks.h"
#include "tests/gpu/training_story.h"
#include "tests/unit/worker_runtime/reducer/reducer_story.h"
#include "worker_runtime/arithmetic/half_formats.h"
#include "worker_runtime/core/registration.h"
#include "worker_runtime/transport/device_queue.h"
#include "worker_runtime/wires/power_plan.h"

namespace muster::test {

namespace {

constexpr std::size_t slow_bytes = std::size_t{8} << 20;

double element(DataType type, const std::vector<std::byte>& bytes, std::size_t i) {
    const auto read = [&](auto value) {
        std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
        return value;
    };
    switch (type) {
        case DataType::f64: return read(double{});
        case DataType::bf16: return static_cast<double>(runtime::f32_of_bf16(read(std::uint16_t{})));
        default: return static_cast<double>(read(float{}));
    }
}

/// This rank's model, and its way to the GPU.
class Trainer {
  public:
    Trainer(Communicator& world, const DeviceTraining& how)
        : world_(world), how_(how), story_{how, world.size()}, list_(mixed_parameters()) {
        if (compressed()) on_host_ = train_on_host(story_);
    }

    std::string train();
    std::string set_up();
    std::string compare_average(std::uint64_t step);
    std::string write_all(std::uint64_t step);
    GradientReducer& reducer() { return *reducer_; }
    std::vector<std::byte> averaged(std::uint64_t step, std::size_t parameter) const;
    std::vector<std::byte> read(int parameter) const;

  private:
    [[nodiscard]] bool compressed() const { return how_.options.wire != WireFormat::same; }
    [[nodiscard]] bool has_host_bits(std::size_t parameter) const;
    [[nodiscard]] std::string compare_state();
    [[nodiscard]] std::string explain_end(std::uint64_t number, const Result<void>& finished);
    std::string give(std::size_t parameter, const std::vector<std::byte>& values);
    std::string step(std::uint64_t number);

    Communicator& world_;
    const DeviceTraining& how_;
    TrainingStory story_;
    HostRun on_host_;  ///< where the wire is compressed
    std::vector<Parameter> list_;
    Memory weights_;
    Memory room_;  ///< values on their way, of each parameter at its own place
    Memory slow_;
    std::vector<std::size_t> places_;
    std::unique_ptr<GpuMemoryAccess> gpu_;
    std::optional<GradientReducer> reducer_;
};

std::string Trainer::set_up() {
    std::size_t total = 0;
    for (const auto& parameter : list_) {
        places_.push_back(total);
        total += (runtime::element_count(parameter) * size_of(parameter.type) + 255) / 256 * 256;
    }
    for (auto* const memory : {&weights_, &room_, &slow_}) {
        auto taken = world_.allocate(memory == &slow_ ? slow_bytes : total);
        if (!taken) return taken.error().context;
        *memory = std::move(*taken);
    }
    auto gpu = GpuMemoryAccess::open(0);
    if (!gpu) return gpu.error().context;
    gpu_ = std::move(*gpu);
    for (std::size_t i = 0; i < list_.size(); ++i) {
        list_[i].data = weights_.data() + places_[i];
        const auto values = made_up(list_[i].type, runtime::element_count(list_[i]),
                                    i + static_cast<std::uint64_t>(1000 * world_.rank()));
        if (auto written = gpu_->write(list_[i].data, values.data(), values.size()); !written)
            return complaint(written);
    }
    auto made = GradientReducer::make(world_, list_, how_.options);
    if (!made) return made.error().context;
    reducer_ = std::move(*made);
    for (std::size_t i = 0; i < list_.size(); ++i) {
        const auto expected = made_up(list_[i].type, runtime::element_count(list_[i]), i);
        std::vector<std::byte> found(expected.size());
        if (auto read = gpu_->read(found.data(), list_[i].data, found.size()); !read) return complaint(read);
        if (found != expected) return cat("parameter ", i, " is not rank 0's");
    }
    return "";
}

/// Puts the values where the gradient lies, after a while, and marks it.
std::string Trainer::give(std::size_t parameter, const std::vector<std::byte>& values) {
    const auto gradient = reducer_->gradient(static_cast<int>(parameter));
    auto* const room = room_.data() + places_[parameter];
    if (auto written = gpu_->write(room, values.data(), values.size()); !written) return complaint(written);
    for (int i = 0; i < 4; ++i) {
        if (auto slow = gpu_->begin_fill(slow_.data(), i, slow_bytes); !slow) return complaint(slow);
    }
    auto event = gpu_->begin_copy(gradient.data, room, values.size());
    if (!event) return complaint(event);
    if (how_.with_events) return complaint(reducer_->mark_ready(static_cast<int>(parameter), *event));
    std::byte ignored{};
    if (auto waited = gpu_->read(&ignored, slow_.data(), 1); !waited) return complaint(waited);
    return complaint(reducer_->mark_ready(static_cast<int>(parameter)));
}

std::string Trainer::step(std::uint64_t number) {
    const int rank = world_.rank();
    const auto give_all = [&](const std::vector<std::size_t>& parameters) -> std::string {
        for (const auto i : parameters) {
            if (auto wrong = give(i, story_.own(number, rank, i)); !wrong.empty()) return wrong;
        }
        return "";
    };
    if (how_.local_steps) {
        auto begun = reducer_->begin_local_step();
        if (!begun) return complaint(begun);
        // Half of the gradient: the step adds nothing to it, so that the average is the same.
        if (auto wrong = give_all(story_.given_before(number, rank)); !wrong.empty()) return wrong;
        if (auto ended = reducer_->finish(); !ended) return complaint(ended);
    }
    auto begun = reducer_->begin_step(story_.samples(number, rank));
    if (!begun) return complaint(begun);
    if (auto wrong = give_all(story_.given(number, rank)); !wrong.empty()) return wrong;
    return explain_end(number, reducer_->finish());
}

std::string Trainer::explain_end(std::uint64_t number, const Result<void>& finished) {
    if (!how_.tells_not_finite(number)) {
        return finished ? compare_average(number) : complaint(finished);
    }
    const auto& name = list_[static_cast<std::size_t>(how_.not_finite)].name;
    const auto expected = cat("the gradient of parameter \"", name, "\" has a NaN or an infinity on rank 0");
    return complaint(finished).find(expected) != std::string::npos ? "" : cat("finish() says: ", complaint(finished));
}

std::vector<std::byte> Trainer::averaged(std::uint64_t step, std::size_t parameter) const {
    std::vector<std::vector<std::byte>> arrays;
    std::vector<float> weights;
    for (int rank = 0; rank < world_.size(); ++rank) {
        arrays.push_back(story_.own(step, rank, parameter));
        weights.push_back(story_.samples(step, rank));
    }
    return average(list_[parameter].type, arrays, weights);
}

std::vector<std::byte> Trainer::read(int parameter) const {
    const auto gradient = reducer_->gradient(parameter);
    std::vector<std::byte> found(gradient.size_bytes());
    if (!gpu_->read(found.data(), gradient.data, found.size())) found.clear();
    return found;
}

/// Does it travel over a compressed wire? Of PowerSGD's that is a bucket with something to compress, from some step on.
bool Trainer::has_host_bits(std::size_t parameter) const {
    if (!compressed() || list_[parameter].type != DataType::f32) return false;
    if (how_.options.wire != WireFormat::power) return true;
    const runtime::PowerSettings settings{.columns = static_cast<std::size_t>(how_.options.power_rank),
                                          .start_step = how_.options.power_start_step};
    const auto holds_it = [&](const BucketSlice& slice) { return slice.parameter == static_cast<int>(parameter); };
    for (const auto& bucket : reducer_->buckets()) {
        if (std::none_of(bucket.slices.begin(), bucket.slices.end(), holds_it)) continue;
        return settings.compresses(bucket, settings.plan(list_, bucket));
    }
    return false;
}

std::string Trainer::compare_average(std::uint64_t step) {
    for (std::size_t i = 0; i < list_.size(); ++i) {
        bool used = false;
        for (int rank = 0; rank < world_.size(); ++rank)
            used = used || (story_.runs(step, rank) && story_.uses(step, rank, i));
        if (reducer_->used(static_cast<int>(i)) != used) return cat("step ", step, ": used(", i, ") is wrong");
        if (!used) continue;
        const auto found = read(static_cast<int>(i));
        const auto type = list_[i].type;
        if (has_host_bits(i)) {
            if (found != on_host_.gradients[step][i]) return cat("step ", step, ": gradient ", i, " is not the host's");
            continue;
        }
        const auto expected = averaged(step, i);
        if (found.size() != expected.size()) return cat("gradient ", i, " cannot be read");
        for (std::size_t k = 0; k < expected.size() / size_of(type); ++k) {
            const double distance = std::abs(element(type, found, k) - element(type, expected, k));
            if (distance <= tolerance_of(type)) continue;
            return cat("step ", step, ": element ", k, " of gradient ", i, " is ", element(type, found, k), " and not ",
                       element(type, expected, k));
        }
    }
    return "";
}

/// What is kept is the host's, and comes back.
std::string Trainer::compare_state() {
    if (!compressed()) return "";
    ReducerState state;
    reducer_->keep(state);
    if (state.own != on_host_.states[static_cast<std::size_t>(world_.rank())].own)
        return "the kept state is not the host's";
    // Only rank 0's plan is kept in a checkpoint.
    state.plan.resize(4096, ' ');
    auto told = world_.run(broadcast({state.plan.data(), state.plan.size(), DataType::u8}, 0));
    state.plan.erase(state.plan.find_last_not_of(' ') + 1);
    if (!told) return complaint(told);
    reducer_.reset();
    auto made = GradientReducer::make(world_, list_, how_.options);
    if (!made) return complaint(made);
    if (auto restored = made->restore(state); !restored) return complaint(restored);
    ReducerState again;
    made->keep(again);
    return again.own == state.own ? "" : "the kept state does not come back";
}

std::string Trainer::train() {
    if (!on_host_.wrong.empty()) return cat("on the host: ", on_host_.wrong);
    for (std::uint64_t number = 0; number < how_.steps && story_.runs(number, world_.rank()); ++number) {
        if (auto wrong = step(number); !wrong.empty()) return wrong;
    }
    if (how_.ends.empty()) return compare_state();
    std::uint64_t number = how_.ends[static_cast<std::size_t>(world_.rank())];
    std::string wrong;
    const auto joined = reducer_->join([&]() -> Result<void> {
        if (wrong.empty()) wrong = compare_average(number);
        ++number;
        return {};
    });
    if (!wrong.empty() || !joined) return wrong.empty() ? complaint(joined) : wrong;
    return compare_state();
}

}  // namespace

double tolerance_of(DataType type) {
    if (type == DataType::f64) return 1e-12;
    return type == DataType::bf16 ? 0.02 : 2e-6;
}

std::string train_on_device(Communicator& world, const DeviceTraining& how) {
    Trainer trainer(world, how);
    const auto wrong = trainer.set_up();
    return wrong.empty() ? trainer.train() : wrong;
}

std::string clip_on_device(Communicator& world) {
    const DeviceTraining how{.steps = 1};
    Trainer trainer(world, how);
    auto wrong = trainer.set_up();
    if (wrong.empty()) wrong = trainer.train();
    if (!wrong.empty()) return wrong;
    double sum = 0;
    const auto list = mixed_parameters();
    for (std::size_t i = 0; i < list.size(); ++i) {
        const auto values = trainer.averaged(0, i);
        for (std::size_t k = 0; k < runtime::element_count(list[i]); ++k) {
            sum += std::pow(element(list[i].type, values, k), 2);
        }
    }
    const double expected = std::sqrt(sum);
    for (const double most : {expected * 2, expected / 2}) {
        const auto norm = trainer.reducer().clip_grad_norm(most);
        if (!norm) return complaint(norm);
        if (std::abs(*norm - expected) > expected * 1e-3) return cat("the norm is ", *norm, " and not ", expected);
        const double factor = most < expected ? most / *norm : 1;
        for (std::size_t i = 0; i < list.size(); ++i) {
            const auto before = trainer.averaged(0, i);
            const auto found = trainer.read(static_cast<int>(i));
            const double distance =
                std::abs(element(list[i].type, found, 1) - factor * element(list[i].type, before, 1));
            if (distance > tolerance_of(list[i].type)) return cat("gradient ", i, " is not clipped right");
        }
    }
    return "";
}

std::string why_no_kernels(Communicator& world) {
    const auto has = world.device()->has_kernels();
    return has ? "" : has.error().context;
}

}  // namespace muster::test
