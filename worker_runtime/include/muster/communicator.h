// A group of ranks that move data together.
//
// All ranks of a group must run the same collectives in the same order. Every send needs a matching receive.
//
// Every operation has a deadline. A failure is the death of a peer, an abort by a peer, different operations on two
// ranks, the end of the round, a passed deadline, or abort(). After a failure the communicator is dead: the current
// operation and every later one return the first failure, which names the rank that caused it. Buffers are then
// undefined. To continue, start a new round. An operation that is refused before anything has moved leaves the
// communicator as it was: one with wrong arguments, or an all_to_all_uneven whose ranks contradict each other. status()
// tells which of both it was.
//
// Thread-safe. Operations of several threads run one after another, in an unspecified order that may differ between
// ranks. Therefore start the collectives of one communicator from one thread.
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

/// A started operation. Cheap to move. It may be dropped without waiting: the operation continues, and its memory must
/// stay valid.
class Work {
  public:
    Work() = default;
    /// True after the operation succeeded or failed.
    [[nodiscard]] bool done() const;
    /// Waits until the operation is over, at most until its deadline, and returns its result.
    Result<void> wait();
    /// The run time of the operation, without the time in the queue. Zero until it is over.
    [[nodiscard]] Duration took() const;

  private:
    friend class runtime::CommunicatorBody;
    explicit Work(std::shared_ptr<runtime::WorkState> state) : state_(std::move(state)) {}
    std::shared_ptr<runtime::WorkState> state_;
};

/// Memory that a communicator can reduce in place. It is freed with the last copy of this object and may outlive the
/// communicator. On a GPU, freeing waits for all work of this process on the device, as cudaFree does: finish sends and
/// receives first.
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
    /// One of "shared memory", "tcp", "hierarchical", "nccl", "alone".
    [[nodiscard]] std::string_view transport() const;

    /// The default deadline of an operation.
    [[nodiscard]] Duration timeout() const;

    /// Runs `operation` to its end. This has the lowest latency: it changes threads only while started work is in
    /// progress.
    Result<void> run(const Operation& operation);
    /// The same with another deadline; `timeout` counts from now.
    Result<void> run(const Operation& operation, Duration timeout);

    /// Receives `buffer` from the first rank whose message is there, and returns that rank. `tag`: that of the message;
    /// the one that is there must have it. It looks at all ranks in turn, so its latency is up to a millisecond.
    Result<int> receive_any(Buffer buffer, std::uint32_t tag, Duration timeout);

    /// Starts `operation` on a thread of the communicator. `timeout` counts from the moment when it leaves the queue.
    Work start(const Operation& operation);
    Work start(const Operation& operation, Duration timeout);

    /// Returns zeroed, page-aligned memory of `size_bytes` on every rank. With NCCL it is registered GPU memory. A
    /// collective: all ranks pass the same size, in the same order among their other operations. limit_exceeded: this
    /// host has too little memory for all of its ranks; nothing is allocated.
    Result<Memory> allocate(std::size_t size_bytes);

    /// Makes a group of the ranks that passed the same `color`, ordered by `key`, then by rank here. A collective over
    /// the whole group. A rank with a negative color joins no group and gets an empty result. If a rank dies, aborts or
    /// fails, the split fails on the whole group.
    Result<std::unique_ptr<Communicator>> split(int color, int key);

    /// Ends this communicator on all ranks. Any thread may call it. Operations in progress return within milliseconds.
    void abort(std::string_view why);

    /// The first failure, or success.
    [[nodiscard]] Result<void> status() const;

    /// For the gradient engine: the queue for work on allocate() memory that the host cannot access (GPU memory). Null
    /// if the host can access it.
    [[nodiscard]] runtime::DeviceQueue* device() const;

    /// For code that makes communicators: Context, split() and tests.
    explicit Communicator(std::shared_ptr<runtime::CommunicatorBody> body);

  private:
    std::shared_ptr<runtime::CommunicatorBody> body_;
};

}  // namespace muster
