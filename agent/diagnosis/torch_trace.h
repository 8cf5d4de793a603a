// Reads a rank's position from a dump of torch's flight recorder. Pure; the dump is torch's JSON ("fr_trace_json").
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "agent/diagnosis/hang_watch.h"

namespace muster::agent {

struct TorchOperation {
    bool inside = false;          ///< True while it is running. False: it is the last one and has completed.
    std::string name;             ///< "gloo:all_reduce 12 of default_pg": torch's number of it in that group.
    std::int64_t created_ns = 0;  ///< Unix time. 0: unknown.
};

/// The oldest operation that is not over (those behind it wait for it), else the newest. Over is what torch has retired
/// or calls completed: gloo's never get another state than "scheduled". Empty for no such dump, or one without entries.
std::optional<TorchOperation> torch_operation(std::string_view dump);

/// Which record says where an idle rank stands, if its script uses muster's communicators (`own`) and torch's: true for
/// torch's. The operation that is running, muster's own first; without one the later. `unix_minus_steady`: the
/// difference between the clocks of both records.
bool tells_place(const TorchOperation& torch, const std::optional<OperationSample>& own, Duration unix_minus_steady);

}  // namespace muster::agent
