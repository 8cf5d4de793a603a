// A sharded optimizer whose state lies on a GPU, beside the host's arithmetic on what the GPU had before each step.
#include <cstring>
#include <optional>

#include "rendezvous/base/text/text.h"
#include "tests/gpu/device_training.h"
#include "tests/gpu/gpu_ranks.h"
#include "tests/unit/worker_runtime/reducer/reducer_story.h"
#include "worker_runtime/arithmetic/gradient_math.h"
#include "worker_runtime/core/optimizer_math.h"
#include "worker_runtime/core/registration.h"

namespace muster::test {

namespace {

using Floats = std::vector<float>;

struct PieceOnHost {
    Floats values;
    Floats first;
    Floats second;
    bool operator==(const PieceOnHost& other) const {
        const auto same = [](const Floats& a, const Floats& b) {
            return a.size() == b.size() &&
                   (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
        };
        return same(values, other.values) && same(first, other.first) && same(second, other.second);
    }
};

class OptimizerTrainer {
  public:
    OptimizerTrainer(Communicator& world, const OptimizerRule& rule) : world_(world), rule_(rule) {}

    std::string set_up();
    std::string step(std::uint64_t number);

  private:
    std::string give_gradients(std::uint64_t number);
    PieceOnHost bring(const OptimizerPiece& piece);
    std::vector<std::byte> bring(const void* from, std::size_t size_bytes);
    Floats gradient_of(const OptimizerPiece& piece);
    std::string compare_parameters();

