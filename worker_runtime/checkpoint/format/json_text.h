// JSON from files that may be damaged or hostile: parsed without exceptions and to a limited depth, and read field by
// field.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster::runtime {

/// Nothing where it is no JSON, no UTF-8, or deeper than any of ours (8).
std::optional<nlohmann::json> parse_json(std::string_view text);

/// Reads fields of an object; false where one is missing or of another kind. `value` is then not changed.
class JsonObject {
  public:
    /// `json` must outlive this; anything but an object has no fields.
    explicit JsonObject(const nlohmann::json& json) : json_(json) {}

    [[nodiscard]] const nlohmann::json* field(const char* name) const;
    [[nodiscard]] bool text(const char* name, std::string& value) const;
    [[nodiscard]] bool number(const char* name, std::uint64_t& value) const;
    [[nodiscard]] bool number(const char* name, std::int64_t& value) const;  ///< 0 or more
    [[nodiscard]] bool shape(const char* name, std::vector<std::int64_t>& value) const;
    /// The object itself as texts by name.
    [[nodiscard]] bool texts(std::map<std::string, std::string>& value) const;

  private:
    const nlohmann::json& json_;
};

/// "00c0ffee".
std::string crc_text(std::uint32_t crc);
[[nodiscard]] bool parse_crc(std::string_view text, std::uint32_t& crc);

}  // namespace muster::runtime
