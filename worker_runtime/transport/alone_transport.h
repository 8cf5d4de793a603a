// A world of one: every collective is a copy, or nothing.
#pragma once

#include <memory>

#include "worker_runtime/transport/transport.h"

namespace muster::runtime {

std::unique_ptr<Transport> make_alone_transport();

}  // namespace muster::runtime
