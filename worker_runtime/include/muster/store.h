// The key-value store of the round. All workers that joined the same context share it. A second program (or context) of
// a worker does not see the keys of the first, and a world of another size does not see them either. Under muster the
// store is empty at the start of every round. Under torchrun the keys are separated by the restart count. A world of
// one has its own store, with or without a launcher.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster {

/// Thread-safe; calls of several threads run one after another. Values have at most 8 MiB, keys 8 KiB. Errors name the
/// store.
class Store {
  public:
    virtual ~Store() = default;
    virtual Result<void> set(std::string_view key, std::string_view value) = 0;
    /// Waits until the key exists: timed_out after `timeout`.
    virtual Result<std::string> get(std::string_view key, Duration timeout) = 0;
    /// Adds `delta` to a number that starts at 0. Returns the sum.
    virtual Result<std::int64_t> add(std::string_view key, std::int64_t delta) = 0;
    /// Deletes the key. Returns true if it existed.
    virtual Result<bool> erase(std::string_view key) = 0;
};

}  // namespace muster
