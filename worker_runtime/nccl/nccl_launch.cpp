// Launches collectives on the stream one after the other, each with its own mark.
#include "rendezvous/base/text/text.h"
#include "worker_runtime/nccl/nccl_comm.h"
#include "worker_runtime/nccl/nccl_transport.h"

namespace muster::runtime {

namespace {

/// Marks are used in turn; mark 0 belongs to NcclComm::finish(). There are more than a lane launches.
constexpr std::size_t marks = 32;

}  // namespace

bool NcclTransport::launches(const Operation& operation) {
    // all_to_all_uneven, whose count is 0, waits for the comparison on the host.
    if (is_paired(operation.kind) || operation.kind == OperationKind::barrier || operation.count == 0) return false;
    if (operation.reduce == ReduceOp::avg && operation.weighted && operation.weights == nullptr) return false;
    // Host memory is copied back at the end, and that blocks the thread.
    return !staging_->on_host(operation.input) && !staging_->on_host(operation.output);
}

Result<void> NcclTransport::launch(const Operation& operation, const RunTerms& terms) {
    const std::string described = describe(operation);
    const auto number = board_->begin(signature_of(operation));
    const Instant now = std::chrono::steady_clock::now();
    Launched next{.what = cat(described, " (operation ", number, ")"),
                  .mark = 1 + launch_count_++ % marks,
                  .allowed = terms.deadline - now,
                  .asked = now};
    const NcclWait wait = wait_for(next.what, terms);
    Result<void> done;
    if (operation.after != nullptr) done = communicator_->stream().wait_for(operation.after);
    if (done) done = put(operation, cat(board_->here(), ": ", described), wait);
    if (!done) return end(done.error());
    if (auto marked = communicator_->stream().mark(next.what, next.mark); !marked) return end(marked.error());
    launched_.push_back(std::move(next));
    return {};
}

Result<bool> NcclTransport::oldest_over(const RunTerms& terms) {
    auto& oldest = launched_.front();
    const Instant now = std::chrono::steady_clock::now();
    if (!oldest.turn) oldest.turn = now;
    auto over = communicator_->passed(cat(board_->here(), ": ", oldest.what), oldest.mark, oldest.asked);
    if (over && *over) {
        launched_.pop_front();
        return true;
    }
    if (!over) return end(over.error());
    if (process_->failed()) return end(process_->failure());
    if (auto looked = board_->check_alive(*oldest.turn); !looked) return end(looked.error());
    if (now >= terms.deadline) return end(late(oldest.what, oldest.allowed));
    return false;
}

}  // namespace muster::runtime
