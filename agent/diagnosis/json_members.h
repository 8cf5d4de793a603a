// Reads members of JSON objects from outside. A member that is missing or has another type counts as absent.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace muster::agent {

/// Null: there is none, or `object` is no object.
const nlohmann::json* member_of(const nlohmann::json& object, std::string_view name);

std::string text_of(const nlohmann::json& object, std::string_view name);

bool is_true(const nlohmann::json& object, std::string_view name);

std::optional<double> number_of(const nlohmann::json& object, std::string_view name);

/// A whole number that fits.
std::optional<std::int64_t> integer_of(const nlohmann::json& object, std::string_view name);
std::int64_t integer_or(const nlohmann::json& object, std::string_view name, std::int64_t otherwise = -1);

}  // namespace muster::agent
