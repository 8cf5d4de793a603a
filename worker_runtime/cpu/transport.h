// What carries a communicator's operations: shared memory, TCP, both, or nothing (a world of one).
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "muster/communicator.h"
#include "muster/operation.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

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

/// One group's. The caller (CommunicatorBody) checks arguments, keeps operations in order and remembers the first
/// failure; after a failure nothing but abort() and the destructor is called.
class Transport {
  public:
    virtual ~Transport() = default;

    [[nodiscard]] virtual std::string_view name() const = 0;

    /// A collective, to its end, in the calling thread. One at a time. An error names the rank that caused it.
    virtual Result<void> run(const Operation& operation, const RunTerms& terms) = 0;

    /// Point to point, to its end; one at a time in each direction of each pair, beside others and beside run().
    virtual Result<void> transfer(const Operation& operation, const RunTerms& terms) = 0;

    /// Memory that run() reduces in place; a collective. Called like run().
    virtual Result<Memory> allocate(std::size_t size_bytes, const RunTerms& terms) = 0;

    /// Any thread, any time, more than once: what runs here and on the peers returns within milliseconds. Peers are
    /// told `why` where they can be.
    virtual void abort(std::string_view why) = 0;
};

}  // namespace muster::runtime
