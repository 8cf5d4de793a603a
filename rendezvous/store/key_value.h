// The map behind a store: values, queues, barriers, and who waits for what. Pure; knows nothing of bytes on a wire.
//
// Waiting. A WaitSet belongs to one connection and is parked on every key of a request that did not exist at that time.
// Whenever such a key comes to exist its link is taken off; with the last link the set is *released* and appended to
// released(). A later deletion changes nothing (PyTorch's rule, C10D.md). Every operation that gives a key a value
// wakes all its waiters; QUEUE_PUSH wakes one; of the arrivals at a barrier only the last one does.
//
// Cost: parking, waking and cancelling are O(1) per (connection, key) pair, whatever the number of waiters on the key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/store/key_table.h"
#include "rendezvous/store/shared_value.h"
#include "rendezvous/store/store_config.h"

namespace muster::rendezvous {

/// Where one connection is parked. Must not move or die while parked: cancel() it first.
class WaitSet {
  public:
    explicit WaitSet(void* owner) : owner_(owner) {}
    WaitSet& operator=(WaitSet&&) = delete;

    [[nodiscard]] bool parked() const { return missing_count_ > 0; }
    /// What its links take, released ones included.
    [[nodiscard]] std::size_t held_bytes() const { return links_.capacity() * sizeof(WaitLink); }
    /// Whatever the constructor was given, for whoever reads released().
    [[nodiscard]] void* owner() const { return owner_; }

  private:
    friend class KeyValue;
    void* owner_;
    std::vector<WaitLink> links_;  ///< never grows while a link of it is in a list
    std::size_t missing_count_ = 0;
};

/// A value on its way into the map: bytes to copy, or a string to take over (a large value that arrived in pieces).
struct NewValue {
    std::string_view bytes;
    std::string* owned = nullptr;  ///< when set, `bytes` is its content, and it is moved from
};

class KeyValue {
  public:
    /// `config` must outlive this object.
    explicit KeyValue(const StoreConfig& config);

    // Each of these fails with limit_exceeded when a quota forbids it; the map is then as it was.
    Result<void> set(std::string_view key, NewValue value);
    Result<void> append(std::string_view key, std::string_view value);
    Result<void> push(std::string_view key, NewValue value);
    /// Adds to the number that the value shows in decimal; a missing key counts as 0. The value is read as C's strtoll
    /// reads it (leading blanks, a sign, anything after the digits), as PyTorch does. invalid_argument when there is no
    /// number in it. Sums wrap around.
    Result<std::int64_t> add(std::string_view key, std::int64_t delta);
    /// Stores `desired` if the key's value equals `expected`, or if there is no key and `expected` is empty. Returns
    /// the value afterwards; null when there is no key and nothing was stored (PyTorch then answers with `expected`).
    Result<SharedValue> compare_set(std::string_view key, std::string_view expected, NewValue desired);
    /// Counts one more arrival. True when all `world` have come: everyone parked on the key is released. False: `set`
    /// is parked on it now.
    Result<bool> arrive(std::string_view key, std::int64_t world, WaitSet& set);
    /// True when all keys exist; else `set` (which must not be parked) is parked on the missing ones.
    Result<bool> wait(const std::vector<std::string_view>& keys, WaitSet& set);

    /// The value, or null. Share it, never change it.
    [[nodiscard]] SharedValue get(std::string_view key) const;
    /// A value, or a queue that is not empty.
    [[nodiscard]] bool exists(std::string_view key) const;
    /// Takes the value away, not the queue. False when there was none.
    bool erase(std::string_view key);
    /// The head of the queue, or null; `length` is the length before.
    SharedValue pop(std::string_view key, std::size_t& length);
    [[nodiscard]] std::size_t queue_length(std::string_view key) const;
    [[nodiscard]] std::size_t value_count() const { return value_count_; }
    /// Every key that has a value, in order of creation.
    [[nodiscard]] std::vector<std::string_view> keys() const;

    /// Takes the set off all lists; one step per key. Frees what a set of many keys held, also of a released one.
    void cancel(WaitSet& set);
    /// The sets released since the caller last emptied it, in the order in which they were parked on the last key.
    [[nodiscard]] std::vector<WaitSet*>& released() { return released_; }

    /// Forgets every value and queue. Nobody may be parked.
    void clear();

    /// A string for a value of `size` bytes that is about to come in pieces: empty, or with the memory and the bytes of
    /// a large value that was replaced or deleted. (A store whose large values are written again and again would
    /// otherwise ask the kernel for their pages each time.)
    [[nodiscard]] std::string take_spare(std::size_t size);

    /// Room that others take out of the same quota (half-received requests).
    Result<void> take_bytes(std::size_t size);
    void give_bytes(std::size_t size) { other_bytes_.subtract(size); }
    /// With the values that replies still hold.
    [[nodiscard]] std::size_t bytes() const {
        return table_bytes_.bytes() + other_bytes_.bytes() + orphan_bytes_.bytes();
    }
    [[nodiscard]] const std::shared_ptr<MemoryBudget>& memory() const { return memory_; }
    /// Stops charging for values that no reply holds any more.
    void sweep();
    [[nodiscard]] std::size_t wait_count() const { return wait_count_; }

  private:
    Result<void> check_room(std::size_t more_bytes);
    void orphan(const std::shared_ptr<std::string>& value);
    Result<KeyEntry*> find_or_insert(std::string_view key);
    Result<void> store(KeyEntry& entry, NewValue value);
    Result<void> store_number(KeyEntry& entry, std::int64_t number);
    Result<void> park(KeyEntry& entry, WaitSet& set);
    void unlink(WaitLink& link);
    void wake_all(KeyEntry& entry);
    void wake_one(KeyEntry& entry);
    bool wake_first(KeyEntry& entry);
    void drop_if_unused(KeyEntry& entry);
    void keep_spare(std::shared_ptr<std::string>& value);

    const StoreConfig& config_;
    KeyTable table_;
    /// A value that left the map while replies held it. It is charged until the last of them is gone.
    struct Orphan {
        std::weak_ptr<const std::string> value;
        std::size_t bytes = 0;
    };

    const std::shared_ptr<MemoryBudget> memory_;
    /// An eighth of a budget with other holders is left to them: without it no agent could finish a TLS handshake.
    const std::size_t bytes_max_ = memory_->bytes_max() - (config_.memory ? memory_->bytes_max() / 8 : 0);
    MemoryCharge table_bytes_{memory_};
    MemoryCharge other_bytes_{memory_};
    MemoryCharge orphan_bytes_{memory_, MemoryCharge::Kind::waiting};
    std::vector<Orphan> orphans_;
    std::size_t sweep_at_ = 0;  ///< that many orphans
    std::size_t value_count_ = 0;
    std::size_t wait_count_ = 0;
    std::vector<WaitSet*> released_;
    std::string spare_;  ///< outside of the quota: it is one, and small beside it
};

}  // namespace muster::rendezvous
