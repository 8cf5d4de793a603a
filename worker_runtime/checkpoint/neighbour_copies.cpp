#include "worker_runtime/checkpoint/neighbour_copies.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/base/kernel/available_memory.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/thread_start.h"
#include "worker_runtime/checkpoint/agreement.h"
#include "worker_runtime/checkpoint/format/rank_file.h"

namespace muster::runtime {

namespace {

constexpr std::uint64_t copy_chunk_bytes = 1u << 20;
/// A neighbour that is silent for so long costs the copies of this round.
constexpr Duration chunk_time = 60s;
/// The same before a copy. A rank with a larger share first reserves memory, copies and computes checksums, and the
/// rank that receives it reserves as much. With tens of gigabytes in new memory that may take a minute. The end of its
/// connection shows one that has died.
constexpr Duration head_time = 10min;
constexpr auto closed = "a checkpointer was closed";

/// Some operations at a time. All are over after wait(), or when it goes: they use memory of those who started them.
class Batch {
  public:
    explicit Batch(Communicator& group) : group_(group) {}
    ~Batch() { static_cast<void>(wait()); }
    Batch& operator=(Batch&&) = delete;
    void start(const Operation& operation, Duration limit = chunk_time) {
        works_.push_back(group_.start(operation, limit));
    }
    Result<void> wait() {
        Result<void> all;
        for (auto& work : std::exchange(works_, {})) {
            if (auto done = work.wait(); !done && all) all = done;
        }
        return all;
    }

  private:
    Communicator& group_;
    std::vector<Work> works_;
};

Buffer bytes(std::span<std::byte> memory) {
    return {memory.data(), memory.size(), DataType::u8};
}

/// Of `size` bytes, those of the chunk that begins at `at`.
std::size_t chunk_size(std::uint64_t size, std::uint64_t at) {
    return at < size ? static_cast<std::size_t>(std::min(copy_chunk_bytes, size - at)) : 0;
}

}  // namespace

NeighbourCopies::NeighbourCopies(Terms terms) : terms_(std::move(terms)) {
    for (const auto& source : terms_.sources) {
        incoming_.emplace_back();
        incoming_.back().source = source;
    }
}

Result<std::unique_ptr<NeighbourCopies>> NeighbourCopies::start(Terms terms) {
    std::unique_ptr<NeighbourCopies> copies(new NeighbourCopies(std::move(terms)));
    copies->thread_ = MUSTER_TRY(start_thread("muster-copies", [raw = copies.get()] { raw->run(); }));
    return copies;
}

NeighbourCopies::~NeighbourCopies() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
        changed_.notify_all();
    }
    terms_.group->abort(closed);
    if (thread_.joinable()) thread_.join();
}

void NeighbourCopies::begin(std::span<const std::byte> memory, std::int64_t step) {
    const std::lock_guard lock(mutex_);
    MUSTER_CHECK(!image_, "a copy is under way");
    if (failed_) return;
    image_ = {memory, step};
    changed_.notify_all();
}

bool NeighbourCopies::idle() const {
    const std::lock_guard lock(mutex_);
    return !image_;
}

void NeighbourCopies::finish() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !image_; });
}

std::int64_t NeighbourCopies::copied_step() const {
    const std::lock_guard lock(mutex_);
    return copied_step_;
}

void NeighbourCopies::run() {
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [this] { return image_ || stopping_; });
        if (stopping_) return;
        const auto image = *image_;
        lock.unlock();
        const auto done = exchange(image);
        lock.lock();
        failed_ = !done;
        if (done && *done) copied_step_ = image.step;
        image_.reset();
        changed_.notify_all();
        if (done || stopping_) continue;
        // A round that ends is told elsewhere.
        log(done.error().code == Errc::timed_out ? LogLevel::warning : LogLevel::info,
            "snapshots are no longer copied to the next node in this round: ", done.error().context);
    }
}

/// Heads, then bytes, then what the agents have taken; among all ranks that are tied together, chunk by chunk. True:
/// the next node has this rank's.
Result<bool> NeighbourCopies::exchange(const Image& image) {
    Head own{image.memory.size(), image.step};
    {
        Batch batch(*terms_.group);
        batch.start(send(buffer(bytes_of(std::span(&own, 1))), terms_.target), head_time);
        for (auto& each : incoming_) {
            batch.start(receive(buffer(bytes_of(std::span(&each.head, 1))), each.source.group_rank), head_time);
        }
        MUSTER_TRY(batch.wait());
    }
    for (auto& each : incoming_) make_room(each);
    // All of them, because a rank that waits for its other neighbour stands still, too.
    MUSTER_TRY(terms_.group->run(barrier(), head_time));
    MUSTER_TRY(exchange_bytes(image));
    return exchange_receipts();
}

