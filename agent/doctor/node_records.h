// What the records of the look "nodes" mean, which muster-pairs writes (worker_runtime/pairs).
#pragma once

#include <string_view>

namespace muster::agent {

/// By its `why`, a pair or group connects and moves messages, but has failed because it is slower than is usual.
inline bool is_slow(std::string_view why) {
    return why.starts_with("slow: ");
}

}  // namespace muster::agent
