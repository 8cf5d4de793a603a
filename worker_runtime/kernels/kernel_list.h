// All kernels, by number and by their names in the GPU code. A new kernel needs its struct and one line here.
#pragma once

#include "worker_runtime/kernels/check_kernels.h"
#include "worker_runtime/kernels/int8_kernels.h"
#include "worker_runtime/kernels/optimizer_kernels.h"
#include "worker_runtime/kernels/power_kernels.h"
#include "worker_runtime/kernels/reduction_kernels.h"
#include "worker_runtime/kernels/thin_kernels.h"

#define MUSTER_KERNELS(KERNEL) \
    KERNEL(Narrow)             \
    KERNEL(Widen)              \
    KERNEL(PutNumbers)         \
    KERNEL(AverageHalves)      \
    KERNEL(AverageFloats)      \
    KERNEL(ScaleFloats)        \
    KERNEL(ScaleDoubles)       \
    KERNEL(ScaleHalves)        \
    KERNEL(FindNonFinite)      \
    KERNEL(SquareSum)          \
    KERNEL(Total)              \
    KERNEL(SgdUpdate)          \
    KERNEL(AdamUpdate)         \
    KERNEL(Int8Encode)         \
    KERNEL(Int8Average)        \
    KERNEL(Int8Decode)         \
    KERNEL(PowerPack)          \
    KERNEL(PowerAdd)           \
    KERNEL(PowerProject)       \
    KERNEL(PowerGram)          \
    KERNEL(PowerSolve)         \
    KERNEL(PowerTurn)          \
    KERNEL(PowerProjectBack)   \
    KERNEL(PowerAddParts)      \
    KERNEL(PowerRestore)       \
    KERNEL(PowerKeep)          \
    KERNEL(CheckHalves)        \
    KERNEL(CheckFloats)        \
    KERNEL(PatternWrite)       \
    KERNEL(PatternCompare)

namespace muster::kernels {

#define MUSTER_KERNEL_NUMBER(name) name##Number,
enum class KernelNumber : int { MUSTER_KERNELS(MUSTER_KERNEL_NUMBER) count };
#undef MUSTER_KERNEL_NUMBER
inline constexpr int kernel_count = static_cast<int>(KernelNumber::count);

/// For example "muster_Narrow": C linkage, so the name is not mangled.
#define MUSTER_KERNEL_NAME(name) "muster_" #name,
inline constexpr const char* kernel_names[kernel_count] = {MUSTER_KERNELS(MUSTER_KERNEL_NAME)};
#undef MUSTER_KERNEL_NAME

template <class Kernel>
inline constexpr KernelNumber number_of = KernelNumber::count;
#define MUSTER_KERNEL_NUMBER_OF(name) \
    template <>                       \
    inline constexpr KernelNumber number_of<name> = KernelNumber::name##Number;
MUSTER_KERNELS(MUSTER_KERNEL_NUMBER_OF)
#undef MUSTER_KERNEL_NUMBER_OF

}  // namespace muster::kernels
