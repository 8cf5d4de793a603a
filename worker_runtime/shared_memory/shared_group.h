// The ranks of one host and their shared memory: how they meet, proceed in steps, and detect the end of a rank.
//
// Lock step: step() increments this rank's word and waits until all others have reached the same step. All ranks see
// after their step what a rank wrote before its own. meet() is the step that begins an operation: ranks compare
// signatures there, before data moves. Windows are used in turns (turn()): a half that was written before a step and
// read after it may be overwritten two turns later, because every rank has then passed another step.
//
// Any rank can write anywhere in the shared memory, also by a bug in its own program. So nothing that lies there
// decides about an address or a length before it was copied, once, and checked; a value out of range ends the group on
// all ranks with a failure that names the rank.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "muster/communicator.h"
#include "muster/operation.h"
#include "worker_runtime/shared_memory/helper_threads.h"
#include "worker_runtime/shared_memory/local_meeting.h"
#include "worker_runtime/shared_memory/shared_layout.h"
#include "worker_runtime/shared_memory/shared_segment.h"
#include "worker_runtime/transport/fd_watch.h"
#include "worker_runtime/transport/meeting_place.h"
#include "worker_runtime/transport/transport.h"

namespace muster::runtime {

class SharedGroup {
  public:
    /// All ranks of `terms` must be able to meet (can_meet of their identities); `door` is this rank's.
    static Result<std::unique_ptr<SharedGroup>> form(const GroupTerms& terms, LocalDoor door,
                                                     std::vector<LocalIdentity> identities,
                                                     std::shared_ptr<FdWatch> watch, const MeetingWait& wait);
    ~SharedGroup();
    SharedGroup& operator=(SharedGroup&&) = delete;

    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int size() const { return size_; }
    [[nodiscard]] HelperThreads& helpers() const { return *helpers_; }

    /// Begins `operation`: after this step all ranks run the same operation. invalid_argument, on every rank, names the
    /// first two ranks that differ; bad_frame the rank whose entry in the shared memory makes no sense. `copied`: this
    /// rank's data is in its window already.
    Result<void> meet(const Operation& operation, bool copied, const RunTerms& terms);
    /// Begins `operation` without waiting: all ranks compare it elsewhere before it can end. A rank that meets for
    /// another operation detects the difference here.
    Result<void> announce(const Operation& operation);
    /// One more step of the operation that meet() began.
    Result<void> step(const RunTerms& terms);

    /// `rank`'s half of this turn.
    [[nodiscard]] std::byte* window(int rank) const;
    void turn() { ++turns_; }

    /// After meet(): where each rank's `size_bytes` of data is, if all ranks have it in HostMemory, or all in memory of
    /// the same allocate(); else empty. Offsets may differ. bad_frame, the group's failure: it does not fit there.
    [[nodiscard]] Result<std::vector<void*>> common_memory(std::size_t size_bytes);
    /// True if `data` is in memory from allocate(), or in HostMemory.
    [[nodiscard]] bool is_shared(const void* data) const;
    /// After meet(): true if every rank had copied its data.
    [[nodiscard]] bool all_copied() const;
    /// After meet(): the ranks' weights; empty when all are 1.
    [[nodiscard]] std::vector<double> weights() const;

    Result<Memory> allocate(std::size_t size_bytes, const RunTerms& terms);

    [[nodiscard]] ChannelLine& channel(int from, int to) const;
    [[nodiscard]] std::byte* channel_slot(int from, int to, std::uint64_t number) const;

    /// Returns at once; an error is the group's failure.
    [[nodiscard]] Result<void> check_alive() const;
    /// Ends the group with this failure, unless it has one already. Returns the first one.
    Error fail(Errc code, const std::string& text);
    [[nodiscard]] Error failure() const;
    /// The name of `rank` in messages, such as "rank 3 (pid 4711 on gpu07)".
    [[nodiscard]] std::string who(int rank) const;
    [[nodiscard]] std::string who(const std::vector<int>& ranks) const;
    /// The same, where `rank` has left nonsense in the shared memory: bad_frame.
    Error corrupted(int rank, const std::string& what);
    /// Waits for `from`'s step of a message; an error is the group's end.
    Result<void> await_message(int from, StepWord& word, std::uint64_t step, const Operation& operation,
                               const RunTerms& terms);

