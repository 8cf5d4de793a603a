// The first cause of a round's end.
#pragma once

#include <vector>

#include "rendezvous/base/time.h"
#include "rendezvous/wire/native/failure.h"

namespace muster::rendezvous {

/// Two failures this close together may have happened in either order even where the clocks agree: exits are seen when
/// a process has been torn down, and small processes are torn down faster than large ones.
inline constexpr Duration simultaneous = 5ms;

/// Which of `failures` caused the others; they must not be empty.
///
/// The earliest one, unless a kind that is higher in the order of blame (FailureKind) happened within the error of the
/// clocks (the sum of both uncertainties) plus a slack: `simultaneous`, or, where the earlier one is a communication
/// error, `victim_window`. A communication error says itself that a peer was gone first, and the peer that caused it is
/// often seen to exit later, because it still wrote its traceback and gave back its memory.
const Failure& first_cause(const std::vector<Failure>& failures, Duration victim_window);

/// The worker requested no restart (worker_end.h): the job ends whatever the budget.
bool is_final(const Failure& failure);

/// "rank 3 on gpu07 failed: exit code 1"; "gpu07 was lost: no message for 5 s".
std::string sentence(const Failure& failure);

}  // namespace muster::rendezvous
