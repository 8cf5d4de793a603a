// Where the ranks of a group find each other before any of them is connected: the round's store, or a map in tests.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "worker_runtime/transport/meeting_wait.h"

namespace muster::runtime {

/// Thread-safe. Keys are never deleted: the store is the round's, and ends with it.
class MeetingPlace {
  public:
    virtual ~MeetingPlace() = default;
    virtual Result<void> publish(std::string_view key, std::string_view value, Instant deadline) = 0;
    /// The values of all `keys`, once they are all there. timed_out names the first that is missing; where `wait` has a
    /// parent, its failure ends this soon.
    virtual Result<std::vector<std::string>> collect(const std::vector<std::string>& keys, const MeetingWait& wait) = 0;
};

class WaitBoard;

/// Who makes a transport, and with whom. The same on all ranks but for `rank`.
struct GroupTerms {
    int rank = 0;
    int size = 1;
    std::string id;  ///< unique in the round, for keys and messages: "world", "world/0.1"
    std::shared_ptr<MeetingPlace> place;
    Duration meeting_timeout = std::chrono::seconds(300);  ///< for all ranks to come; torch's store default
    /// Each rank's number in the communicator that this one was split from, in however many steps: the root. Empty: it
    /// is the root itself.
    std::vector<int> root_ranks{};
    std::shared_ptr<WaitBoard> waits{};     ///< of this process, the root's; may be null
    std::shared_ptr<ParentGroup> parent{};  ///< while this part of it is made; may be null

    /// For all ranks to come, from now on.
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

/// Publishes `value` as this rank's under "`what`" and gives all ranks' values, in rank order. An error says which rank
/// did not come.
Result<std::vector<std::string>> exchange(const GroupTerms& terms, std::string_view what, std::string_view value,
                                          const MeetingWait& wait);

}  // namespace muster::runtime
