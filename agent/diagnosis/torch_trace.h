// Reads a rank's position from a dump of torch's flight recorder. Pure; the dump is torch's JSON ("fr_trace_json").
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace muster::agent {

struct TorchOperation {
    bool inside = false;  ///< True while it is running. False: it is the last one and has completed.
    std::string name;     ///< "gloo:all_reduce 12 of default_pg": torch's number of it in that group.
};

/// The oldest operation that is not over (those behind it wait for it), else the newest. Over is what torch has retired
/// or calls completed: gloo's never get another state than "scheduled". Empty for no such dump, or one without entries.
std::optional<TorchOperation> torch_operation(std::string_view dump);

}  // namespace muster::agent
