// Watches one GPU while another program tests it (muster-gpu-test), for muster doctor.
#pragma once

#include <string>
#include <vector>

#include "agent/probes/gpus/gpu_driver.h"

namespace muster::agent {

/// Runs `words` with the GPU `uuid` as its only visible one, and prints what agent/doctor/look.h parses: the record
/// "target", then either "busy" (another process uses it, and nothing is started) or the program's own records, and
/// "load" (clocks, temperature, link, in samples under load), "before" and "after" (errors of the memory). Returns when
/// the program has ended; the caller sets the deadline.
void watch_gpu_test(const GpuDriver& driver, const std::string& uuid, std::vector<std::string> words);

}  // namespace muster::agent
