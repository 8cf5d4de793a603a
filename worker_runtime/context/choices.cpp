#include "worker_runtime/context/choices.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "rendezvous/base/log.h"
#include "rendezvous/base/sockets/own_addresses.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/context/agent_link.h"
#include "worker_runtime/tcp/mesh/interface_address.h"

namespace muster::runtime {

Result<void> set_log_level_by_environment() {
    for (const char* name : {"MUSTER_LOG_LEVEL", "LOGLEVEL"}) {
        const auto text = variable(name);
        if (!text || text->empty()) continue;
        LogLevel level{};
        if (parse_log_level(*text, level))
            set_log_level(level);
        else if (name == std::string_view("MUSTER_LOG_LEVEL"))  // the other is not ours alone
            return Error{Errc::invalid_argument, cat(name, "=", *text, "; accepted: debug, info, warning, error")};
        return {};
    }
    return {};
}

namespace {

/// By number.
constexpr std::string_view transport_names[] = {"automatic", "shared_memory", "tcp", "hierarchical", "nccl"};

}  // namespace

std::string_view name_of(TransportChoice choice) {
    return transport_names[static_cast<std::size_t>(choice)];
}

Result<TransportChoice> chosen_transport(TransportChoice otherwise) {
    const auto text = variable("MUSTER_TRANSPORT");
    if (!text || text->empty()) return otherwise;
    const auto* const found = std::find(std::begin(transport_names), std::end(transport_names), *text);
    if (found != std::end(transport_names)) return static_cast<TransportChoice>(found - std::begin(transport_names));
    return Error{Errc::invalid_argument,
                 cat("MUSTER_TRANSPORT=", *text, "; accepted: automatic, shared_memory, tcp, hierarchical, nccl")};
}

Result<TcpAlgorithm> chosen_algorithm() {
    const auto text = variable("MUSTER_TCP_ALGORITHM");
    if (!text || text->empty() || *text == "automatic") return TcpAlgorithm::automatic;
    if (*text == "direct") return TcpAlgorithm::direct;
    if (*text == "ring") return TcpAlgorithm::ring;
    return Error{Errc::invalid_argument, cat("MUSTER_TCP_ALGORITHM=", *text, "; accepted: automatic, direct, ring")};
}

Result<std::vector<std::string>> own_addresses_towards(const std::string& store_address) {
    AddressChoice choice;
    // A relay of the agent's is at loopback, which leads nowhere.
    const auto towards = address_towards(variable("MUSTER_STORE_ADDR").value_or(store_address));
    if (towards) choice.towards = *towards;
    choice.agents = variable("MUSTER_AGENT_IFNAME").value_or(std::string());
    std::string chosen_by;
    for (const char* name : {"MUSTER_IFNAME", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}) {
        choice.names = variable(name).value_or(std::string());
        // Where the user has set none, gloo's is the agent's, which is a hint and no wish.
        if (choice.names.empty() || (name == std::string_view("GLOO_SOCKET_IFNAME") && choice.names == choice.agents)) {
            choice.names.clear();
            continue;
        }
        chosen_by = cat(name, "=", choice.names);
        break;
    }
    auto addresses = choose_addresses(list_own_addresses(), choice);
    if (!addresses)
        return chosen_by.empty() ? (towards ? addresses : towards.error()) : with_context(addresses.error(), chosen_by);
    return addresses;
}

Result<WireSecurity> receive_security(const Environment& environment, Instant deadline) {
    if (environment.ranks_security.empty()) return WireSecurity{};
    if (environment.agent_socket.empty()) {
        return Error{Errc::unsupported,
                     cat("this worker cannot get the key of this round's ranks (MUSTER_RANKS_SECURITY=",
                         environment.ranks_security,
                         "): MUSTER_AGENT_SOCKET is not set. Either the agent could not open its channel, and warns of "
                         "it in its log on this node, or something removed the variable between muster and this "
                         "program; then leave all MUSTER_ variables as they are")};
    }
    auto key = MUSTER_TRY(AgentLink::receive_ranks_key(environment.agent_socket, environment.agent_token, deadline));
    return WireSecurity{.key = std::move(key), .encrypts = environment.ranks_security == "encrypt"};
}

}  // namespace muster::runtime
