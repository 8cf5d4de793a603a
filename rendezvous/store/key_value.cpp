#include "rendezvous/store/key_value.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

namespace {

// What an empty entry, a value and a queue cost beside their bytes: allocations and their headers, rounded up. Without
// them a million empty values would count as nothing.
constexpr std::size_t entry_overhead_bytes = 192;
constexpr std::size_t value_overhead_bytes = 64;
constexpr std::size_t queue_overhead_bytes = 640;

// Of the one string that is kept for the next large value. Smaller ones come from the allocator's own stock.
constexpr std::size_t spare_bytes_min = 64 * 1024;
constexpr std::size_t spare_bytes_max = 1024 * 1024;

// Fewer values that only replies hold are not looked through for those that are gone.
constexpr std::size_t orphans_min = 64;

// More than twice the bytes would hold memory that no quota sees.
bool fits(const std::string& memory, std::size_t bytes) {
    return memory.capacity() <= 2 * bytes + 64;
}

std::size_t cost_of(const std::shared_ptr<std::string>& value) {
    return value == nullptr ? 0 : value->size() + value_overhead_bytes;
}

std::shared_ptr<std::string> make_value(NewValue value) {
    if (value.owned != nullptr) return std::make_shared<std::string>(std::move(*value.owned));
    return std::make_shared<std::string>(value.bytes);
}

bool is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

// As C's strtoll in base 10, which is what PyTorch's servers use.
bool read_number(std::string_view text, std::int64_t& number) {
    while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
    if (text.starts_with("+")) {
        text.remove_prefix(1);
        if (text.starts_with("-")) return false;
    }
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
    return parsed.ec == std::errc{};
}

}  // namespace

KeyValue::KeyValue(const StoreConfig& config)
    : config_(config),
      table_(config.hash_seed),
      memory_(config.memory ? config.memory : std::make_shared<MemoryBudget>(config.bytes_max)) {}

Result<void> KeyValue::check_room(std::size_t more_bytes) {
    const auto has_room = [&] { return more_bytes <= bytes_max_ && memory_->bytes() <= bytes_max_ - more_bytes; };
    if (has_room()) return {};
    sweep();
    if (has_room()) return {};
    return Error{Errc::limit_exceeded, cat("the store is full: ", memory_->bytes(), " of ", bytes_max_, " bytes used, ",
                                           more_bytes, " wanted")};
}

void KeyValue::orphan(const std::shared_ptr<std::string>& value) {
    const auto cost = cost_of(value);
    table_bytes_.subtract(cost);
    orphan_bytes_.add(cost);
    orphans_.push_back({value, cost});
    if (orphans_.size() < sweep_at_) return;
    sweep();
    sweep_at_ = std::max(orphans_min, 2 * orphans_.size());
}

void KeyValue::sweep() {
    std::erase_if(orphans_, [this](const Orphan& orphan) {
        const bool gone = orphan.value.expired();
        if (gone) orphan_bytes_.subtract(orphan.bytes);
        return gone;
    });
}

Result<void> KeyValue::take_bytes(std::size_t size) {
    MUSTER_TRY(check_room(size));
    other_bytes_.add(size);
    return {};
}

Result<KeyEntry*> KeyValue::find_or_insert(std::string_view key) {
    if (KeyEntry* entry = table_.find(key)) return entry;
    if (table_.size() >= config_.key_count_max)
        return Error{Errc::limit_exceeded, cat("the store holds ", table_.size(), " keys, its maximum")};
    const std::size_t cost = key.size() + entry_overhead_bytes;
    MUSTER_TRY(check_room(cost));
    table_bytes_.add(cost);
    return &table_.find_or_insert(key);
}

void KeyValue::drop_if_unused(KeyEntry& entry) {
    if (entry.in_use()) return;
    table_bytes_.subtract(entry.key.size() + entry_overhead_bytes);
    table_.erase(entry);
}