/// All ranks of this node look before any of them takes: each leaves room for all, and as much again for training.
Result<SharedSegment> NeighbourCopies::take_memory(std::uint64_t size) const {
    const auto share = available_memory_bytes() / (2 * static_cast<std::size_t>(std::max(terms_.ranks_here, 1)));
    // A little more, for longer texts beside the tensors. Another rank says the size: no sum with it may wrap around.
    const auto bytes = size < share ? in_whole_blocks(size) + 16 * file_alignment : size;
    if (bytes >= share) {
        return Error{Errc::limit_exceeded,
                     cat("cannot reserve ", bytes >> 10, " KiB for a copy of another node's snapshot: each of the ",
                         terms_.ranks_here, " ranks here may take ", share >> 10, " KiB of what is left")};
    }
    return SharedSegment::create(bytes, "a copy of another node's snapshot");
}

/// Where there is too little memory the copy is received all the same, and dropped.
void NeighbourCopies::make_room(Incoming& incoming) const {
    auto& room = incoming.rooms[incoming.turn];
    const auto size = incoming.head.size_bytes;
    incoming.taken = 0;
    if (size == 0 || room.size_bytes() >= size) return;
    room = {};
    auto memory = take_memory(size);
    if (memory) {
        room = std::move(*memory);
    } else {
        // Once: the next snapshot has no more memory than this one.
        log(incoming.scratch.empty() ? LogLevel::warning : LogLevel::debug, memory.error().context, "; rank ",
            incoming.source.rank, "'s copies are not kept while that is so");
        incoming.scratch.resize(chunk_size(size, 0));
    }
}

std::span<std::byte> NeighbourCopies::Incoming::chunk(std::uint64_t at) {
    const auto size = chunk_size(head.size_bytes, at);
    const auto& room = rooms[turn];
    return room.data() == nullptr ? std::span(scratch).first(size) : std::span(room.data() + at, size);
}

Result<void> NeighbourCopies::exchange_bytes(const Image& image) {
    std::uint64_t longest = image.memory.size();
    for (const auto& each : incoming_) longest = std::max(longest, each.head.size_bytes);
    const auto began = std::chrono::steady_clock::now();
    for (std::uint64_t at = 0; at < longest; at += copy_chunk_bytes) {
        Batch batch(*terms_.group);
        if (const auto size = chunk_size(image.memory.size(), at); size > 0) {
            MUSTER_TRY(pace(began, at));
            batch.start(send({image.memory.data() + at, size, DataType::u8}, terms_.target));
        }
        for (auto& each : incoming_) {
            if (const auto chunk = each.chunk(at); !chunk.empty()) {
                batch.start(receive(bytes(chunk), each.source.group_rank));
            }
        }
        MUSTER_TRY(batch.wait());
    }
    return {};
}

/// Waits until so many bytes may have been sent. An error once this is being closed: where two ranks close at the same
/// time, a copy that only waited for its time would else be completed by both.
Result<void> NeighbourCopies::pace(Instant began, std::uint64_t sent) {
    if (terms_.bytes_per_second == 0) return {};
    const std::chrono::duration<double> due(static_cast<double>(sent) / static_cast<double>(terms_.bytes_per_second));
    std::unique_lock lock(mutex_);
    if (changed_.wait_until(lock, began + std::chrono::duration_cast<Duration>(due), [this] { return stopping_; }))
        return Error{Errc::cancelled, closed};
    return {};
}

Result<bool> NeighbourCopies::exchange_receipts() {
    std::uint8_t own_taken = 0;
    Batch batch(*terms_.group);
    for (auto& each : incoming_) {
        auto& room = each.rooms[each.turn];
        const auto [size, step] = each.head;
        each.taken = size > 0 && room.data() != nullptr &&
                     terms_.snapshots->give_copy(room.descriptor(), size, step, each.source.rank);
        if (each.taken != 0) each.turn = (each.turn + 1) % each.rooms.size();
        batch.start(send(buffer(std::span(&each.taken, 1)), each.source.group_rank));
    }
    batch.start(receive(buffer(std::span(&own_taken, 1)), terms_.target));
    MUSTER_TRY(batch.wait());
    return own_taken != 0;
}

}  // namespace muster::runtime
