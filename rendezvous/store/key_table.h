// The store's hash table: keys to entries, with one list through all entries in order of creation.
//
// Why our own: iteration must give the same order on every run (LIST_KEYS, tests, simulation), entries must keep their
// address (wait lists point at them), and nobody may choose keys that collide, so the hash is SipHash-1-3 (Aumasson and
// Bernstein, "SipHash: a fast short-input PRF", 2012) under a seed from outside.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace muster::rendezvous {

class WaitSet;
struct KeyEntry;

/// One wait of one connection for one key, in the entry's list.
struct WaitLink {
    WaitLink* previous = nullptr;
    WaitLink* next = nullptr;
    KeyEntry* entry = nullptr;  ///< null when not in a list
    WaitSet* set = nullptr;
};

struct KeyEntry {
    std::string key;
    /// Null: no such key (the entry is there for its queue or its waiters). The string changes in place only while
    /// nobody else holds a reference.
    std::shared_ptr<std::string> value;
    std::unique_ptr<std::deque<std::shared_ptr<std::string>>> queue;  ///< null or not empty
    WaitLink* first_wait = nullptr;                                   ///< in order of arrival
    WaitLink* last_wait = nullptr;

    [[nodiscard]] bool exists() const { return value != nullptr || queue != nullptr; }
    [[nodiscard]] bool in_use() const { return exists() || first_wait != nullptr; }

    // Owned by KeyTable.
    std::uint64_t hash = 0;
    KeyEntry* bucket_next = nullptr;
    KeyEntry* older = nullptr;
    KeyEntry* newer = nullptr;
};

class KeyTable {
  public:
    explicit KeyTable(std::uint64_t seed) : seed_(seed) {}
    ~KeyTable() { clear(); }
    KeyTable& operator=(KeyTable&&) = delete;

    /// Null when there is none. An entry stays where it is until erase() or clear().
    [[nodiscard]] KeyEntry* find(std::string_view key) const;
    KeyEntry& find_or_insert(std::string_view key);
    void erase(KeyEntry& entry);
    void clear();

    [[nodiscard]] std::size_t size() const { return size_; }
    /// The oldest entry; follow `newer`.
    [[nodiscard]] KeyEntry* oldest() const { return oldest_; }

  private:
    [[nodiscard]] std::uint64_t hash(std::string_view key) const;
    [[nodiscard]] KeyEntry* find_hashed(std::string_view key, std::uint64_t hash) const;
    void grow();

    std::uint64_t seed_;
    std::vector<KeyEntry*> buckets_ = std::vector<KeyEntry*>(64);  ///< a power of two
    std::size_t size_ = 0;
    KeyEntry* oldest_ = nullptr;
    KeyEntry* newest_ = nullptr;
};

}  // namespace muster::rendezvous
