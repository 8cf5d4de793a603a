#include "muster/store.h"

#include "worker_runtime/capi/arguments.h"
#include "worker_runtime/capi/objects.h"

using namespace muster;
using namespace muster::capi;

namespace {

/// Runs `body(store)` where there is a key and a store.
muster_status with_store(const char* function, muster_context* handle, const char* key, auto&& body) {
    return with(function, contexts, handle, [&](Context& found) -> Result<void> {
        return key != nullptr ? body(*found.store()) : invalid("`key` is NULL");
    });
}

}  // namespace

extern "C" {

muster_status muster_store_set(muster_context* context, const char* key, const void* value, size_t size) {
    return with_store(__func__, context, key, [&](Store& store) -> Result<void> {
        if (value == nullptr && size > 0) return invalid("`value` is NULL");
        return store.set(key, {static_cast<const char*>(value), size});
    });
}

muster_status muster_store_get(muster_context* context, const char* key, int64_t timeout_ms, void* value,
                               size_t capacity, size_t* needed) {
    return with_store(__func__, context, key, [&](Store& store) -> Result<void> {
        const auto timeout = MUSTER_TRY(read_timeout(timeout_ms, ContextOptions().operation_timeout));
        const auto found = MUSTER_TRY(store.get(key, timeout));
        if (needed != nullptr) *needed = found.size();
        if (value == nullptr) return {};
        std::memcpy(value, found.data(), std::min(capacity, found.size()));
        if (capacity >= found.size()) return {};
        return Error{Errc::limit_exceeded, cat("the value has ", found.size(), " bytes, not ", capacity)};
    });
}

muster_status muster_store_add(muster_context* context, const char* key, int64_t delta, int64_t* sum) {
    return with_store(__func__, context, key, [&](Store& store) -> Result<void> {
        const auto added = MUSTER_TRY(store.add(key, delta));
        if (sum != nullptr) *sum = added;
        return {};
    });
}

muster_status muster_store_erase(muster_context* context, const char* key, int* erased) {
    return with_store(__func__, context, key, [&](Store& store) -> Result<void> {
        const auto gone = MUSTER_TRY(store.erase(key));
        if (erased != nullptr) *erased = gone ? 1 : 0;
        return {};
    });
}
}
