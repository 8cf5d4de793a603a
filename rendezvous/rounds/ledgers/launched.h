// Compares the programs and arguments of two nodes, because two jobs may share an id by accident. Pure.
#pragma once

#include <string>
#include <utility>

#include "rendezvous/wire/native/messages.h"

namespace muster::rendezvous {

/// False where one of the two has not told what it launches.
bool launches_other(const native::Join& one, const native::Join& other);

/// The program and its arguments of both, cut to what differs where they are long: "`train.py --lr 0.1`". Where nothing
/// of the difference is left, the second one says so.
std::pair<std::string, std::string> both_launched(const native::Join& one, const native::Join& other);

}  // namespace muster::rendezvous
