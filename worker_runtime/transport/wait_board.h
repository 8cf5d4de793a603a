// Whom a process waits for, in a communicator and all that were split from it: in ranks of that first one, the root.
//
// Ranks may keep each other waiting in different communicators: rank 0 waits for rank 1 in the world, and rank 1 for
// rank 2 in a group of the two. So each group enters here whom this process waits for in it, the root's ranks tell it
// to whoever asks (tcp/tcp_trace), and a group at its deadline lets the root find the guilty ranks.
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

/// Who keeps a group waiting.
struct Guilty {
    std::vector<int> ranks;
    std::string names;
};

class WaitBoard {
  public:
    using Awaited = std::function<std::vector<int>()>;
    using Trace = std::function<Result<Guilty>(const std::vector<int>& late)>;

    // All from any thread.

    /// In all communicators that have entered; not in the root itself.
    [[nodiscard]] std::vector<int> awaited() const;

    /// The root's way to find who keeps `late` waiting. To be given once it hears questions whatever its process does;
    /// taken back (null) before it goes, which waits for those who are tracing.
    void trace_with(Trace trace);
    /// Nothing where the root cannot.
    [[nodiscard]] std::optional<Result<Guilty>> trace(const std::vector<int>& late) const;

  private:
    friend class WaitEntry;
    mutable std::mutex mutex_;
    std::map<std::uint64_t, Awaited> entries_;
    std::uint64_t next_id_ = 0;
    mutable std::shared_mutex tracing_;
    Trace trace_;
};

/// One communicator's; `awaited` is asked as long as the entry lives.
class WaitEntry {
  public:
    WaitEntry(std::shared_ptr<WaitBoard> board, WaitBoard::Awaited awaited);
    ~WaitEntry();
    WaitEntry(const WaitEntry&) = delete;
    WaitEntry& operator=(const WaitEntry&) = delete;

  private:
    std::shared_ptr<WaitBoard> board_;
    std::uint64_t id_ = 0;
};

}  // namespace muster::runtime
