// The average over all ranks of numbers in GPU memory, with the bits of the host's all_reduce_weighted(). NCCL would
// sum in another order, and 16-bit types in their own precision.
//
//   1. Each rank sends every rank its piece of the numbers (all_to_all).
//   2. Each rank averages the received pieces, in f32 and in rank order, and rounds once; all ranks receive all pieces
//      (all_gather).
//
// A rank sends (world - 1) / world of the numbers twice, as an all-reduce does.
#pragma once

#include "muster/bucket_exchange.h"
#include "worker_runtime/transport/device_queue.h"
#include "worker_runtime/wires/staging.h"

namespace muster::runtime {

class DeviceAverage {
  public:
    struct Leg {
        Buffer numbers{};   ///< a piece for each rank, the last ones padded; later the averages of all pieces
        Buffer incoming{};  ///< this rank's piece from each rank
    };

    /// `type`: f32, f16 or bf16.
    explicit DeviceAverage(DataType type) : type_(type) {}

    /// Requests memory from `plan`. Call this first, then add() for each leg.
    void prepare(const ExchangeTerms& terms, StagingPlan& plan);
    void add(Leg& leg, std::size_t count, StagingPlan& plan) const;

    [[nodiscard]] Operation first(const Leg& leg) const;
    [[nodiscard]] Operation second(const Leg& leg) const;
    /// Runs the arithmetic before second(). The caller puts it onto the stream of second().
    Result<void> make(const Leg& leg, KernelQueue& stream) const;

  private:
    [[nodiscard]] Buffer own_piece(const Leg& leg) const;

    DataType type_;
    std::size_t rank_ = 0;
    std::size_t world_ = 1;
    const float* samples_ = nullptr;  ///< sample counts of all ranks, in host memory
    Buffer weights_{};                ///< the same counts in GPU memory
};

}  // namespace muster::runtime
