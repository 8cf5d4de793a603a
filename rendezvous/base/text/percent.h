// Percent-encoding, as in addresses of pages (RFC 3986).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace muster {

/// The text as a segment of a path or a value of a query: letters, digits and "-._~" stay, each other byte is "%0A".
std::string percent_encoded(std::string_view text);

/// The text with each "%41" as its byte. Nothing if a '%' is not followed by two hexadecimal digits of either case.
std::optional<std::string> percent_decoded(std::string_view text);

}  // namespace muster
