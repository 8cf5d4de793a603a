#include "agent/diagnosis/torch_trace.h"

#include <cstdint>
#include <nlohmann/json.hpp>

#include "agent/diagnosis/json_members.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

using nlohmann::json;

/// Names in a foreign file; a longer one is cut.
constexpr std::size_t name_bytes_max = 100;

std::string cut(const json& value) {
    return value.is_string() ? value.get<std::string>().substr(0, name_bytes_max) : std::string();
}

/// A pair: a number, and what the user calls it.
std::string group_of(const json& entry) {
    const auto* pair = member_of(entry, "process_group");
    if (pair == nullptr || !pair->is_array() || pair->empty()) return {};
    const auto described = cut(pair->back());
    return described.empty() ? cut(pair->front()) : described;
}

std::string name_of(const json& entry) {
    const auto name = text_of(entry, "profiling_name").substr(0, name_bytes_max);
    const auto sequence = integer_of(entry, is_true(entry, "is_p2p") ? "p2p_seq_id" : "collective_seq_id").value_or(0);
    const auto group = group_of(entry);
    return cat(name.empty() ? "an operation without a name" : name, sequence > 0 ? cat(' ', sequence) : std::string(),
               group.empty() ? "" : " of ", group);
}

std::int64_t record_number(const json& entry) {
    return integer_of(entry, "record_id").value_or(-1);
}

bool is_over(const json& entry) {
    return is_true(entry, "retired") || text_of(entry, "state") == "completed";
}

}  // namespace

std::optional<TorchOperation> torch_operation(std::string_view dump) {
    const auto read = json::parse(dump, nullptr, false);
    const auto* entries = member_of(read, "entries");
    if (entries == nullptr || !entries->is_array()) return std::nullopt;
    const json* told = nullptr;
    for (const auto& entry : *entries) {
        if (!entry.is_object()) continue;
        const bool newer = told == nullptr || record_number(entry) > record_number(*told);
        const bool inside = told != nullptr && !is_over(*told);
        if (is_over(entry) ? !inside && newer : !inside || !newer) told = &entry;
    }
    if (told == nullptr) return std::nullopt;
    return TorchOperation{!is_over(*told), name_of(*told), integer_of(*told, "time_created_ns").value_or(0)};
}

bool tells_place(const TorchOperation& torch, const std::optional<OperationSample>& own, Duration unix_minus_steady) {
    if (!own) return true;
    if (own->inside || torch.inside) return !own->inside;
    return Duration(torch.created_ns) > own->newest_at.time_since_epoch() + unix_minus_steady;
}

}  // namespace muster::agent
