// An optimizer whose state is divided among the ranks (ZeRO stage 1: Rajbhandari et al., "ZeRO", SC 2020).
//
//     options.result = muster::GradientResult::own_piece;
//     auto reducer = muster::GradientReducer::make(world, parameters, options);
//     auto optimizer = muster::ShardedOptimizer::make(*reducer, muster::AdamW{.learning_rate = 3e-4});
//     for (each batch) { ... reducer->finish(); reducer->clip_grad_norm(1); optimizer->step(); }
//
// The reducer averages each bucket with a reduce-scatter, so that every rank has its own piece of it. The optimizer
// updates the parameters of that piece, and an all-gather copies all pieces to all ranks. Together they move as many
// bytes as one all-reduce. Each rank keeps 1 / world of the state: for Adam, two f32 per element, and a third if the
// parameters are f16 or bf16, which are rounded from an f32 copy.
//
// The arithmetic is PyTorch's (torch.optim.SGD, Adam, AdamW), in f32. A parameter that no rank used in a step does not
// change; weight decay and momentum are skipped too.
//
// On GPUs the state is on the GPU and updates run there. make() is then a collective and needs kernels (see
// gradient_reducer.h). The caller's own work on gradients or pieces must be complete when step() or reload() is called.
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
    double weight_decay = 0;  ///< this times the parameter is added to the gradient
};

struct Adam {
    double learning_rate = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0;  ///< this times the parameter is added to the gradient
};

/// Adam with decoupled weight decay: it acts on the parameter alone (Loshchilov and Hutter, ICLR 2019).
struct AdamW {
    double learning_rate = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0.01;
};

using OptimizerRule = std::variant<Sgd, Adam, AdamW>;

/// The state that this rank keeps for a range of elements of one parameter, in GPU memory if gradients are there. For
/// checkpoints: the pieces of all ranks cover each parameter exactly once.
struct OptimizerPiece {
    std::int32_t parameter = 0;
    std::size_t offset = 0;            ///< first element in the parameter
    std::span<float> values;           ///< the parameter before rounding to its type
    std::span<float> first;            ///< momentum, or Adam's first moment; empty for SGD without momentum
    std::span<float> second;           ///< Adam's second moment; empty for SGD
    std::uint64_t* updates = nullptr;  ///< number of updates of this parameter; all its pieces on one rank share it
};

class ShardedOptimizer {
  public:
    /// Starts with the current values of the parameters. `reducer` must have been made with GradientResult::own_piece,
    /// must outlive the optimizer, and must not have been moved since. f64 is not supported.
    static Result<ShardedOptimizer> make(GradientReducer& reducer, const OptimizerRule& rule);

    ~ShardedOptimizer();
    ShardedOptimizer(ShardedOptimizer&&) noexcept;
    ShardedOptimizer& operator=(ShardedOptimizer&&) noexcept;

    /// A collective, after the reducer's finish(): updates all parameters on all ranks. The buckets then hold
    /// parameters, so gradients are undefined until the next backward pass writes them. invalid_argument: nothing was
    /// averaged since the optimizer was made, updated or reloaded.
    Result<void> step();

    void set_learning_rate(double learning_rate);

    /// The pieces of this rank. After writing to a piece, call reload() on all ranks.
    [[nodiscard]] std::span<const OptimizerPiece> pieces() const;

    /// A collective: sets the parameters on all ranks from the pieces, without an update. It uses the buckets' memory
    /// as step() does, so do not call it between the reducer's finish() and step().
    Result<void> reload();

  private:
    struct Body;
    explicit ShardedOptimizer(std::unique_ptr<Body> body);
    std::unique_ptr<Body> body_;
};

}  // namespace muster
