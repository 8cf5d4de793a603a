// Collectives by NCCL in GPU memory.
//
// Sums run in NCCL's order and precision: the same on all ranks, but not the order of the CPU's transports. min and max
// treat NaN as NCCL does.
//
// Collectives share one communicator and one stream. Each direction of each pair that sends has its own communicator of
// two ranks, made at the first transfer, so that a send without a receiver blocks nothing else.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/file_descriptor.h"
#include "worker_runtime/core/parts_table.h"
#include "worker_runtime/nccl/core/nccl_roots.h"
#include "worker_runtime/nccl/nccl_comm.h"
#include "worker_runtime/nccl/nccl_process.h"
#include "worker_runtime/nccl/nccl_status_board.h"
#include "worker_runtime/nccl/order_watch.h"
#include "worker_runtime/nccl/staging.h"
#include "worker_runtime/transport/transport.h"

namespace muster::runtime {

class NcclTransport final : public Transport {
  public:
    static Result<std::unique_ptr<Transport>> make(const GroupTerms& group, const NcclTerms& terms);
    ~NcclTransport() override;

    [[nodiscard]] std::string_view name() const override { return "nccl"; }
    [[nodiscard]] Result<void> check(const Operation& operation) const override;
    Result<void> run(const Operation& operation, const RunTerms& terms) override;
    [[nodiscard]] bool launches(const Operation& operation) override;
    Result<void> launch(const Operation& operation, const RunTerms& terms) override;
    Result<bool> oldest_over(const RunTerms& terms) override;
    [[nodiscard]] DeviceQueue* device() override { return queue_.get(); }
    Result<void> transfer(const Operation& operation, const RunTerms& terms) override;
    Result<Memory> allocate(std::size_t size_bytes, const RunTerms& terms) override;
    Result<std::unique_ptr<Transport>> split(const SplitTerms& split, const RunTerms& terms) override;
    Result<void> check_alive(Instant since) override;
    Error fail(const Error& error) override { return end(error); }
    void abort(std::string_view why) override;

  private:
    struct Channel {
        std::shared_ptr<NcclComm> communicator;
        std::unique_ptr<Staging> staging;
    };
    /// A collective on the stream that is not complete.
    struct Launched {
        std::string what;
        std::size_t mark;  ///< Mark of the communicator.
        Duration allowed;
        Instant asked;
        std::optional<Instant> turn{};  ///< the first query, when the previous one was complete
    };
    struct PeerWatch {
        FileDescriptor process;
        std::uint64_t number = 0;
    };

    NcclTransport(GroupTerms group, std::shared_ptr<NcclProcess> process, std::shared_ptr<NcclStatusBoard> news);
    Result<void> watch_peers();
    /// Collects the group's unique ids. If this rank holds a root, creates its id first.
    Result<std::vector<ncclUniqueId>> meet_at_roots(const NcclRoots& roots);
    Result<void> connect();
    Result<void> set_up(std::shared_ptr<NcclComm> communicator);
    [[nodiscard]] NcclPlace here() const { return {.rank = group_.rank, .size = group_.size}; }
    Result<void> carry_out(const Operation& operation, const NcclWait& wait);
    /// What all ranks send and expect in an all_to_all_uneven.
    Result<PartsTable> exchange_parts(const Operation& operation, const NcclWait& wait);
    /// By rank, of an average.
    Result<std::vector<float>> exchange_weights(const Operation& operation, const NcclWait& wait);
    /// Enqueues `operation` on device memory and its steps on the stream.
    Result<void> put(const Operation& operation, const std::string& what, const NcclWait& wait);
    /// As put(), without the steps.
    Result<void> put_alone(const Operation& operation, const std::string& what, const NcclWait& wait);
    Result<ncclRedOp_t> weighted_reduction(const Operation& operation, const NcclWait& wait);
    /// A sum to which this rank's elements of `type` come multiplied by `factor`.
    Result<ncclRedOp_t> multiplied_sum(DataType type, double factor, const NcclWait& wait);
    Result<Channel*> channel(int from, int to, const NcclWait& wait);
    [[nodiscard]] NcclWait wait_for(const std::string& what, const RunTerms& terms);
    /// Builds the error for a collective that did not end, with the other ranks' status.
    [[nodiscard]] Error late(const std::string& what, Duration allowed);
    [[nodiscard]] Error end(const Error& error);

    const GroupTerms group_;
    const std::shared_ptr<NcclProcess> process_;
    const std::shared_ptr<NcclStatusBoard> board_;
    std::uint64_t failure_listener_ = 0;
    std::vector<std::unique_ptr<PeerWatch>> watched_;
    std::shared_ptr<NcclComm> communicator_;
    std::unique_ptr<Staging> staging_;
    void* scratch_ = nullptr;  ///< device memory that barriers reduce
    std::unique_ptr<NcclQueue> queue_;
    std::deque<Launched> launched_;  ///< oldest first
    std::size_t launch_count_ = 0;
    std::mutex channels_mutex_;
    std::map<std::pair<int, int>, Channel> channels_;  ///< (from, to)
    std::unique_ptr<OrderWatch> order_watch_;          ///< null in a world of one
};

}  // namespace muster::runtime
