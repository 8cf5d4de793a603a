// Requests to etcd and its answers as plain values, and their JSON encoding for etcd's gateway (etcd 3.4 and newer).
// Pure. In JSON, keys and values are base64 and 64-bit numbers are strings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster::rendezvous {

// ---- requests ----

struct GrantLease {
    std::int64_t ttl_s = 0;
};
struct KeepLease {
    std::int64_t lease = 0;
};
struct RevokeLease {
    std::int64_t lease = 0;
};
/// Reads the first `limit` keys in [`key`, `end`), as of `revision` (0: now).
struct ReadKeys {
    std::string key;
    std::string end;  ///< empty: only `key`
    std::int64_t limit = 0;
    std::int64_t revision = 0;
};
/// True when the key's revision of this kind equals `revision`; 0: the key does not exist.
struct Compare {
    enum class Target { created, modified };
    std::string key;
    Target target = Target::created;
    std::int64_t revision = 0;
};
struct Put {
    std::string key;
    std::string value;
    std::int64_t lease = 0;  ///< 0: none
};
struct Erase {
    std::string key;
    std::string end;  ///< empty: only `key`
};
/// If all of `compare` hold, applies `then`; else reads the keys of `otherwise`.
struct Transaction {
    std::vector<Compare> compare;
    std::vector<std::variant<Put, Erase>> then;
    std::vector<std::string> otherwise;
};
struct Authenticate {
    std::string user;
    std::string password;
};
using EtcdRequest = std::variant<GrantLease, KeepLease, RevokeLease, ReadKeys, Transaction, Authenticate>;

// ---- answers ----

struct LeaseReply {
    std::int64_t lease = 0;
    std::int64_t ttl_s = 0;  ///< 0: the lease has expired
};
struct EtcdKeyValue {
    std::string key;
    std::string value;
    std::int64_t created = 0;
    std::int64_t modified = 0;
};
struct KeysReply {
    std::int64_t revision = 0;  ///< the store's revision at the read
    std::vector<EtcdKeyValue> keys;
    bool more = false;
};
struct TransactionReply {
    std::int64_t revision = 0;
    bool succeeded = false;
    std::vector<std::optional<EtcdKeyValue>> read;  ///< one per key of `otherwise`, if the transaction did not succeed
};
/// A token for all further requests, valid until etcd forgets it.
struct TokenReply {
    std::string token;
};
struct Done {};
using EtcdAnswer = std::variant<LeaseReply, KeysReply, TransactionReply, TokenReply, Done>;

struct EtcdCall {
    std::string path;  ///< "/v3/kv/txn"
    std::string body;
};
EtcdCall encode(const EtcdRequest& request);

/// Decodes the answer to `request` with HTTP status `status`. permission_denied: no token, or an expired one;
/// unsupported: authentication is disabled; unreachable: temporarily unavailable; limit_exceeded: etcd's database is
/// full, with the remedy; refused: another error, with etcd's text; bad_frame: not an answer to `request`.
Result<EtcdAnswer> decode_answer(const EtcdRequest& request, unsigned status, const std::string& body);

/// The end of the range of all keys that begin with `prefix`.
std::string range_end(std::string prefix);

std::string to_base64(std::string_view bytes);
std::optional<std::string> from_base64(std::string_view text);

}  // namespace muster::rendezvous