// Puts the value in its place, without waking anybody.
Result<void> KeyValue::store(KeyEntry& entry, NewValue value) {
    const bool is_shared = entry.value != nullptr && entry.value.use_count() > 1;
    const std::size_t before = is_shared ? 0 : cost_of(entry.value);
    const std::size_t after = value.bytes.size() + value_overhead_bytes;
    if (after > before) {
        if (auto room = check_room(after - before); !room) {
            drop_if_unused(entry);
            return room;
        }
    }
    if (is_shared) orphan(entry.value);
    table_bytes_.set(table_bytes_.bytes() - before + after);
    if (entry.value == nullptr) ++value_count_;
    // In place while no reply shares the string, unless that would keep a large buffer for a small value.
    const bool reuse = value.owned == nullptr && entry.value != nullptr && entry.value.use_count() == 1 &&
                       fits(*entry.value, value.bytes.size());
    if (reuse) {
        entry.value->assign(value.bytes);
    } else {
        keep_spare(entry.value);
        entry.value = make_value(value);
    }
    return {};
}

void KeyValue::keep_spare(std::shared_ptr<std::string>& value) {
    const bool wanted = value != nullptr && value.use_count() == 1 && value->size() >= spare_bytes_min &&
                        value->capacity() <= spare_bytes_max + 1 && value->size() > spare_.size();
    if (wanted) spare_ = std::move(*value);
}

std::string KeyValue::take_spare(std::size_t size) {
    return fits(spare_, size) ? std::exchange(spare_, {}) : std::string{};
}

Result<void> KeyValue::set(std::string_view key, NewValue value) {
    const auto entry = MUSTER_TRY(find_or_insert(key));
    MUSTER_TRY(store(*entry, value));
    wake_all(*entry);
    return {};
}

Result<void> KeyValue::append(std::string_view key, std::string_view value) {
    KeyEntry& entry = *MUSTER_TRY(find_or_insert(key));
    if (entry.value == nullptr) {
        MUSTER_TRY(store(entry, NewValue{value}));
    } else {
        const bool is_shared = entry.value.use_count() > 1;
        MUSTER_TRY(check_room(value.size() + (is_shared ? cost_of(entry.value) : 0)));
        if (is_shared) {
            auto own = std::make_shared<std::string>(*entry.value);
            orphan(entry.value);
            entry.value = std::move(own);
            table_bytes_.add(cost_of(entry.value));
        }
        entry.value->append(value);
        table_bytes_.add(value.size());
    }
    wake_all(entry);
    return {};
}

Result<void> KeyValue::push(std::string_view key, NewValue value) {
    KeyEntry& entry = *MUSTER_TRY(find_or_insert(key));
    const std::size_t cost =
        value.bytes.size() + value_overhead_bytes + (entry.queue == nullptr ? queue_overhead_bytes : 0);
    if (auto room = check_room(cost); !room) {
        drop_if_unused(entry);
        return room;
    }
    table_bytes_.add(cost);
    if (entry.queue == nullptr) entry.queue = std::make_unique<std::deque<std::shared_ptr<std::string>>>();
    entry.queue->push_back(make_value(value));
    wake_one(entry);
    return {};
}

Result<void> KeyValue::store_number(KeyEntry& entry, std::int64_t number) {
    char digits[24];
    const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
    return store(entry, NewValue{std::string_view(digits, static_cast<std::size_t>(end - digits))});
}

Result<std::int64_t> KeyValue::add(std::string_view key, std::int64_t delta) {
    KeyEntry& entry = *MUSTER_TRY(find_or_insert(key));
    std::int64_t number = 0;
    if (entry.value != nullptr && !read_number(*entry.value, number))
        return Error{Errc::invalid_argument, cat("the value of ", entry.value->size(), " bytes is not a number")};
    // Unsigned, so that the wrap-around is defined.
    const auto sum = static_cast<std::int64_t>(static_cast<std::uint64_t>(number) + static_cast<std::uint64_t>(delta));
    MUSTER_TRY(store_number(entry, sum));
    wake_all(entry);
    return sum;
}