    Communicator& world_;
    const OptimizerRule& rule_;
    std::vector<Parameter> list_{{.name = "a", .shape = {300}, .type = DataType::f32},
                                 {.name = "b", .shape = {129}, .type = DataType::bf16},
                                 {.name = "c", .shape = {1500}, .type = DataType::f32},
                                 {.name = "d", .shape = {2000}, .type = DataType::f16}};
    std::vector<std::byte> host_memory_;  ///< of parameter 0
    std::vector<Memory> memory_;
    std::unique_ptr<GpuMemoryAccess> gpu_;
    std::optional<GradientReducer> reducer_;
    std::optional<ShardedOptimizer> optimizer_;
};

std::string OptimizerTrainer::set_up() {
    auto gpu = GpuMemoryAccess::open(0);
    if (!gpu) return complaint(gpu);
    gpu_ = std::move(*gpu);
    for (std::size_t i = 0; i < list_.size(); ++i) {
        const auto values = made_up(list_[i].type, runtime::element_count(list_[i]), i);
        if (i == 0) {
            host_memory_ = values;
            list_[0].data = host_memory_.data();
            continue;
        }
        auto taken = world_.allocate(values.size());
        if (!taken) return complaint(taken);
        memory_.push_back(std::move(*taken));
        list_[i].data = memory_.back().data();
        if (auto written = gpu_->write(list_[i].data, values.data(), values.size()); !written)
            return complaint(written);
    }
    ReducerOptions options{.bucket_cap_mb = 4096.0 / (1 << 20), .first_bucket_mb = 0.001, .last_bucket_mb = 0.001};
    options.result = GradientResult::own_piece;
    auto made = GradientReducer::make(world_, list_, options);
    if (!made) return complaint(made);
    reducer_ = std::move(*made);
    auto optimizer = ShardedOptimizer::make(*reducer_, rule_);
    if (!optimizer) return complaint(optimizer);
    optimizer_ = std::move(*optimizer);
    return "";
}

std::string OptimizerTrainer::give_gradients(std::uint64_t number) {
    if (auto begun = reducer_->begin_step(static_cast<float>(1 + world_.rank())); !begun) return complaint(begun);
    for (std::size_t i = list_.size(); i-- > 0;) {
        if (i == 1 && number == 1) continue;
        const Buffer gradient = reducer_->gradient(static_cast<int>(i));
        const auto values = made_up(gradient.type, gradient.count, seed_of(number, world_.rank(), i));
        if (auto written = gpu_->write(gradient.data, values.data(), values.size()); !written)
            return complaint(written);
        if (auto marked = reducer_->mark_ready(static_cast<int>(i)); !marked) return complaint(marked);
    }
    if (auto finished = reducer_->finish(); !finished) return complaint(finished);
    const auto norm = reducer_->clip_grad_norm(1);
    return norm && *norm > 1 ? "" : cat("the norm is ", norm ? *norm : -1);
}

std::vector<std::byte> OptimizerTrainer::bring(const void* from, std::size_t size_bytes) {
    std::vector<std::byte> bytes(size_bytes);
    if (!gpu_->read(bytes.data(), from, size_bytes)) bytes.clear();
    return bytes;
}

PieceOnHost OptimizerTrainer::bring(const OptimizerPiece& piece) {
    const auto floats = [&](std::span<const float> from) {
        Floats to(from.size());
        if (!to.empty() && !gpu_->read(to.data(), from.data(), from.size_bytes())) to.clear();
        return to;
    };
    return {floats(piece.values), floats(piece.first), floats(piece.second)};
}

Floats OptimizerTrainer::gradient_of(const OptimizerPiece& piece) {
    const Buffer gradient = reducer_->gradient(piece.parameter);
    const std::size_t size = size_of(gradient.type);
    const auto bytes =
        bring(static_cast<const std::byte*>(gradient.data) + piece.offset * size, piece.values.size() * size);
    Floats values(piece.values.size());
    runtime::convert({bytes.data(), values.size(), gradient.type},
                     {.data = values.data(), .count = values.size(), .type = DataType::f32});
    return values;
}

std::string OptimizerTrainer::step(std::uint64_t number) {
    if (auto wrong = give_gradients(number); !wrong.empty()) return wrong;
    std::vector<PieceOnHost> expected;
    for (const auto& piece : optimizer_->pieces()) {
        auto& own = expected.emplace_back(bring(piece));
        if (!reducer_->used(piece.parameter)) continue;
        runtime::update(rule_, *piece.updates + 1, gradient_of(piece), own.values, own.first, own.second);
    }
    if (auto stepped = optimizer_->step(); !stepped) return complaint(stepped);
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const auto& piece = optimizer_->pieces()[i];
        if (!(bring(piece) == expected[i])) return cat("step ", number, ": piece ", i, " is not the host's");
        const auto& parameter = list_[static_cast<std::size_t>(piece.parameter)];
        const std::size_t size = size_of(parameter.type);
        std::vector<std::byte> rounded(piece.values.size() * size);
        runtime::convert({expected[i].values.data(), piece.values.size(), DataType::f32},
                         {.data = rounded.data(), .count = piece.values.size(), .type = parameter.type});
        const auto* const begin = static_cast<const std::byte*>(parameter.data) + piece.offset * size;
        if (bring(begin, rounded.size()) != rounded) return cat("step ", number, ": parameter ", parameter.name);
    }
    return compare_parameters();
}

/// Every rank has rank 0's.
std::string OptimizerTrainer::compare_parameters() {
    for (const auto& parameter : list_) {
        const auto own = bring(parameter.data, runtime::element_count(parameter) * size_of(parameter.type));
        auto rank_0 = own;
        auto sent = world_.run(broadcast({.data = rank_0.data(), .count = rank_0.size(), .type = DataType::u8}, 0));
        if (!sent) return complaint(sent);
        if (own.empty() || own != rank_0) return cat("parameter ", parameter.name, " differs between ranks");
    }
    return "";
}

}  // namespace

std::string optimize_on_device(Communicator& world, const OptimizerRule& rule) {
    OptimizerTrainer trainer(world, rule);
    auto wrong = trainer.set_up();
    for (std::uint64_t number = 0; wrong.empty() && number < 3; ++number) wrong = trainer.step(number);
    return wrong;
}

}  // namespace muster::test
