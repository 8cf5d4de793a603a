// Adapts an exchange written by a caller of the C API.
#pragma once

#include <memory>

#include "muster/bucket_exchange.h"
#include "muster/muster.h"
#include "rendezvous/base/error.h"

namespace muster::capi {

/// Null for NULL. invalid_argument: what cannot be left out is.
Result<std::shared_ptr<BucketExchange>> read_exchange(const muster_exchange* given);

}  // namespace muster::capi
