#include "rendezvous/store/key_table.h"

#include <bit>
#include <cstring>

namespace muster::rendezvous {

namespace {

struct SipState {
    std::uint64_t v0, v1, v2, v3;

    void round() {
        v0 += v1;
        v1 = std::rotl(v1, 13) ^ v0;
        v0 = std::rotl(v0, 32);
        v2 += v3;
        v3 = std::rotl(v3, 16) ^ v2;
        v0 += v3;
        v3 = std::rotl(v3, 21) ^ v0;
        v2 += v1;
        v1 = std::rotl(v1, 17) ^ v2;
        v2 = std::rotl(v2, 32);
    }
    void absorb(std::uint64_t word) {
        v3 ^= word;
        round();
        v0 ^= word;
    }
};

}  // namespace

std::uint64_t KeyTable::hash(std::string_view key) const {
    const std::uint64_t second_half = seed_ * 0x9e3779b97f4a7c15u;
    SipState state{seed_ ^ 0x736f6d6570736575u, second_half ^ 0x646f72616e646f6du, seed_ ^ 0x6c7967656e657261u,
                   second_half ^ 0x7465646279746573u};
    std::uint64_t word = 0;
    const char* bytes = key.data();
    std::size_t left = key.size();
    for (; left >= 8; left -= 8, bytes += 8) {
        std::memcpy(&word, bytes, 8);
        state.absorb(word);
    }
    word = 0;
    if (left > 0) std::memcpy(&word, bytes, left);
    state.absorb(word | (static_cast<std::uint64_t>(key.size()) << 56));
    state.v2 ^= 0xff;
    for (int i = 0; i < 3; ++i) state.round();
    return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

KeyEntry* KeyTable::find_hashed(std::string_view key, std::uint64_t hash) const {
    KeyEntry* entry = buckets_[hash & (buckets_.size() - 1)];
    while (entry != nullptr && (entry->hash != hash || entry->key != key)) entry = entry->bucket_next;
    return entry;
}

KeyEntry* KeyTable::find(std::string_view key) const {
    return find_hashed(key, hash(key));
}

KeyEntry& KeyTable::find_or_insert(std::string_view key) {
    const auto hashed = hash(key);
    if (KeyEntry* found = find_hashed(key, hashed)) return *found;
    if (size_ >= buckets_.size()) grow();
    auto* entry = new KeyEntry{};
    entry->key.assign(key);
    entry->hash = hashed;
    KeyEntry*& bucket = buckets_[hashed & (buckets_.size() - 1)];
    entry->bucket_next = bucket;
    bucket = entry;
    entry->older = newest_;
    (newest_ != nullptr ? newest_->newer : oldest_) = entry;
    newest_ = entry;
    ++size_;
    return *entry;
}

void KeyTable::erase(KeyEntry& entry) {
    KeyEntry** link = &buckets_[entry.hash & (buckets_.size() - 1)];
    while (*link != &entry) link = &(*link)->bucket_next;
    *link = entry.bucket_next;
    (entry.older != nullptr ? entry.older->newer : oldest_) = entry.newer;
    (entry.newer != nullptr ? entry.newer->older : newest_) = entry.older;
    --size_;
    delete &entry;
}

void KeyTable::clear() {
    for (KeyEntry* entry = oldest_; entry != nullptr;) {
        KeyEntry* const next = entry->newer;
        delete entry;
        entry = next;
    }
    oldest_ = newest_ = nullptr;
    size_ = 0;
    buckets_.assign(64, nullptr);
}

// Doubling keeps the average chain below one entry; the cost is one pass over the creation list.
void KeyTable::grow() {
    buckets_.assign(buckets_.size() * 2, nullptr);
    for (KeyEntry* entry = oldest_; entry != nullptr; entry = entry->newer) {
        KeyEntry*& bucket = buckets_[entry->hash & (buckets_.size() - 1)];
        entry->bucket_next = bucket;
        bucket = entry;
    }
}

}  // namespace muster::rendezvous