    /// The ranks for which this one waits. Thread-safe.
    [[nodiscard]] std::vector<int> awaited() const;
    /// The operation of which a wait is a part.
    enum class WaitIn { collective, message };
    /// The ranks of `late`, or elsewhere, that keep the group waiting, as text; or the failure that ended it meanwhile.
    using Blame = std::function<Result<std::string>(const std::vector<int>& late, WaitIn what)>;
    /// Called at a deadline. Without it, the missing ranks are named.
    void set_failure_query(Blame blame) { blame_ = std::move(blame); }

  private:
    struct Region;
    struct KnownRegion {
        std::weak_ptr<Region> memory;
        std::size_t size_bytes;
    };
    SharedGroup(const GroupTerms& terms, LocalMeeting meeting, std::shared_ptr<FdWatch> watch);
    Result<void> share_segments(const MeetingWait& wait);
    Result<void> watch_peers(const MeetingWait& wait);
    Result<std::vector<SharedSegment>> share_memory(std::size_t own_bytes, const std::vector<std::size_t>& all_bytes,
                                                    const std::string& purpose, const MeetingWait& wait);
    Result<void> sign(const Operation& operation, bool copied);
    Result<void> await_all(const RunTerms& terms);
    Result<void> take_signatures();
    Result<void> compare_signatures();
    Result<void> map_new_regions(const RunTerms& terms);
    [[nodiscard]] bool is_new_region(int rank) const;
    [[nodiscard]] RankLine& line(int rank) const;
    [[nodiscard]] GroupHeader& header() const;
    [[nodiscard]] const Signature& signature(int rank) const { return met_[static_cast<std::size_t>(rank)]; }
    void locate(const void* data, Signature& signature) const;
    [[nodiscard]] Spin spin(WaitMode patience) const;
    /// True if this rank waits for that one, in a collective or for memory.
    [[nodiscard]] bool is_behind(int rank) const;
    /// Turns the end of a wait for `rank` (at a deadline: for `late`) into the group's failure.
    Error end_of_wait(WaitEnd end, int rank, const std::vector<int>& late, WaitIn what, const std::string& doing);
    void peer_ended(int rank);

    const int rank_;
    const int size_;
    const std::string id_;
    const SharedLayout layout_;
    LocalMeeting meeting_;
    std::shared_ptr<FdWatch> watch_;
    std::vector<SharedSegment> segments_;
    std::vector<FileDescriptor> peers_;  ///< pidfds
    std::vector<std::uint64_t> watched_;
    std::vector<KnownRegion> regions_;
    /// By rank: its regions of HostMemory that an operation of this group has used. This rank's own are not mapped
    /// again.
    std::vector<std::map<std::uint32_t, SharedSegment>> lent_;
    std::atomic<std::uint32_t> own_lent_ = 0;  ///< that of the last operation of this rank
    Operation operation_;
    std::vector<Signature>
        met_;  ///< by rank: of the operation that meet() began; this rank's own never left its memory
    std::uint64_t operations_ = 0;
    std::uint64_t steps_ = 0;
    std::uint64_t turns_ = 0;
    std::atomic<bool> shares_ = false;                   ///< an allocate() is in progress
    std::unique_ptr<std::atomic<int>[]> message_waits_;  ///< by rank: threads that wait for a message from it
    bool crowded_ = false;                               ///< more ranks than cores
    const std::shared_ptr<HelperThreads> helpers_ = HelperThreads::of_process();
    Blame blame_;
};

}  // namespace muster::runtime
