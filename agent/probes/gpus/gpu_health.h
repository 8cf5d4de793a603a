// The health of this host's GPUs, for muster doctor: prints records that agent/doctor/look.h parses.
#pragma once

#include <array>
#include <string>

#include "agent/probes/gpus/gpu_driver.h"

namespace muster::agent {

/// Takes a fifth of a second, in which clocks are sampled ten times. A field that the driver does not know is left out.
void print_gpu_health(const GpuDriver& driver);

/// The fields of a record about one GPU's memory: its size, errors, and rows that were replaced.
std::string gpu_memory_health(const GpuDriver& driver, GpuDriver::Device device);

/// Why clocks are not at their maximum, as bits of nvml.h. 0 also if the driver does not tell.
unsigned long long clock_reasons(const GpuDriver& driver, GpuDriver::Device device);
inline constexpr unsigned long long idle_clocks = 0x1;

struct SlowReason {
    const char* field;
    unsigned long long bit;
};
/// Those that are faults.
inline constexpr std::array<SlowReason, 4> slow_reasons{
    {{"hw-slowdown", 0x8}, {"sw-thermal", 0x20}, {"hw-thermal", 0x40}, {"power-brake", 0x80}}};

}  // namespace muster::agent
