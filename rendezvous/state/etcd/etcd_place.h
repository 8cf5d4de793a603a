// Where an etcd is and how one gets in: the words of the options, read.
#pragma once

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
    std::string ca;           ///< who vouches for the server; empty: whom the system trusts
    std::string certificate;  ///< ours, with what is between it and the CA; empty: none
    std::string key;          ///< of `certificate`
};

struct EtcdLogin {
    std::string user;  ///< empty: etcd has no users
    std::string password;
};

struct EtcdPlace {
    std::vector<Endpoint> members;
    std::vector<std::string> known_addresses;  ///< by member, as Endpoint::host lists them; may be empty or shorter
    std::string prefix = "muster/";
    bool is_of_one_job = false;   ///< what is below the prefix goes with the job
    std::optional<TlsFiles> tls;  ///< empty: plain HTTP
    EtcdLogin login;
};

/// "a:2379,b:2379/PREFIX", what follows "etcd://". invalid_argument with what is wrong.
Result<EtcdPlace> parse_etcd_place(std::string_view text);

/// What protocol, cacert, cert and key say together; empty without https. invalid_argument with what contradicts what.
Result<std::optional<TlsFiles>> tls_files(std::string_view protocol, TlsFiles given);

/// From a file that only its owner may read and that holds USER:PASSWORD; an empty path gives no user.
Result<EtcdLogin> read_etcd_login(const std::string& path);

/// `prefix` for one of several that share it: "muster/" and "a/b" give "muster/a%2Fb/".
std::string prefix_for(std::string prefix, std::string_view name);

}  // namespace muster::rendezvous
