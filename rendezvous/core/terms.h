// What must be right about a join before it counts.
#pragma once

#include <string>

#include "rendezvous/wire/native/messages.h"

namespace muster::rendezvous {

/// One sentence about the first term that makes no sense by itself (minimum above maximum, no slots, no lease), or
/// empty. `nodes_max` is the daemon's own limit.
std::string wrong_with(const native::Join& join, std::uint32_t nodes_max);

/// The same for what a resuming agent says about its round.
std::string wrong_with(const native::Resume& resume);

/// One sentence with both values, both hosts and the option to change, about the first term that differs; empty when
/// all are equal.
std::string difference(const native::JobTerms& set, const std::string& set_by, const native::JobTerms& given,
                       const std::string& given_by);

}  // namespace muster::rendezvous
