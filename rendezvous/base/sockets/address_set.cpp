#include "rendezvous/base/sockets/address_set.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "rendezvous/base/text/text.h"

namespace muster {

namespace {

constexpr unsigned mapped_bits = 96;
constexpr unsigned char bits_per_byte = 8;

/// The first `count` bits are equal.
bool same_begin(const unsigned char* one, const unsigned char* other, unsigned count) {
    const auto bytes = count / bits_per_byte;
    if (std::memcmp(one, other, bytes) != 0) return false;
    const auto rest = count % bits_per_byte;
    return rest == 0 || (one[bytes] ^ other[bytes]) >> (bits_per_byte - rest) == 0;
}

}  // namespace

std::optional<AddressSet::Key> AddressSet::key_of(const std::string& numeric) {
    Key key{};
    const auto digits = numeric.substr(0, numeric.find('%'));
    if (::inet_pton(AF_INET6, digits.c_str(), key.data()) == 1) return key;
    if (::inet_pton(AF_INET, digits.c_str(), key.data() + mapped_bits / bits_per_byte) != 1) return std::nullopt;
    key[10] = key[11] = 0xff;
    return key;
}

Result<AddressSet> AddressSet::parse(std::string_view list) {
    AddressSet set;
    for (const auto part : split(list, ',')) {
        const auto text = trim(part);
        const auto slash = text.find('/');
        const std::string address(text.substr(0, slash));
        const auto key = key_of(address);
        const bool is_v4 = address.find(':') == std::string::npos;
        const unsigned most = is_v4 ? 32 : 128;
        unsigned bits = most;
        const bool is_right =
            key && (slash == std::string_view::npos || parse_number(text.substr(slash + 1), bits)) && bits <= most;
        if (!is_right)
            return Error{Errc::invalid_argument,
                         cat("got '", text, "'; accepted are addresses and networks, e.g. 10.0.0.0/8,fd00::/8")};
        if (bits == most)
            set.addresses_.insert(*key);
        else
            set.networks_.push_back({*key, is_v4 ? mapped_bits + bits : bits});
    }
    return set;
}

void AddressSet::add(const std::string& numeric) {
    if (const auto key = key_of(numeric)) addresses_.insert(*key);
}

void AddressSet::add(const AddressSet& other) {
    addresses_.insert(other.addresses_.begin(), other.addresses_.end());
    networks_.insert(networks_.end(), other.networks_.begin(), other.networks_.end());
}

bool AddressSet::has(const Key& key) const {
    return addresses_.contains(key) || std::ranges::any_of(networks_, [&](const Network& one) {
               return same_begin(one.begin.data(), key.data(), one.bit_count);
           });
}

bool AddressSet::contains(const std::string& numeric) const {
    const auto key = key_of(numeric);
    return key && has(*key);
}

bool AddressSet::contains(const SocketAddress& address) const {
    return contains(address.numeric());
}

std::shared_ptr<const AllowedSources> allow_from(AddressSet addresses) {
    return std::make_shared<const AllowedSources>(
        AllowedSources{.addresses = std::move(addresses),
                       .advice = "--allow-from does not name this address; if a node of a job has it, add it there"});
}

}  // namespace muster
