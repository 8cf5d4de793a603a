// Authenticates the records in etcd: whoever can write there, and does not have the daemons' secret, cannot forge a
// job. It can still delete records, and put back an older value of a record. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/rounds/job_record.h"

namespace muster::rendezvous {

/// `value` with its HMAC-SHA256 before it, keyed with the first of `keys`. The HMAC covers `name`, the whole key in
/// etcd, too. Without keys: `value`.
std::string seal(const std::vector<std::string>& keys, std::string_view name, std::string_view value);

/// What `seal` made with any of `keys`. permission_denied: it has no HMAC, or a wrong one; or it has one, and there are
/// no keys.
Result<std::string> unseal(const std::vector<std::string>& keys, std::string_view name, std::string_view stored);

/// What a leader finds in etcd.
struct Unsealed {
    std::vector<Record> good;      ///< as they were before they were sealed
    std::vector<Record> resealed;  ///< of them, those that another secret was used for, with the one in use
    std::vector<Record> refused;   ///< as they are in etcd
    std::string why;
};

/// The records below `prefix`, the part of their keys in etcd that their own names lack. If one is refused, so is the
/// record that says that the state is complete (complete_record()): a running job's may be the one that is lacking.
Unsealed unseal_all(const std::vector<std::string>& keys, std::string_view prefix, const std::vector<Record>& records);

}  // namespace muster::rendezvous
