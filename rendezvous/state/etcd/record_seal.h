// Authenticates the records in etcd: whoever can write there, and does not have the daemons' secret, cannot forge a
// job. It can still delete records, and put back an older value of a record. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster::rendezvous {

/// `value` with its HMAC-SHA256 before it, keyed with the first of `keys`. The HMAC covers `name`, the whole key in
/// etcd, too. Without keys: `value`.
std::string seal(const std::vector<std::string>& keys, std::string_view name, std::string_view value);

/// What `seal` made with any of `keys`. permission_denied: it has no HMAC, or a wrong one; or it has one, and there are
/// no keys.
Result<std::string> unseal(const std::vector<std::string>& keys, std::string_view name, std::string_view stored);

}  // namespace muster::rendezvous
