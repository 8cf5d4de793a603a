// Validates records: a damaged or forged record must not become a Job that fails a check later.
#pragma once

#include <string_view>

#include "rendezvous/rounds/job_record.h"

namespace muster::rendezvous {

/// One phrase about the first thing that cannot be, or empty. Each is something that Job relies on.
std::string_view impossible_in(const KeptJob& kept);

}  // namespace muster::rendezvous
