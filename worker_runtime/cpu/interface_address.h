// Which of this host's addresses other ranks are told.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/base/error.h"

namespace muster::runtime {

/// The numeric address from which this host would talk to `remote` (numeric): that of the interface which reached the
/// store. Sends nothing.
Result<std::string> address_towards(const std::string& remote);

/// The first address of the interfaces that `names` lists, as NCCL and gloo read it: names or their beginnings with
/// commas between, "=" before an exact name. not_found lists the interfaces that there are. Addresses of `family` (as
/// in AF_INET) are preferred; and before all `preferred`, where one of these interfaces has it.
Result<std::string> address_of_interface(std::string_view names, int family, const std::string& preferred);

}  // namespace muster::runtime
