// One process group over the C API: collectives on plain memory. Knows nothing of torch.
//
// Every function blocks, and throws GroupError. What the library lacks is made of what it has.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "muster/muster.h"
#include "worker_runtime/torch/elements.h"
#include "worker_runtime/torch/lanes.h"
#include "worker_runtime/torch/per_process.h"

namespace muster::torch_backend {

class GroupError : public std::runtime_error {
  public:
    GroupError(muster_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
    [[nodiscard]] muster_status status() const { return status_; }

  private:
    muster_status status_;
};

/// Where the members of a group meet: torch's store. Functions throw; wait_for() returns false at the deadline.
class MeetingStore {
  public:
    virtual ~MeetingStore() = default;
    virtual void set(const std::string& key, const void* value, std::size_t size) = 0;
    virtual std::vector<std::uint8_t> get(const std::string& key) = 0;
    virtual std::int64_t add(const std::string& key, std::int64_t delta) = 0;
    virtual bool wait_for(const std::vector<std::string>& keys, std::int64_t timeout_ms) = 0;
};

struct GroupTerms {
    std::string name;
    int rank = 0;
    int size = 1;
    std::vector<int> world_ranks{};
    std::int64_t timeout_ms = 0;
    std::shared_ptr<MeetingStore> store{};
};

/// Elements in memory. `type` is one that the library knows; others move as bytes.
struct Piece {
    void* data = nullptr;
    std::size_t count = 0;
    int type = MUSTER_U8;
    std::size_t element_bytes = 1;

    [[nodiscard]] std::size_t size_bytes() const { return count * element_bytes; }
};

/// The mark of the collectives of this thread while it lives: what ranks compare beside the library's signature.
class CollectivesMark {
  public:
    explicit CollectivesMark(std::uint32_t mark);
    ~CollectivesMark();
    CollectivesMark& operator=(CollectivesMark&&) = delete;
};

class Group {
  public:
    /// A collective of the members.
    explicit Group(GroupTerms terms);
    ~Group();
    Group& operator=(Group&&) = delete;

    [[nodiscard]] int rank() const { return terms_.rank; }
    [[nodiscard]] int size() const { return terms_.size; }
    [[nodiscard]] const std::string& name() const { return terms_.name; }
    [[nodiscard]] std::string transport() const;

    // The timeouts are in milliseconds; 0: the group's.
    void barrier(std::int64_t timeout) const;
    void broadcast(const Piece& piece, int root, std::int64_t timeout) const;
    /// `output`: the pieces of all ranks, in rank order.
    void all_gather(const Piece& piece, void* output, std::int64_t timeout) const;
    /// The elements that this rank sends to each, and expects from each, one part after another. Throws the same on all
    /// ranks if two contradict each other.
    void all_to_all_uneven(const void* input, const std::vector<std::size_t>& sent, void* output,
                           const std::vector<std::size_t>& expected, int type, std::int64_t timeout) const;
    /// `output`: the pieces of all ranks, at the root; not used elsewhere.
    void gather(const Piece& piece, void* output, int root, std::int64_t timeout) const;
    /// `input`: a piece for each rank, at the root; not used elsewhere.
    void scatter(const void* input, const Piece& piece, int root, std::int64_t timeout) const;
    /// The result replaces `data` at the root.
    void reduce(void* data, std::size_t count, const Reduction& reduction, int root, std::int64_t timeout) const;
    void all_reduce(void* data, std::size_t count, const Reduction& reduction, std::int64_t timeout) const;
    /// `input`: `count` elements for each rank.
    void reduce_scatter(const void* input, void* output, std::size_t count, const Reduction& reduction,
                        std::int64_t timeout) const;
    void send(const Piece& piece, int peer, std::uint32_t tag, std::int64_t timeout) const;
    void receive(const Piece& piece, int peer, std::uint32_t tag, std::int64_t timeout) const;
    /// Returns the sender.
    int receive_any(const Piece& piece, std::uint32_t tag, std::int64_t timeout) const;

    /// True if collectives on host_memory() need no copy.
    [[nodiscard]] bool shares_host_memory() const { return transport() == "shared memory"; }
    /// Of the process, for all groups. Null, and the reason in `why`, if there is too little.
    static void* host_memory(std::size_t size_bytes, std::string& why);
    static void release_host_memory(void* data);

    void abort(const std::string& why) const;
    /// MUSTER_OK, or the first failure.
    [[nodiscard]] muster_status status() const;

    /// The queue of collectives, and one for each direction of each pair.
    std::shared_ptr<Lane> lane(int peer = -1, bool sends = false);
    [[nodiscard]] bool is_idle() const;
    /// Throws in a forked child, which has neither the threads nor the connections, and after leave_all().
    void check_usable() const;

    /// For the end of the process: waits for what is in progress until the deadline, then aborts it.
    static void end_all(std::chrono::steady_clock::time_point deadline);
    /// The same for this group.
    void settle(std::chrono::steady_clock::time_point deadline) const;

    /// For the next round in the same process: aborts all groups, waits for their threads, and closes their
    /// connections, whoever still holds a group. False: an operation has not ended by the deadline.
    static bool leave_all(const std::string& why, std::chrono::steady_clock::time_point deadline);

  private:
    void check(muster_status status) const;

    const GroupTerms terms_;
    const pid_t process_;
    const std::uint32_t forks_;
    [[nodiscard]] bool look_until_idle(const std::function<bool()>& goes_on) const;
    [[nodiscard]] bool is_forked() const { return forks_ != fork_count; }
    muster_communicator* handle_ = nullptr;  ///< invalid after leave_all(), and no other's then
    std::atomic<bool> has_left_ = false;
    mutable std::mutex lanes_mutex_;
    std::map<std::pair<int, bool>, std::shared_ptr<Lane>> lanes_;
};

}  // namespace muster::torch_backend
