// What carries a communicator's operations: shared memory, TCP, NCCL, or nothing (a world of one).
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

/// How a wait may spend the processor.
enum class Patience {
    eager,   ///< a thread that has nothing else to do: spin before sleeping, where cores allow
    frugal,  ///< a thread beside a computing one: sleep soon
};

struct RunTerms {
    Instant deadline;  ///< then the operation fails, naming the rank that did not come
    Patience patience = Patience::eager;
};

/// A group of some ranks of another.
struct SplitTerms {
    GroupTerms group;          ///< the new one's, this rank's; without meaning where `color` is negative
    std::vector<int> members;  ///< ranks of the old group, in the new one's order
    int color = 0;             ///< negative: this rank takes part in none
};

class DeviceQueue;

/// One group's. The caller (CommunicatorBody) checks arguments, keeps operations in order and remembers the first
/// failure; after a failure nothing but abort() and the destructor is called.
class Transport {
  public:
    virtual ~Transport() = default;

    [[nodiscard]] virtual std::string_view name() const = 0;

    /// A collective, to its end, in the calling thread. One at a time. An error names the rank that caused it.
    virtual Result<void> run(const Operation& operation, const RunTerms& terms) = 0;

    /// May `operation` be launched behind collectives that are not over? Never where run() is all there is.
    [[nodiscard]] virtual bool launches(const Operation& /*operation*/) { return false; }
    /// Puts such a collective behind those launched before, without waiting for any of them to end.
    virtual Result<void> launch(const Operation& /*operation*/, const RunTerms& /*terms*/) { return {}; }
    /// Is the oldest launched collective over? Returns at once: false is asked again, true gives the turn to the next.
    /// run(), allocate() and split() come when all are over.
    virtual Result<bool> oldest_over(const RunTerms& /*terms*/) { return true; }

    /// What works on memory of allocate() that the host cannot touch; null where it can.
    [[nodiscard]] virtual DeviceQueue* device() { return nullptr; }

    /// Point to point, to its end; one at a time in each direction of each pair, beside others and beside run().
    virtual Result<void> transfer(const Operation& operation, const RunTerms& terms) = 0;

    /// Memory that run() reduces in place; a collective. Called like run().
    virtual Result<Memory> allocate(std::size_t size_bytes, const RunTerms& terms) = 0;

    /// The new group's transport, made from this one; a collective, called like run(). Null: there is no way to do so
    /// that is better than making it anew, as the caller then does; or this rank takes part in none.
    virtual Result<std::unique_ptr<Transport>> split(const SplitTerms& /*split*/, const RunTerms& /*terms*/) {
        return std::unique_ptr<Transport>();
    }

    /// An error is the group's end: a rank's death, another's failure or abort(). For who waits for other ranks without
    /// this group's help, `since` when; returns at once.
    virtual Result<void> check_alive(Instant /*since*/) { return {}; }

    /// Ends the group with this failure, which the other ranks are told; where it has one already, with that. Gives the
    /// one that it has.
    virtual Error fail(const Error& error) {
        abort(error.context);
        return error;
    }

    /// Any thread, any time, more than once: what runs here and on the peers returns within milliseconds. Peers are
    /// told `why` where they can be.
    virtual void abort(std::string_view why) = 0;
};

}  // namespace muster::runtime
