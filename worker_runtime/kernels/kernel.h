// The common form of all kernels: arithmetic on GPU memory, written once. kernels.cu compiles it for GPUs; in tests the
// stand-in for CUDA runs the same functions on the host.
//
// A kernel is a struct whose members are its arguments: pointers into memory of the GPU, and numbers. Its work is cut
// into items; a block of 256 threads takes one item after another. Two kinds:
//
//   elementwise   `count` elements, each by itself: element(i)
//   in phases     items() items; for each of them every thread calls run(phase, item, thread, shared) for one phase
//                 after another, and waits for all other threads of the block between two phases
//
// The number of phases is a constant of the kernel's Form, or phase_count() if it depends on the arguments.
//
// memory(visit) names every pointer with the number of elements behind it: visit(pointer, count). The stand-in checks
// that they are GPU memory, and replaces them by the host addresses behind them.
//
// No operations are fused (no FMA contraction), divisions and roots round to nearest, and subnormal numbers are kept:
// a kernel computes the same bits on every GPU and on the host.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker_runtime/core/host_and_device.h"

namespace muster::kernels {

inline constexpr std::uint32_t threads = 256;
inline constexpr std::uint32_t elements_per_thread = 4;
/// A launch has at most this many blocks; with more items each block processes several.
inline constexpr std::uint32_t blocks_max = 65536;

struct NoShared {};

/// The form of an elementwise kernel.
struct Elementwise {
    using Shared = NoShared;
    static constexpr std::uint32_t phases = 1;
    static constexpr bool elementwise = true;
};

template <class Kernel>
MUSTER_HOST_AND_DEVICE std::uint64_t item_count(const Kernel& kernel) {
    constexpr std::uint64_t item = threads * elements_per_thread;
    if constexpr (Kernel::Form::elementwise) {
        return (kernel.count + item - 1) / item;
    } else {
        return kernel.items();
    }
}

/// The number of phases of each item.
template <class Kernel>
MUSTER_HOST_AND_DEVICE std::uint32_t count_phases(const Kernel& kernel) {
    if constexpr (requires { kernel.phase_count(); }) {
        return kernel.phase_count();
    } else {
        return Kernel::Form::phases;
    }
}

/// Runs one phase of one item for one thread.
template <class Kernel>
MUSTER_HOST_AND_DEVICE void run_phase(const Kernel& kernel, std::uint32_t phase, std::uint64_t item,
                                      std::uint32_t thread, typename Kernel::Form::Shared& shared) {
    if constexpr (Kernel::Form::elementwise) {
        const std::uint64_t first = item * threads * elements_per_thread + thread;
        for (std::uint32_t i = 0; i < elements_per_thread; ++i) {
            if (first + i * threads < kernel.count) kernel.element(first + i * threads);
        }
    } else {
        kernel.run(phase, item, thread, shared);
    }
}

// ---- reductions over the threads of a block, in a fixed order, for kernels in phases ----

/// The number of halving steps that reduce `threads` values to one.
inline constexpr std::uint32_t halvings = 8;

/// The form of a kernel that computes one value per thread in its first phase, reduces them, and uses the result in its
/// last phase.
struct Halving {
    static constexpr std::uint32_t phases = 2 + halvings;
    static constexpr bool elementwise = false;
};

/// One f64 sum per thread of a block.
struct SumForm : Halving {
    struct Shared {
        double sums[threads];
    };
};

/// Runs halving step `number`, from 0: the upper half of the remaining values is added to the lower half. The last step
/// leaves the result in values[0].
template <class T, class Combine>
MUSTER_HOST_AND_DEVICE void halve(T* values, std::uint32_t number, std::uint32_t thread, Combine combine) {
    const std::uint32_t half = threads >> (number + 1);
    if (thread < half) values[thread] = combine(values[thread], values[thread + half]);
}

struct Add {
    MUSTER_HOST_AND_DEVICE float operator()(float a, float b) const { return a + b; }
    MUSTER_HOST_AND_DEVICE double operator()(double a, double b) const { return a + b; }
};

struct Larger {
    MUSTER_HOST_AND_DEVICE std::int32_t operator()(std::int32_t a, std::int32_t b) const { return a > b ? a : b; }
};

struct Either {
    MUSTER_HOST_AND_DEVICE std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const { return a | b; }
};

// ---- for kernels whose items belong to several objects, one after another ----

/// Returns which of `count` objects contains item `i`: the last k with begin(k) <= i. begin(0) is 0.
MUSTER_HOST_AND_DEVICE std::uint32_t place_of(std::uint64_t i, std::uint32_t count, auto begin) {
    std::uint32_t found = 0;
    for (std::uint32_t above = count; above - found > 1;) {
        const std::uint32_t middle = found + (above - found) / 2;
        if (begin(middle) <= i) {
            found = middle;
        } else {
            above = middle;
        }
    }
    return found;
}

MUSTER_HOST_AND_DEVICE inline std::uint64_t lesser(std::uint64_t a, std::uint64_t b) {
    return a < b ? a : b;
}

}  // namespace muster::kernels
