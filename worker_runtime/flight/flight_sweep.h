// Removes stale flight records from a folder (MUSTER_FLIGHT_DIR).
#pragma once

#include <string>

namespace muster::runtime {

/// The file name, such as "flight_JOB_RANK.ring".
std::string flight_file_name(const std::string& job, int rank);

/// Removes the records of `job` in `folder` that no rank of a world of `world` overwrites: those of higher ranks, left
/// by a larger round or run on this host, whose process is gone (another boot of the host, or no such process). It
/// leaves all others alone and ignores errors.
void sweep_flight_records(const std::string& folder, const std::string& job, int world);

}  // namespace muster::runtime
