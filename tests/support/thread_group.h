// A group of ranks that are threads of this process, for tests of what stands on top of communicators: real
// Communicators over a transport that keeps a record, compares what the ranks run, and fails when told to.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "muster/communicator.h"

namespace muster::test {

class ThreadGroup {
  public:
    explicit ThreadGroup(int size);

    /// Runs `body` for each rank in a thread of its own, and waits for all. Catch2's assertions are not thread-safe:
    /// the body returns what was wrong, nothing if all was well. Gives the first complaint.
    std::string run(const std::function<std::string(Communicator&)>& body);

    /// The operations so far, as rank 0 gave them; the ranks' are compared.
    [[nodiscard]] std::vector<Operation> history() const;
    /// Waits until there are so many; false when they do not come in time.
    [[nodiscard]] bool wait_for_history(std::size_t count) const;
    /// Forgets them.
    void clear_history();

    /// From now on, the operation after `count` more fails on all ranks, as if rank 0 had died.
    void fail_after(std::size_t count);

    /// Has any rank's communicator been aborted?
    [[nodiscard]] bool aborted() const;

    /// Operations wait until let_go(), as if the network stood still.
    void hold();
    void let_go();
    /// Waits until all ranks have come to an operation that is held; false when they do not in time.
    [[nodiscard]] bool wait_for_arrival() const;

  private:
    class Transport;
    friend class Transport;
    Result<void> meet(int rank, const Operation& operation, Instant deadline);
    void perform();
    [[nodiscard]] std::optional<Error> difference() const;

    int size_;
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    std::vector<Operation> operations_;  ///< of the ranks, for the one in progress
    int arrived_ = 0;
    std::uint64_t generation_ = 0;
    std::vector<Operation> history_;
    std::optional<std::size_t> fail_after_;
    std::optional<Error> failure_;
    bool failed_generation_ = false;  ///< the operation before the one in progress has failed
    bool held_ = false;
};

}  // namespace muster::test
