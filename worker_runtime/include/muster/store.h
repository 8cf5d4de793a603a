// The round's key-value store, as all workers of the round see it that have met in one context: what a worker's first
// program (or context) stores its second does not find, nor does a world of another size. Fresh in every round under
// muster; under torchrun the keys are kept apart by the restart count. A world of one has a store of its own, with or
// without a launcher.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster {

/// Thread-safe; calls of several threads take turns. Values of at most 8 MiB, keys of 8 KiB. Errors name the store.
class Store {
  public:
    virtual ~Store() = default;
    virtual Result<void> set(std::string_view key, std::string_view value) = 0;
    /// Waits until the key exists: timed_out after `timeout`.
    virtual Result<std::string> get(std::string_view key, Duration timeout) = 0;
    /// Adds to a number that starts at 0; gives the new one.
    virtual Result<std::int64_t> add(std::string_view key, std::int64_t delta) = 0;
    /// Was there one?
    virtual Result<bool> erase(std::string_view key) = 0;
};

}  // namespace muster
