#include "worker_runtime/tcp/mesh/interface_address.h"

#include <errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <tuple>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

/// Port 9 is "discard"; nothing is sent to it.
constexpr std::uint16_t any_port = 9;

/// The user's words for interfaces.
class Pattern {
  public:
    explicit Pattern(std::string_view names) {
        excludes_ = names.starts_with('^');
        if (excludes_) names.remove_prefix(1);
        const bool all_exact = names.starts_with('=');
        for (auto name : split(names, ',')) {
            name = trim(name);
            const bool exact = all_exact || name.starts_with('=');
            if (name.starts_with('=')) name.remove_prefix(1);
            if (!name.empty()) names_.push_back({std::string(name), exact});
        }
    }
    [[nodiscard]] bool names_some() const { return !excludes_ && !names_.empty(); }
    [[nodiscard]] bool allows(const std::string& interface) const {
        return names_.empty() || (place_of(interface) < names_.size()) != excludes_;
    }
    /// Of the first name that fits.
    [[nodiscard]] std::size_t place_of(const std::string& interface) const {
        const auto fits = [&](const auto& one) {
            return one.exact ? interface == one.text : interface.starts_with(one.text);
        };
        return static_cast<std::size_t>(std::find_if(names_.begin(), names_.end(), fits) - names_.begin());
    }

  private:
    struct Name {
        std::string text;
        bool exact;
    };
    bool excludes_ = false;
    std::vector<Name> names_;
};

Error none_fits(const std::vector<OwnAddress>& own, const AddressChoice& choice) {
    std::vector<std::string> there;
    for (const auto& one : own)
        if (std::find(there.begin(), there.end(), one.interface) == there.end()) there.push_back(one.interface);
    if (choice.names.empty()) return {Errc::not_found, "this host has no address that other hosts can reach"};
    return {Errc::not_found,
            cat("no interface that is up matches \"", choice.names, "\"; there are: ", join(there, ", "))};
}

}  // namespace

Result<std::string> address_towards(const std::string& remote) {
    const auto to = SocketAddress::from_numeric(remote, any_port);
    if (!to) return Error{Errc::invalid_argument, cat(remote, " is not a numeric address")};
    const FileDescriptor socket(::socket(to->family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
    // Connecting a datagram socket looks up the route and sends nothing.
    if (!socket.valid() || ::connect(socket.get(), to->data(), to->size()) != 0)
        return error_from_errno(errno, cat("find the way to ", remote));
    return SocketAddress::local_of(socket.get()).numeric();
}

Result<std::vector<std::string>> choose_addresses(const std::vector<OwnAddress>& own, const AddressChoice& choice) {
    const Pattern pattern(choice.names);
    std::string store_interface;
    int store_family = AF_UNSPEC;
    for (const auto& one : own) {
        if (choice.towards.empty() || one.address.numeric() != choice.towards) continue;
        store_interface = one.interface;
        store_family = one.address.family();
    }
    // What the store's host reaches over loopback says nothing of others; the agent knows better.
    const bool agent_disagrees = !choice.agents.empty() && choice.agents != store_interface;
    struct Candidate {
        std::string address;
        std::tuple<bool, bool, std::size_t, bool, bool, bool, bool> place;  // smaller is better
    };
    std::vector<Candidate> candidates;
    for (const auto& one : own) {
        const auto address = one.address.numeric();
        const bool reached = address == choice.towards;
        const bool has_meaning = reached || pattern.names_some() || !(one.is_loopback || one.address.is_link_local());
        if (!has_meaning || !pattern.allows(one.interface)) continue;
        candidates.push_back(
            {address,
             {agent_disagrees && one.interface != choice.agents, !reached, pattern.place_of(one.interface),
              one.address.is_link_local(), one.interface != store_interface, !one.is_running,
              store_family != AF_UNSPEC && one.address.family() != store_family}});
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.place < b.place; });
    std::vector<std::string> addresses;
    for (auto& one : candidates)
        if (addresses.size() < addresses_sent_max &&
            std::find(addresses.begin(), addresses.end(), one.address) == addresses.end())
            addresses.push_back(std::move(one.address));
    // A host may have nothing but loopback, which people exclude where they mean the network.
    if (addresses.empty() && !pattern.names_some() && !choice.towards.empty()) addresses.push_back(choice.towards);
    if (addresses.empty()) return none_fits(own, choice);
    return addresses;
}

}  // namespace muster::runtime
