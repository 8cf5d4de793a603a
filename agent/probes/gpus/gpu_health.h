// The health of this host's GPUs, for muster doctor: prints records that agent/doctor/look.h parses.
#pragma once

#include "agent/probes/gpus/gpu_driver.h"

namespace muster::agent {

/// Takes a fifth of a second, in which clocks are sampled ten times. A field that the driver does not know is left out.
void print_gpu_health(const GpuDriver& driver);

}  // namespace muster::agent
