// The launcher's store as a SharedStore.
#pragma once

#include <memory>

#include "rendezvous/base/endpoint.h"
#include "worker_runtime/examples/all_gather.h"

namespace muster::runtime {

/// Connects to the c10d store (ours or PyTorch's) at `endpoint`; gives up after a minute, as every call of it does.
Result<std::unique_ptr<SharedStore>> connect_store(const Endpoint& endpoint);

}  // namespace muster::runtime
