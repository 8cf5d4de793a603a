// A group of ranks that move data together.
//
// All ranks of a group must run the same collectives in the same order; send and receive pair up among two ranks.
// Every operation has a deadline. After any failure (a peer died, stopped, or did something else; the round ended; the
// deadline passed; abort()) the communicator is dead: the operation in progress and every later one return the first
// failure, which names the rank that caused it, and the only way on is a new round. What buffers hold then is
// undefined.
//
// Thread-safe. Operations of several threads run one after another, in an order that is then up to chance: ranks would
// disagree about it, so let one thread start the collectives of one communicator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "muster/operation.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster {

namespace runtime {
class CommunicatorBody;
class DeviceQueue;
struct WorkState;
}  // namespace runtime

/// One started operation. Cheap to move; may be dropped without waiting (the operation goes on, and its memory must
/// still stay valid).
class Work {
  public:
    Work() = default;
    /// Is it over, for good or ill?
    [[nodiscard]] bool done() const;
    /// Returns when it is over, which the operation's own deadline guarantees.
    Result<void> wait();
    /// How long it ran, without the wait for its turn. Zero until it is over.
    [[nodiscard]] Duration took() const;

  private:
    friend class runtime::CommunicatorBody;
    explicit Work(std::shared_ptr<runtime::WorkState> state) : state_(std::move(state)) {}
    std::shared_ptr<runtime::WorkState> state_;
};

/// Memory that a communicator can reduce in place. Freed with the last copy of the object; the communicator may go
/// first. On a GPU the last copy's end waits for everything that this process runs there, as cudaFree does: let sends
/// and receives have ended before.
class Memory {
  public:
    Memory() = default;
    explicit Memory(std::shared_ptr<std::span<std::byte>> bytes) : bytes_(std::move(bytes)) {}
    [[nodiscard]] std::byte* data() const { return bytes_ ? bytes_->data() : nullptr; }
    [[nodiscard]] std::size_t size_bytes() const { return bytes_ ? bytes_->size() : 0; }

  private:
    std::shared_ptr<std::span<std::byte>> bytes_;
};

class Communicator {
  public:
    ~Communicator();
    Communicator(Communicator&&) noexcept;
    Communicator& operator=(Communicator&&) noexcept;

    [[nodiscard]] int rank() const;
    [[nodiscard]] int size() const;
    /// "shared memory", "tcp", "hierarchical", "nccl", "alone".
    [[nodiscard]] std::string_view transport() const;

    /// Of an operation that names none.
    [[nodiscard]] Duration timeout() const;

    /// Runs `operation` to its end. The lowest latency: nothing changes threads unless started work is still going on.
    Result<void> run(const Operation& operation);
    /// The same with a deadline of its own; `timeout` counts from now.
    Result<void> run(const Operation& operation, Duration timeout);

    /// Starts `operation`; a thread of the communicator runs it. `timeout` counts from when it is its turn.
    Work start(const Operation& operation);
    Work start(const Operation& operation, Duration timeout);

    /// Zeroed memory of `size_bytes` on every rank, aligned to a page; with NCCL of the GPU, registered there. A
    /// collective: all ranks ask for the same size, in the same order among the other operations. limit_exceeded when
    /// this host has too little memory for all of its ranks; nothing is taken then.
    Result<Memory> allocate(std::size_t size_bytes);

    /// A new group of the ranks that gave the same `color`, ordered by `key` and then by rank here. A collective over
    /// the whole group; a negative color gets an empty result (a rank that takes part in none). A failure ends the
    /// whole group, whoever in it dies, aborts or lacks what it needs.
    Result<std::unique_ptr<Communicator>> split(int color, int key);

    /// Ends this communicator on all ranks, from any thread: operations in progress return within milliseconds.
    void abort(std::string_view why);

    /// The first failure; nothing while all is well.
    [[nodiscard]] Result<void> status() const;

    /// For the engine: what works on memory of allocate() that the host cannot touch (a GPU's). Null where it can.
    [[nodiscard]] runtime::DeviceQueue* device() const;

    /// For those who make communicators: Context, split() and tests.
    explicit Communicator(std::shared_ptr<runtime::CommunicatorBody> body);

  private:
    std::shared_ptr<runtime::CommunicatorBody> body_;
};

}  // namespace muster
