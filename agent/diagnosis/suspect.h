// Names the ranks to look at first if the first failure is a victim's: a worker whose wait for another timed out.
#pragma once

#include <optional>
#include <string>

#include "rendezvous/wire/native/failure.h"

namespace muster::agent {

struct Suspect {
    ActivityGroup group;  ///< The suspected ranks.
    std::string why;      ///< "missing from all_reduce 42 of world"

    /// "rank 3 on gpu07 (pid 42), missing from all_reduce 42 of world".
    [[nodiscard]] std::string text() const;
};

/// From where the ranks stood; empty where the first failure is a cause of its own, where a node was lost, or where it
/// cannot be told. In this order: those that a signal has stopped; the one place outside of all operations while more
/// ranks are inside one; the one operation that is not that of the majority, all being inside the same communicator's.
std::optional<Suspect> suspect_of(const Verdict& verdict);

}  // namespace muster::agent
