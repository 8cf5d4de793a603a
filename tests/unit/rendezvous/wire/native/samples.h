// One message of each type with every field set, the ones that PROTOCOL.md shows in bytes.
#pragma once

#include <vector>

#include "rendezvous/wire/native/codec.h"

namespace muster::test {

/// In the order of native::Message.
std::vector<native::Message> samples();

native::Sender sender_of(const native::Message& message);

}  // namespace muster::test