Result<SharedValue> KeyValue::compare_set(std::string_view key, std::string_view expected, NewValue desired) {
    KeyEntry* entry = table_.find(key);
    const bool present = entry != nullptr && entry->value != nullptr;
    if (!present && !expected.empty()) return SharedValue{};
    if (present && *entry->value != expected) return SharedValue{entry->value};
    if (entry == nullptr) {
        entry = MUSTER_TRY(find_or_insert(key));
    }
    MUSTER_TRY(store(*entry, desired));
    wake_all(*entry);
    return SharedValue{entry->value};
}

Result<bool> KeyValue::arrive(std::string_view key, std::int64_t world, WaitSet& set) {
    MUSTER_CHECK(!set.parked());
    KeyEntry& entry = *MUSTER_TRY(find_or_insert(key));
    std::int64_t count = 0;
    if (entry.value != nullptr && !read_number(*entry.value, count))
        return Error{Errc::invalid_argument, cat("the value of ", entry.value->size(), " bytes is not a number")};
    if (count < INT64_MAX) ++count;
    MUSTER_TRY(store_number(entry, count));
    if (count >= world) {
        wake_all(entry);
        return true;
    }
    set.links_.clear();
    set.links_.reserve(1);
    MUSTER_TRY(park(entry, set));
    return false;
}

Result<bool> KeyValue::wait(const std::vector<std::string_view>& keys, WaitSet& set) {
    MUSTER_CHECK(!set.parked());
    set.links_.clear();
    for (std::size_t i = 0; i < keys.size(); ++i) {
        if (exists(keys[i])) continue;
        if (set.links_.empty()) set.links_.reserve(keys.size() - i);
        const auto entry = find_or_insert(keys[i]);
        const auto parked = entry ? park(**entry, set) : Result<void>(entry.error());
        if (!parked) {
            cancel(set);
            return parked.error();
        }
    }
    return !set.parked();
}

SharedValue KeyValue::get(std::string_view key) const {
    const KeyEntry* entry = table_.find(key);
    return entry == nullptr ? nullptr : entry->value;
}

bool KeyValue::exists(std::string_view key) const {
    const KeyEntry* entry = table_.find(key);
    return entry != nullptr && entry->exists();
}

bool KeyValue::erase(std::string_view key) {
    KeyEntry* entry = table_.find(key);
    if (entry == nullptr || entry->value == nullptr) return false;
    if (entry->value.use_count() > 1)
        orphan(entry->value);
    else
        table_bytes_.subtract(cost_of(entry->value));
    keep_spare(entry->value);
    entry->value.reset();
    --value_count_;
    drop_if_unused(*entry);
    return true;
}

SharedValue KeyValue::pop(std::string_view key, std::size_t& length) {
    KeyEntry* entry = table_.find(key);
    length = entry == nullptr || entry->queue == nullptr ? 0 : entry->queue->size();
    if (length == 0) return nullptr;
    const auto head = std::move(entry->queue->front());
    entry->queue->pop_front();
    // The reply may hold it.
    orphan(head);
    if (entry->queue->empty()) {
        entry->queue.reset();
        table_bytes_.subtract(queue_overhead_bytes);
        drop_if_unused(*entry);
    }
    return head;
}

std::size_t KeyValue::queue_length(std::string_view key) const {
    const KeyEntry* entry = table_.find(key);
    return entry == nullptr || entry->queue == nullptr ? 0 : entry->queue->size();
}

std::vector<std::string_view> KeyValue::keys() const {
    std::vector<std::string_view> keys;
    keys.reserve(value_count_);
    for (const KeyEntry* entry = table_.oldest(); entry != nullptr; entry = entry->newer)
        if (entry->value != nullptr) keys.push_back(entry->key);
    return keys;
}

void KeyValue::clear() {
    MUSTER_CHECK(wait_count_ == 0, wait_count_);
    for (const KeyEntry* entry = table_.oldest(); entry != nullptr; entry = entry->newer)
        if (entry->value != nullptr && entry->value.use_count() > 1) orphan(entry->value);
    table_.clear();
    table_bytes_.set(0);
    value_count_ = 0;
}

}  // namespace muster::rendezvous
