// The implementation of Communicator: checks arguments, runs operations one after another, keeps the first failure.
//
// A blocking run() with no started work before it uses the caller's own thread, for the lowest latency. Started work
// goes to a lane, a queue with its own thread: one for collectives, and one for each direction of each pair, so that a
// send without a receiver does not block others.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "muster/communicator.h"
#include "rendezvous/base/error.h"
#include "worker_runtime/flight/flight_recorder.h"
#include "worker_runtime/transport/meeting_place.h"
#include "worker_runtime/transport/transport.h"

namespace muster::runtime {

/// The state behind a Work.
struct WorkState {
    std::mutex mutex;
    std::condition_variable changed;
    std::atomic<bool> over = false;
    std::optional<Error> failure;
    Duration took{};
};

class CommunicatorBody;

/// All communicators of a round, so that the end of the round ends them.
class RoundGroups {
  public:
    void add(CommunicatorBody& body);
    /// Afterwards `body` may be destroyed: end() no longer uses it.
    void remove(CommunicatorBody& body);
    /// Aborts all present communicators, and every later one. `code`: round_ended if this process may enter the next
    /// round, else cancelled.
    void end(std::string_view why, Errc code = Errc::cancelled);
    /// Another round has begun for this process: later communicators are not aborted.
    void begin_again();
    /// The communicators that are not destroyed.
    [[nodiscard]] std::size_t count() const;
    /// An operation of any of them, also of one that is destroyed by now, has failed.
    [[nodiscard]] bool has_failed() const;
    void note_failure();

  private:
    mutable std::mutex mutex_;
    bool has_failed_ = false;
    std::set<CommunicatorBody*> bodies_;
    std::string ended_;
    Errc code_ = Errc::cancelled;
};

class CommunicatorBody {
  public:
    using MakeTransport = std::function<Result<std::unique_ptr<Transport>>(const GroupTerms&)>;

    struct Terms {
        GroupTerms group;
        Duration timeout = std::chrono::seconds(300);  ///< default deadline of an operation
        MakeTransport make_transport;                  ///< for split()
        std::shared_ptr<FlightRecorder> flight{};      ///< may be null
        std::shared_ptr<RoundGroups> groups{};         ///< the round's list of communicators; may be null
    };

    CommunicatorBody(Terms terms, std::unique_ptr<Transport> transport);
    ~CommunicatorBody();
    CommunicatorBody& operator=(CommunicatorBody&&) = delete;

    [[nodiscard]] int rank() const { return terms_.group.rank; }
    [[nodiscard]] int size() const { return terms_.group.size; }
    [[nodiscard]] std::string_view transport() const { return transport_->name(); }
    [[nodiscard]] Duration timeout() const { return terms_.timeout; }

    /// The maximum timeout: added to the current time it does not overflow.
    static constexpr Duration timeout_max = std::chrono::hours(24 * 366);

    Result<void> run(const Operation& operation, Duration timeout);
    Work start(const Operation& operation, Duration timeout);
    Result<int> receive_any(Buffer buffer, std::uint32_t tag, Duration timeout);
    Result<Memory> allocate(std::size_t size_bytes);
    [[nodiscard]] DeviceQueue* device() const { return transport_->device(); }
    /// An error ends this communicator, and the other ranks receive it.
    Result<std::unique_ptr<Communicator>> split(int color, int key);
    void abort(std::string_view why, Errc code = Errc::cancelled);
    [[nodiscard]] Result<void> status() const;

  private:
    struct Lane;
    [[nodiscard]] Result<void> check(const Operation& operation) const;
    [[nodiscard]] Result<void> check_parts(const Operation& operation) const;
    Result<Incoming> receive_if_there(const Operation& operation, Duration timeout);
    Lane& lane_of(const Operation& operation);
    Result<void> carry_out(const Operation& operation, const RunTerms& terms);
    Result<void> execute(Lane& lane, const Operation& operation, Duration timeout, WaitMode patience);
    void serve(Lane& lane);
    void run_next(Lane& lane, std::unique_lock<std::mutex>& lock);
    void launch_next(Lane& lane, std::unique_lock<std::mutex>& lock);
    void end_oldest(Lane& lane, const Result<void>& done);
    /// This rank's call has failed.
    Error fail(Error error);
    /// The same without a word to RoundGroups, which may be the caller. Returns the first failure.
    Error keep_failure(Error error);
    /// An error ends this communicator, even if a transport or parent group detected it.
    Result<void> check_alive(Instant since);
    Result<std::unique_ptr<Transport>> make_part(const SplitTerms& split);
    Error why_no_part(const Error& error);

    Terms terms_;
    std::unique_ptr<Transport> transport_;
    std::uint32_t flight_group_ = 0;
    std::uint64_t splits_ = 0;

    std::atomic<bool> failed_ = false;
    mutable std::mutex failure_mutex_;
    std::optional<Error> failure_;

    std::mutex lanes_mutex_;
    std::map<std::pair<int, bool>, std::unique_ptr<Lane>> lanes_;  ///< by (peer, sends); collectives at (-1, false)
    Lane* collectives_ = nullptr;
};

}  // namespace muster::runtime
