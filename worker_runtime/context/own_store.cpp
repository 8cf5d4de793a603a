#include "worker_runtime/context/own_store.h"

#include "rendezvous/base/text/text.h"
#include "rendezvous/wire/c10d/limits.h"

namespace muster::runtime {

namespace {

/// What several ranks would be refused is refused here too.
Result<void> check(std::string_view key, std::string_view value) {
    if (key.size() <= c10d::key_bytes_max && value.size() <= c10d::value_bytes_max) return {};
    return Error{Errc::limit_exceeded, cat("store: a key of ", key.size(), " bytes with a value of ", value.size(),
                                           "; at most ", c10d::key_bytes_max, " and ", c10d::value_bytes_max)};
}

}  // namespace

Result<void> OwnStore::set(std::string_view key, std::string_view value) {
    MUSTER_TRY(check(key, value));
    const std::lock_guard lock(keys_->mutex);
    keys_->values.insert_or_assign(std::string(key), std::string(value));
    keys_->grown.notify_all();
    return {};
}

Result<std::string> OwnStore::get(std::string_view key, Duration timeout) {
    std::unique_lock lock(keys_->mutex);
    auto& values = keys_->values;
    if (keys_->grown.wait_for(lock, timeout, [&] { return values.contains(key); })) return values.find(key)->second;
    return Error{Errc::timed_out, cat("store: ", key, " was not set within ", muster::describe(timeout))};
}

Result<std::int64_t> OwnStore::add(std::string_view key, std::int64_t delta) {
    MUSTER_TRY(check(key, {}));
    const std::lock_guard lock(keys_->mutex);
    std::int64_t number = 0;
    const auto found = keys_->values.find(key);
    if (found != keys_->values.end() && !parse_number(std::string_view(found->second), number))
        return Error{Errc::invalid_argument, cat("store: the value of ", key, " is not a number")};
    number += delta;
    keys_->values.insert_or_assign(std::string(key), cat(number));
    keys_->grown.notify_all();
    return number;
}

Result<bool> OwnStore::erase(std::string_view key) {
    const std::lock_guard lock(keys_->mutex);
    const auto found = keys_->values.find(key);
    if (found == keys_->values.end()) return false;
    keys_->values.erase(found);
    return true;
}

}  // namespace muster::runtime
