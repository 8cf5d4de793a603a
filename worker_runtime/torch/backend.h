// The back end of torch: turns tensors into memory and calls Group.
#pragma once

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker_runtime/torch/group.h"
#include "worker_runtime/torch/work.h"

namespace muster::torch_backend {

class MusterBackend final : public c10d::Backend {
  public:
    using WorkPtr = c10::intrusive_ptr<c10d::Work>;
    using Tensors = std::vector<at::Tensor>;

    MusterBackend(std::shared_ptr<Group> group, c10::intrusive_ptr<Options> options);
    ~MusterBackend() override = default;

    const std::string getBackendName() const override { return "muster"; }
    c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
    void setTimeout(std::chrono::milliseconds timeout) override { options_->timeout = timeout; }

    WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
    WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
    WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
    WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
    WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
    WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
    WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override;
    WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                const c10d::AllgatherOptions& opts) override;
    WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                            const c10d::AllgatherOptions& opts) override;
    WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
    WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& opts) override;
    WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                           const c10d::ReduceScatterOptions& opts) override;
    WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                 const c10d::ReduceScatterOptions& opts) override;
    WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                            const c10d::ReduceScatterOptions& opts) override;
    WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                          std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions& opts) override;
    WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
    WorkPtr send(Tensors& tensors, int peer, int tag) override;
    WorkPtr recv(Tensors& tensors, int peer, int tag) override;
    WorkPtr recvAnysource(Tensors& tensors, int tag) override;
    WorkPtr barrier(const c10d::BarrierOptions& opts) override;
    void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

    /// Tensors in memory that all ranks of the host use in place: buckets of DDP, buffers of FSDP2. No collective.
    bool supportsTensorAlloc(c10::DeviceIndex device) override;
    at::Tensor allocateTensor(long size, at::TensorOptions options = {}) override;

    void startCoalescing() override;
    WorkPtr endCoalescing() override;

    void setSequenceNumberForGroup() override {}
    std::uint64_t getSequenceNumberForGroup() override { return number_; }

    c10d::ErrorType getError() override;
    void abort() override;
    void shutdown() override;

  private:
    /// What an operation does in its thread: `tensors` are those that it holds.
    using Body = std::function<void(Group&, Tensors& tensors, std::int64_t timeout)>;

    struct Call {
        c10d::OpType kind;
        const char* title;
        std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
        bool is_async = true;
        Tensors outputs{};  ///< what the future has
        Tensors held{};     ///< of all tensors: alive until it is over
        std::uint32_t mark = 0;
    };

    WorkPtr start(Call call, Body body, std::shared_ptr<Lane> lane = nullptr,
                  std::function<void(BackendWork&)> after = nullptr);
    /// A contiguous twin of each tensor that is not contiguous; otherwise the tensor.
    static at::Tensor dense(const at::Tensor& tensor);
    /// Puts the result in a twin where the caller expects it.
    static void land(const at::Tensor& tensor, const at::Tensor& twin);
    /// Throws if what the caller passes is wrong. The text begins with this rank, because the others may have passed it
    /// right.
    template <typename... Words>
    void require(bool is_right, const Words&... words) const {
        TORCH_CHECK(is_right, "rank ", rank_, " of group ", group_->name(), ": ", words...);
    }
    void check(const at::Tensor& tensor, const char* what) const;
    void check_list(const Tensors& list, const char* what) const;
    /// `tensor` is the caller's `which`, beside the element of the list that belongs to `rank`.
    void check_piece(const Tensors& list, int rank, const at::Tensor& tensor, const char* what,
                     const char* which) const;
    /// Checks and holds, for each pair, the output and both twins. One tensor of each pair has `size_` times the
    /// elements of the other: the output if the operation `gathers`, else the input.
    void hold_pairs(Call& call, const Tensors& outputs, const Tensors& inputs, const char* what, bool gathers) const;
    /// Is this rank the root? Throws if no rank is.
    [[nodiscard]] bool has_root(std::int64_t root, const char* what) const;
    static Piece piece_of(const at::Tensor& tensor);
    [[nodiscard]] Reduction reduction_of(const at::Tensor& tensor, const c10d::ReduceOp& op) const;
    /// The elements of each rank's rows: `splits` are numbers of rows; none means equal parts.
    [[nodiscard]] std::vector<std::size_t> counts_of_splits(const at::Tensor& tensor,
                                                            const std::vector<std::int64_t>& splits,
                                                            const char* which) const;
    WorkPtr move(Tensors& tensors, int peer, int tag, bool sends);
    /// `lists`: by input, a tensor of each rank.
    WorkPtr gather_each(Call call, const std::vector<Tensors>& lists, const Tensors& inputs);
    WorkPtr reduce_each(Call call, const Tensors& tensors, const c10d::ReduceOp& op);

    const std::shared_ptr<Group> group_;
    const c10::intrusive_ptr<Options> options_;
    std::atomic<std::uint64_t> number_ = 0;
    std::mutex coalescing_mutex_;
    std::optional<std::vector<WorkPtr>> coalesced_;
};

}  // namespace muster::torch_backend
