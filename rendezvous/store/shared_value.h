// A value of the store as replies hold it.
#pragma once

#include <memory>
#include <string>

namespace muster::rendezvous {

/// Shared with the map instead of copied: one 80 kB value may be on its way to 10,000 readers. The bytes do not change
/// while anybody holds a reference. Not for a second thread: the map writes in place once it is the only owner.
using SharedValue = std::shared_ptr<const std::string>;

}  // namespace muster::rendezvous
