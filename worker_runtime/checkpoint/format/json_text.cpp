#include "worker_runtime/checkpoint/format/json_text.h"

#include <charconv>
#include <limits>

namespace muster::runtime {

namespace {

constexpr int depth_max = 8;

}  // namespace

std::optional<nlohmann::json> parse_json(std::string_view text) {
    bool too_deep = false;
    const auto watch = [&too_deep](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
        too_deep = too_deep || depth > depth_max;
        return !too_deep;
    };
    auto json = nlohmann::json::parse(text.begin(), text.end(), watch, false);
    if (json.is_discarded() || too_deep) return std::nullopt;
    return json;
}

const nlohmann::json* JsonObject::field(const char* name) const {
    if (!json_.is_object()) return nullptr;
    const auto found = json_.find(name);
    return found != json_.end() ? &*found : nullptr;
}

bool JsonObject::text(const char* name, std::string& value) const {
    const auto* json = field(name);
    if (json == nullptr || !json->is_string()) return false;
    value = json->get<std::string>();
    return true;
}

bool JsonObject::number(const char* name, std::uint64_t& value) const {
    const auto* json = field(name);
    if (json == nullptr || !json->is_number_unsigned()) return false;
    value = json->get<std::uint64_t>();
    return true;
}

bool JsonObject::number(const char* name, std::int64_t& value) const {
    std::uint64_t positive = 0;
    if (!number(name, positive) || positive > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        return false;
    }
    value = static_cast<std::int64_t>(positive);
    return true;
}

bool JsonObject::shape(const char* name, std::vector<std::int64_t>& value) const {
    const auto* json = field(name);
    if (json == nullptr || !json->is_array()) return false;
    std::vector<std::int64_t> sizes;
    for (const auto& size : *json) {
        if (!size.is_number_unsigned()) return false;
        const auto positive = size.get<std::uint64_t>();
        if (positive > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return false;
        sizes.push_back(static_cast<std::int64_t>(positive));
    }
    value = std::move(sizes);
    return true;
}

bool JsonObject::texts(std::map<std::string, std::string>& value) const {
    if (!json_.is_object()) return false;
    std::map<std::string, std::string> all;
    for (const auto& [key, text] : json_.items()) {
        if (!text.is_string()) return false;
        all[key] = text.get<std::string>();
    }
    value = std::move(all);
    return true;
}

std::string crc_text(std::uint32_t crc) {
    static constexpr std::string_view digits = "0123456789abcdef";
    std::string text(8, '0');
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = digits[crc >> (28 - 4 * i) & 15];
    return text;
}

bool parse_crc(std::string_view text, std::uint32_t& crc) {
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), crc, 16);
    return failure == std::errc{} && end == text.data() + text.size() && text.size() == 8;
}

}  // namespace muster::runtime
