#include "agent/diagnosis/json_members.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace muster::agent {

const nlohmann::json* member_of(const nlohmann::json& object, std::string_view name) {
    if (!object.is_object()) return nullptr;
    const auto found = object.find(name);
    return found == object.end() ? nullptr : &*found;
}

std::string text_of(const nlohmann::json& object, std::string_view name) {
    const auto* value = member_of(object, name);
    return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

bool is_true(const nlohmann::json& object, std::string_view name) {
    const auto* value = member_of(object, name);
    return value != nullptr && value->is_boolean() && value->get<bool>();
}

std::optional<double> number_of(const nlohmann::json& object, std::string_view name) {
    const auto* value = member_of(object, name);
    if (value == nullptr || !value->is_number()) return std::nullopt;
    return value->get<double>();
}

std::optional<std::int64_t> integer_of(const nlohmann::json& object, std::string_view name) {
    const auto* value = member_of(object, name);
    if (value == nullptr || !value->is_number_integer()) return std::nullopt;
    const bool fits = !value->is_number_unsigned() || std::in_range<std::int64_t>(value->get<std::uint64_t>());
    return fits ? std::optional(value->get<std::int64_t>()) : std::nullopt;
}

std::int64_t integer_or(const nlohmann::json& object, std::string_view name, std::int64_t otherwise) {
    return integer_of(object, name).value_or(otherwise);
}

}  // namespace muster::agent
