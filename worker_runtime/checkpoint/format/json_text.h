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

/// Parses `text`. Returns nothing if it is not JSON, not UTF-8, or nested deeper than 8 levels.
std::optional<nlohmann::json> parse_json(std::string_view text);

/// Reads fields of an object. False, and `value` unchanged: the field is missing or of another type.
class JsonObject {
  public:
    /// `json` must outlive this. If it is not an object, it has no fields.
    explicit JsonObject(const nlohmann::json& json) : json_(json) {}

    [[nodiscard]] const nlohmann::json* field(const char* name) const;
    [[nodiscard]] bool text(const char* name, std::string& value) const;
    [[nodiscard]] bool number(const char* name, std::uint64_t& value) const;
    [[nodiscard]] bool number(const char* name, std::int64_t& value) const;  ///< only values >= 0
    [[nodiscard]] bool shape(const char* name, std::vector<std::int64_t>& value) const;
    /// Reads the object itself as a map of names to texts.
    [[nodiscard]] bool texts(std::map<std::string, std::string>& value) const;

  private:
    const nlohmann::json& json_;
};

/// Returns 8 hexadecimal digits, such as "00c0ffee".
std::string crc_text(std::uint32_t crc);
[[nodiscard]] bool parse_crc(std::string_view text, std::uint32_t& crc);

}  // namespace muster::runtime
