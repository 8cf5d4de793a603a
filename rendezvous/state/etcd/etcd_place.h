// The address of an etcd and its credentials, parsed from the options.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/error.h"

namespace muster::rendezvous {

inline constexpr std::uint16_t etcd_port = 2379;

/// Paths of PEM files.
struct TlsFiles {
    std::string ca;           ///< CA that verifies the server; empty: the system's trusted CAs
    std::string certificate;  ///< client certificate with its intermediates; empty: none
    std::string key;          ///< private key of `certificate`
};

struct EtcdLogin {
    std::string user;  ///< empty: etcd has no users
    std::string password;
};

/// The keys that authenticate the records (record_seal.h). The first one is in use, others are being replaced. Empty,
/// or none: the daemon has no secret.
using RecordKeys = std::function<std::vector<std::string>()>;

struct EtcdPlace {
    std::vector<Endpoint> members;
    std::vector<std::string> known_addresses;  ///< by member, in the format of Endpoint::host; may be shorter
    std::string prefix = "muster/";
    bool is_of_one_job = false;   ///< the keys below the prefix are deleted with the job
    std::optional<TlsFiles> tls;  ///< empty: plain HTTP
    EtcdLogin login;
    RecordKeys record_keys = nullptr;  ///< called on the daemon's thread
};

/// Parses "a:2379,b:2379/PREFIX", the part after "etcd://". Error: invalid_argument.
Result<EtcdPlace> parse_etcd_place(std::string_view text);

/// Combines protocol, cacert, cert and key; empty without https. invalid_argument: they contradict each other.
Result<std::optional<TlsFiles>> tls_files(std::string_view protocol, TlsFiles given);

/// Reads USER:PASSWORD, in UTF-8, from a file that only its owner may read; an empty path gives no user.
Result<EtcdLogin> read_etcd_login(const std::string& path);

/// The prefix of `name` below a shared one: "muster/" and "a/b" give "muster/a%2Fb/".
std::string prefix_for(std::string prefix, std::string_view name);

}  // namespace muster::rendezvous
