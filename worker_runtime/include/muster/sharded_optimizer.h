// An optimizer whose state is divided among the ranks (ZeRO stage 1: Rajbhandari et al., "ZeRO", SC 2020).
//
//     options.result = muster::GradientResult::own_piece;
//     auto reducer = muster::GradientReducer::make(world, parameters, options);
//     auto optimizer = muster::ShardedOptimizer::make(*reducer, muster::AdamW{.learning_rate = 3e-4});
//     for (each batch) { ... reducer->finish(); reducer->clip_grad_norm(1); optimizer->step(); }
//
// The reducer averages each bucket so that every rank has its own piece of it (reduce-scatter); the optimizer updates
// the parameters of that piece, and all ranks get all pieces (all-gather). Together these move what one all-reduce
// moves. A rank keeps 1 / world of the state: for Adam two f32 for each element, and a third where the parameters are
// f16 or bf16, which are rounded from an f32 copy.
//
// The arithmetic is PyTorch's (torch.optim.SGD, Adam, AdamW), in f32. A parameter that no rank used in a step is left
// alone, weight decay and momentum included.
//
// On GPUs state and updates are there. make() is a collective then, and needs what gradient_reducer.h says of kernels.
// Work of the caller's own that has changed gradients or pieces must be over when step() or reload() is called.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <variant>

#include "muster/gradient_reducer.h"
#include "rendezvous/base/error.h"

namespace muster {

struct Sgd {
    double learning_rate = 0.01;
    double momentum = 0;
    double weight_decay = 0;  ///< added to the gradient, times the parameter
};

struct Adam {
    double learning_rate = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0;  ///< added to the gradient, times the parameter
};

/// Adam whose weight decay acts on the parameter alone (Loshchilov and Hutter, ICLR 2019).
struct AdamW {
    double learning_rate = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0.01;
};

using OptimizerRule = std::variant<Sgd, Adam, AdamW>;

/// The state of some neighbouring elements of one parameter, which this rank keeps: memory of the GPU where gradients
/// lie there. For checkpoints: the pieces of all ranks make up each parameter exactly once.
struct OptimizerPiece {
    std::int32_t parameter = 0;
    std::size_t offset = 0;            ///< elements from the parameter's begin
    std::span<float> values;           ///< the parameter, before rounding to its type
    std::span<float> first;            ///< momentum, or Adam's first moment; empty for SGD without momentum
    std::span<float> second;           ///< Adam's second moment; empty for SGD
    std::uint64_t* updates = nullptr;  ///< of this parameter so far; shared by the pieces of one parameter on one rank
};

class ShardedOptimizer {
  public:
    /// Takes the parameters' values as they are. `reducer` must have been made with GradientResult::own_piece, must
    /// outlive the optimizer, and must not have been moved since. f64 is not supported.
    static Result<ShardedOptimizer> make(GradientReducer& reducer, const OptimizerRule& rule);

    ~ShardedOptimizer();
    ShardedOptimizer(ShardedOptimizer&&) noexcept;
    ShardedOptimizer& operator=(ShardedOptimizer&&) noexcept;

    /// A collective, after the reducer's finish(): updates all parameters on all ranks. The buckets then hold
    /// parameters, so gradients mean nothing until the next backward pass has written them: invalid_argument where
    /// nothing was averaged since it was made, updated or reloaded.
    Result<void> step();

    void set_learning_rate(double learning_rate);

    /// After changing what a piece holds, call reload() on all ranks.
    [[nodiscard]] std::span<const OptimizerPiece> pieces() const;

    /// A collective: makes the parameters on all ranks what the pieces say, without an update. Takes the buckets'
    /// memory as step() does, so not between the reducer's finish() and step().
    Result<void> reload();

  private:
    struct Body;
    explicit ShardedOptimizer(std::unique_ptr<Body> body);
    std::unique_ptr<Body> body_;
};

}  // namespace muster
