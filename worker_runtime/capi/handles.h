// The objects of the opaque pointers of the C API.
//
// A handle is not an address but a number that is never reused, looked up in each call. A handle that was released, has
// another type or is invalid gives an error instead of a crash. A call in progress keeps its object, so another thread
// may release the handle meanwhile. A lookup costs about ten nanoseconds.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string_view>
#include <unordered_map>

#include "rendezvous/base/error.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/capi/failure.h"

namespace muster::capi {

/// The next number; handles of all kinds share the sequence.
inline std::uintptr_t next_handle() {
    static std::atomic<std::uintptr_t> last = 0;
    return ++last;
}

/// All handles of one kind: `Handle` is the opaque type, `Object` what it stands for.
template <class Handle, class Object>
class Handles {
  public:
    explicit Handles(std::string_view noun) : noun_(noun) {}

    Handle* add(std::shared_ptr<Object> object) {
        const std::unique_lock lock(mutex_);
        const auto number = next_handle();
        objects_.emplace(number, Entry{.object = std::move(object)});
        return reinterpret_cast<Handle*>(number);
    }

    Result<std::shared_ptr<Object>> find(Handle* handle) const {
        const std::shared_lock lock(mutex_);
        const auto found = objects_.find(reinterpret_cast<std::uintptr_t>(handle));
        if (found == objects_.end()) return wrong(handle);
        if (found->second.is_reserved) return reserved();
        return found->second.object;
    }

    /// The object for this call alone: nobody else finds it before unreserve(). Null: another call or object has it
    /// now.
    Result<std::shared_ptr<Object>> reserve(Handle* handle) {
        const std::unique_lock lock(mutex_);
        const auto found = objects_.find(reinterpret_cast<std::uintptr_t>(handle));
        if (found == objects_.end()) return wrong(handle);
        if (found->second.is_reserved) return reserved();
        if (found->second.object.use_count() > 1) return std::shared_ptr<Object>();
        found->second.is_reserved = true;
        return found->second.object;
    }

    /// After reserve(). Without it, the handle can only be released.
    void unreserve(Handle* handle) {
        const std::unique_lock lock(mutex_);
        const auto found = objects_.find(reinterpret_cast<std::uintptr_t>(handle));
        if (found != objects_.end()) found->second.is_reserved = false;
    }

    /// NULL is fine.
    Result<void> release(Handle* handle) {
        if (handle == nullptr) return {};
        std::shared_ptr<Object> object;  // goes after the lock: its destructor may take its time
        const std::unique_lock lock(mutex_);
        const auto found = objects_.find(reinterpret_cast<std::uintptr_t>(handle));
        if (found == objects_.end()) return wrong(handle);
        object = std::move(found->second.object);
        objects_.erase(found);
        return {};
    }

  private:
    struct Entry {
        std::shared_ptr<Object> object;
        bool is_reserved = false;
    };
    [[nodiscard]] Error reserved() const {
        return invalid(cat("another call has this ", noun_, " to itself, or has failed and left it unusable"));
    }
    Error wrong(const Handle* handle) const {
        return invalid(handle == nullptr ? cat("the ", noun_, " is NULL")
                                         : cat("not a valid ", noun_, ", or already released"));
    }

    const std::string_view noun_;
    mutable std::shared_mutex mutex_;
    std::unordered_map<std::uintptr_t, Entry> objects_;
};

/// Runs `body(object)` of a function of the C API, with the object of `handle`.
template <class Handle, class Object, class Body>
muster_status with(const char* function, const Handles<Handle, Object>& all, Handle* handle, Body&& body) noexcept {
    return guarded(function, [&]() -> Result<void> { return body(*MUSTER_TRY(all.find(handle))); });
}

}  // namespace muster::capi
