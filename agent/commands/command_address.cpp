#include "agent/commands/command_address.h"

#include <algorithm>

#include "rendezvous/base/hmac_sha256.h"
#include "rendezvous/base/text/percent.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

constexpr std::string_view prefix = "muster/agent/";
constexpr std::string_view digits = "0123456789abcdef";

/// An abstract address has 107 bytes, and the rest of it takes up to 51.
constexpr std::size_t encoded_job_bytes_max = 55;
/// Of a name that is cut: with each byte as three, and the hash.
constexpr std::size_t kept_bytes = 14;
constexpr std::size_t token_digits = 16;

bool stands_as_it_is(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
}

std::string encode(std::string_view text) {
    std::string out;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (stands_as_it_is(c))
            out += c;
        else
            out += {'%', digits[byte >> 4], digits[byte & 15]};
    }
    return out;
}

/// FNV-1a: tells long names apart that begin alike.
std::string hash(std::string_view text) {
    std::uint64_t value = 0xcbf29ce484222325u;
    for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    std::string bytes;
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
    return hexadecimal(bytes);
}

std::optional<CommandAddress> parse(std::string_view text) {
    if (!text.starts_with(prefix)) return std::nullopt;
    const auto parts = split(text.substr(prefix.size()), '/');
    CommandAddress address;
    if (parts.size() != 4 || !parse_number(parts[0], address.user) || !parse_number(parts[1], address.pid) ||
        parts[2].size() != token_digits || parts[2].find_first_not_of(digits) != std::string_view::npos)
        return std::nullopt;
    auto job = percent_decoded(parts[3]);
    if (!job || encode(*job) != parts[3]) return std::nullopt;  // One job has one address.
    address.token = parts[2];
    address.job = *std::move(job);
    return address;
}

}  // namespace

std::string job_in_address(std::string_view job) {
    if (encode(job).size() <= encoded_job_bytes_max) return std::string(job);
    return cat(job.substr(0, kept_bytes), '~', hash(job));
}

std::string job_in_name(std::string_view job) {
    return encode(job_in_address(job));
}

std::string fresh_token() {
    return hexadecimal(random_bytes(token_digits / 2));
}

std::string write_command_address(const CommandAddress& address) {
    return cat(prefix, address.user, '/', address.pid, '/', address.token, '/', job_in_name(address.job));
}

std::vector<CommandAddress> command_addresses(std::string_view proc_net_unix) {
    std::vector<CommandAddress> found;
    for (const auto line : split(proc_net_unix, '\n')) {
        const auto at = line.rfind(" @");
        if (at == std::string_view::npos) continue;
        const auto address = parse(line.substr(at + 2));
        if (address && std::ranges::find(found, *address) == found.end()) found.push_back(*address);
    }
    return found;
}

}  // namespace muster::agent
