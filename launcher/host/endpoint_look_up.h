// The names of --rdzv-endpoint, looked up once at the start: this node must know whether it is the rendezvous' host.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/time.h"

namespace muster::launcher {

/// One for each endpoint: the numeric addresses of its host, empty where it has none or none was found in time. All
/// names are asked for at the same time; blocks until all are answered, but no longer than `limit`, and not when
/// `in_haste` says so, which is asked every 20 ms. Numeric addresses cost nothing.
std::vector<std::vector<std::string>> look_up_endpoints(const std::vector<Endpoint>& endpoints, Duration limit,
                                                        const std::function<bool()>& in_haste);

}  // namespace muster::launcher
