// The ranks for which a process waits, in a communicator and all that were split from it, as ranks of the first one,
// the root.
//
// Ranks may wait for each other in different communicators: rank 0 waits for rank 1 in the world, and rank 1 for rank 2
// in a group of the two. So each group enters here the ranks for which this process waits in it. The root answers
// questions of other ranks from this board (tcp/tcp_trace), and a group at its deadline lets the root find the ranks
// that caused it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster::runtime {

/// The ranks that keep a group waiting.
struct FailedRanks {
    std::vector<int> ranks;
    std::string names;
};

class WaitBoard {
  public:
    using Awaited = std::function<std::vector<int>()>;
    using Trace = std::function<Result<FailedRanks>(const std::vector<int>& late)>;

    // All functions are thread-safe.

    /// In all entered communicators; not in the root itself.
    [[nodiscard]] std::vector<int> awaited() const;

    /// Sets the root's function to find the ranks that keep `late` waiting. Set it when the root answers questions at
    /// all times; reset it (null) before the root is destroyed, which waits for running traces.
    void trace_with(Trace trace);
    /// Empty if the root cannot trace.
    [[nodiscard]] std::optional<Result<FailedRanks>> trace(const std::vector<int>& late) const;

  private:
    friend class WaitEntry;
    mutable std::mutex mutex_;
    std::map<std::uint64_t, Awaited> entries_;
    std::uint64_t next_id_ = 0;
    mutable std::shared_mutex tracing_;
    Trace trace_;
};

/// The entry of one communicator; `awaited` is called while the entry lives.
class WaitEntry {
  public:
    WaitEntry(std::shared_ptr<WaitBoard> board, WaitBoard::Awaited awaited);
    ~WaitEntry();
    WaitEntry& operator=(WaitEntry&&) = delete;

  private:
    std::shared_ptr<WaitBoard> board_;
    std::uint64_t id_ = 0;
};

}  // namespace muster::runtime
