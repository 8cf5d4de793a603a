// The place where the ranks of a group exchange data before they are connected: the round's store, or a map in tests.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "worker_runtime/transport/meeting_wait.h"
#include "worker_runtime/transport/wire_security.h"

namespace muster::runtime {

/// Thread-safe. Keys are never deleted, because the store ends with the round.
class MeetingPlace {
  public:
    virtual ~MeetingPlace() = default;
    virtual Result<void> publish(std::string_view key, std::string_view value, Instant deadline) = 0;
    /// Waits until all `keys` exist and returns their values. timed_out names the first missing key; a failure of the
    /// parent in `wait` ends the wait at once.
    virtual Result<std::vector<std::string>> collect(const std::vector<std::string>& keys, const MeetingWait& wait) = 0;
};

class WaitBoard;

/// The parameters of a new group. All except `rank` are equal on all ranks.
struct GroupTerms {
    int rank = 0;
    int size = 1;
    std::string id;  ///< unique in the round, for keys and messages: "world", "world/0.1"
    std::shared_ptr<MeetingPlace> place;
    Duration meeting_timeout = std::chrono::seconds(300);  ///< until all ranks have joined; torch's store default
    /// By rank: its number in the root, the communicator from which this one was split in one or more steps. Empty:
    /// this is the root.
    std::vector<int> root_ranks{};
    std::shared_ptr<WaitBoard> waits{};     ///< the root's board of this process; may be null
    std::shared_ptr<ParentGroup> parent{};  ///< while this group is made from it; may be null
    WireSecurity security{};

    /// The deadline until which all ranks must have joined, from now on.
    [[nodiscard]] MeetingWait meeting_wait() const {
        return {std::chrono::steady_clock::now() + meeting_timeout, parent};
    }
    [[nodiscard]] bool is_part() const { return !root_ranks.empty(); }
    [[nodiscard]] int in_root(int one) const { return is_part() ? root_ranks[static_cast<std::size_t>(one)] : one; }
    [[nodiscard]] std::vector<int> in_root(std::vector<int> ranks) const {
        for (int& one : ranks) one = in_root(one);
        return ranks;
    }
};

/// Publishes `value` under "`what`" for this rank and returns all ranks' values, in rank order. An error names the
/// ranks that did not join.
Result<std::vector<std::string>> exchange(const GroupTerms& terms, std::string_view what, std::string_view value,
                                          const MeetingWait& wait);

}  // namespace muster::runtime
