// Which addresses a port serves: single addresses and networks.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/sockets/socket_address.h"

namespace muster {

/// Compares addresses without ports and zones. IPv4 that is mapped into IPv6 is IPv4. A look-up costs the logarithm of
/// the addresses, and one step for each network.
class AddressSet {
  public:
    /// "10.0.0.0/8,fd00::/8,192.168.1.7". invalid_argument: what is no such list, naming its wrong part.
    static Result<AddressSet> parse(std::string_view list);

    /// Ignores what is no numeric address.
    void add(const std::string& numeric);
    void add(const AddressSet& other);

    [[nodiscard]] bool contains(const SocketAddress& address) const;
    /// False for what is no numeric address.
    [[nodiscard]] bool contains(const std::string& numeric) const;
    [[nodiscard]] bool empty() const { return addresses_.empty() && networks_.empty(); }

  private:
    /// An IPv6 address; an IPv4 one as it is mapped into IPv6.
    using Key = std::array<unsigned char, 16>;
    struct Network {
        Key begin{};
        unsigned bit_count = 0;
    };
    static std::optional<Key> key_of(const std::string& numeric);
    [[nodiscard]] bool has(const Key& key) const;

    std::set<Key> addresses_;
    std::vector<Network> networks_;
};

/// Whom a port serves beside its own host.
struct AllowedSources {
    AddressSet addresses;
    std::string advice;  ///< for the line about one that is refused: what to do if it should be served
};

/// Those of --allow-from.
std::shared_ptr<const AllowedSources> allow_from(AddressSet addresses);

}  // namespace muster
