#include "agent/core/torch_trace.h"

#include <cstdint>
#include <nlohmann/json.hpp>

#include "rendezvous/base/text.h"

namespace muster::agent {

namespace {

using nlohmann::json;

/// Names in a foreign file; a longer one is cut.
constexpr std::size_t name_bytes_max = 100;

std::int64_t integer(const json& entry, const char* key) {
    const auto found = entry.find(key);
    return found != entry.end() && found->is_number_integer() ? found->get<std::int64_t>() : -1;
}

bool is_true(const json& entry, const char* key) {
    const auto found = entry.find(key);
    return found != entry.end() && found->is_boolean() && found->get<bool>();
}

std::string text(const json& value) {
    return value.is_string() ? value.get<std::string>().substr(0, name_bytes_max) : std::string();
}

std::string text(const json& entry, const char* key) {
    const auto found = entry.find(key);
    return found == entry.end() ? std::string() : text(*found);
}

/// A pair: a number, and what the user calls it.
std::string group_of(const json& entry) {
    const auto found = entry.find("process_group");
    if (found == entry.end() || !found->is_array() || found->empty()) return {};
    const auto described = text(found->back());
    return described.empty() ? text(found->front()) : described;
}

std::string name_of(const json& entry) {
    const auto name = text(entry, "profiling_name");
    const auto sequence = integer(entry, is_true(entry, "is_p2p") ? "p2p_seq_id" : "collective_seq_id");
    const auto group = group_of(entry);
    return cat(name.empty() ? "an operation without a name" : name, sequence > 0 ? cat(' ', sequence) : std::string(),
               group.empty() ? "" : " of ", group);
}

bool is_over(const json& entry) {
    return is_true(entry, "retired") || text(entry, "state") == "completed";
}

}  // namespace

std::optional<TorchOperation> torch_operation(std::string_view dump) {
    const auto read = json::parse(dump, nullptr, false);
    if (!read.is_object()) return std::nullopt;
    const auto entries = read.find("entries");
    if (entries == read.end() || !entries->is_array()) return std::nullopt;
    const json* told = nullptr;
    for (const auto& entry : *entries) {
        if (!entry.is_object()) continue;
        const bool newer = told == nullptr || integer(entry, "record_id") > integer(*told, "record_id");
        const bool inside = told != nullptr && !is_over(*told);
        if (is_over(entry) ? !inside && newer : !inside || !newer) told = &entry;
    }
    if (told == nullptr) return std::nullopt;
    return TorchOperation{!is_over(*told), name_of(*told)};
}

}  // namespace muster::agent
