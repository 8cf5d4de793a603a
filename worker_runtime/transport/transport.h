// The interface of a transport: shared memory, TCP, NCCL, or none (a world of one).
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "muster/communicator.h"
#include "muster/operation.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "worker_runtime/transport/meeting_place.h"

namespace muster::runtime {

/// The use of the processor while waiting.
enum class WaitMode {
    eager,   ///< the thread has no other work: spin before sleeping, if there are enough cores
    frugal,  ///< the thread runs beside a computing one: sleep soon
};

struct RunTerms {
    Instant deadline;  ///< the operation fails then and names the rank that did not reach it
    WaitMode patience = WaitMode::eager;
};

/// A group of some ranks of another group.
struct SplitTerms {
    GroupTerms group;          ///< the new group as this rank sees it; undefined if `color` is negative
    std::vector<int> members;  ///< ranks of the old group, in the new one's order
    int color = 0;             ///< negative: this rank joins no group
};

class DeviceQueue;

/// What a rank has sent that was not received yet.
enum class Incoming {
    nothing,
    message,  ///< or the end of a connection, whose cause transfer() finds
    left,     ///< nothing, and nothing will follow: the rank closed this communicator
};

/// The transport of one group. The caller (CommunicatorBody) checks arguments, keeps operations in order and keeps the
/// first failure. After a failure it calls only abort() and the destructor.
class Transport {
  public:
    virtual ~Transport() = default;

    [[nodiscard]] virtual std::string_view name() const = 0;

    /// Returns at once, the same on every rank: an error if this transport lacks `operation`. It is no failure of the
    /// group.
    [[nodiscard]] virtual Result<void> check(const Operation& /*operation*/) const { return {}; }

    /// Runs a collective to its end in the calling thread, one at a time. An error names the rank that caused it.
    virtual Result<void> run(const Operation& operation, const RunTerms& terms) = 0;

    /// True if `operation` can be launched while earlier collectives are in progress. False if there is only run().
    [[nodiscard]] virtual bool launches(const Operation& /*operation*/) { return false; }
    /// Enqueues such a collective after those launched before, without waiting.
    virtual Result<void> launch(const Operation& /*operation*/, const RunTerms& /*terms*/) { return {}; }
    /// Returns at once: true if the oldest launched collective is complete (the next one is asked then), else false.
    /// run(), allocate() and split() are called when all are complete.
    virtual Result<bool> oldest_over(const RunTerms& /*terms*/) { return true; }

    /// The queue for work on allocate() memory that the host cannot access; null if it can.
    [[nodiscard]] virtual DeviceQueue* device() { return nullptr; }

    /// Runs a send or receive to its end. One at a time in each direction of each pair, beside others and beside run().
    virtual Result<void> transfer(const Operation& operation, const RunTerms& terms) = 0;

    /// Returns at once. Called like transfer() of a receive from `peer`. An error, which is not the group's: this group
    /// cannot tell.
    [[nodiscard]] virtual Result<Incoming> incoming(int /*peer*/) { return Incoming::nothing; }

    /// A collective, called like run(): allocates memory that run() reduces in place.
    virtual Result<Memory> allocate(std::size_t size_bytes, const RunTerms& terms) = 0;

    /// A collective, called like run(): the new group's transport, made from this one. Null if a new transport is no
    /// worse, which the caller then makes, or if this rank joins no group.
    virtual Result<std::unique_ptr<Transport>> split(const SplitTerms& /*split*/, const RunTerms& /*terms*/) {
        return std::unique_ptr<Transport>();
    }

    /// Returns at once. An error is the group's failure: a rank's death, another rank's failure or abort(). For callers
    /// that wait for other ranks without this group's help, since `since`.
    virtual Result<void> check_alive(Instant /*since*/) { return {}; }

    /// Ends the group with this failure and sends it to the other ranks. If the group has a failure already, it keeps
    /// that one. Returns the failure it has.
    virtual Error fail(const Error& error) {
        abort(error.context);
        return error;
    }

    /// Thread-safe, at any time, repeatedly: operations here and on the peers return within milliseconds. Peers receive
    /// `why` if possible.
    virtual void abort(std::string_view why) = 0;
};

}  // namespace muster::runtime
