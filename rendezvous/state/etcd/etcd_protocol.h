// What is asked of etcd and what it answers, as plain values, and both as the JSON of its gateway (etcd 3.4 and newer).
// Pure. Keys and values are bytes here and base64 there; 64-bit numbers are strings there.
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
/// The keys from `key` up to but not `end`, as they were at `revision` (0: now), the first `limit` of them.
struct ReadKeys {
    std::string key;
    std::string end;  ///< empty: `key` alone
    std::int64_t limit = 0;
    std::int64_t revision = 0;
};
/// True when the key's revision of this kind is the number; 0: there is no such key.
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
    std::string end;  ///< empty: `key` alone
};
/// If all of `compare` hold `then` happens, else `otherwise` is read, each key alone.
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

struct LeaseTold {
    std::int64_t lease = 0;
    std::int64_t ttl_s = 0;  ///< 0: there is no such lease any more
};
struct KeyTold {
    std::string key;
    std::string value;
    std::int64_t created = 0;
    std::int64_t modified = 0;
};
struct KeysTold {
    std::int64_t revision = 0;  ///< of the whole store, when this was read
    std::vector<KeyTold> keys;
    bool more = false;
};
struct TransactionTold {
    std::int64_t revision = 0;
    bool succeeded = false;
    std::vector<std::optional<KeyTold>> read;  ///< as many as `otherwise`, where it did not succeed
};
/// What every request carries from now on, for as long as etcd remembers it.
struct TokenTold {
    std::string token;
};
struct Done {};
using EtcdAnswer = std::variant<LeaseTold, KeysTold, TransactionTold, TokenTold, Done>;

struct EtcdCall {
    std::string path;  ///< "/v3/kv/txn"
    std::string body;
};
EtcdCall encode(const EtcdRequest& request);

/// The answer to `request` with HTTP status `status`. permission_denied: it does not know who asks (no token, or one
/// that it has forgotten); unsupported: it has no users; unreachable: it cannot at this moment; refused: it says no,
/// with its words; bad_frame: it is no answer to that.
Result<EtcdAnswer> decode_answer(const EtcdRequest& request, unsigned status, const std::string& body);

/// The end of the range of all keys that begin with `prefix`.
std::string range_end(std::string prefix);

std::string to_base64(std::string_view bytes);
std::optional<std::string> from_base64(std::string_view text);

}  // namespace muster::rendezvous
