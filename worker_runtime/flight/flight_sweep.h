// Keeps a folder of flight records (MUSTER_FLIGHT_DIR) to the ranks that there are.
#pragma once

#include <string>

namespace muster::runtime {

/// "flight_JOB_RANK.ring".
std::string flight_file_name(const std::string& job, int rank);

/// Removes the records of `job` in `folder` that no rank of a world of `world` will write over: those of higher ranks,
/// left by a larger round or run before this one on this host, whose process is gone (another boot of the host, or no
/// such process). All others are left alone, and errors are ignored.
void sweep_flight_records(const std::string& folder, const std::string& job, int world);

}  // namespace muster::runtime
