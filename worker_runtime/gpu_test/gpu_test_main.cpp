// muster-gpu-test: tests one GPU, the first that is visible: products with a known checksum, copies, a pattern in
// memory. It prints records that agent/doctor/look.h parses. `muster-gpus --test` starts it and watches the GPU
// meanwhile; it sets CUDA_VISIBLE_DEVICES.
//
// muster-gpu-test --all-reduce: a worker of a job, which adds numbers with the other GPUs of its node (gpu_reduce.h).
//
// muster-gpu-test --between: copies between all visible GPUs (gpu_between.h).
//
// A program of its own, because a driver may hang and a faulty GPU may end the process. The caller sets the deadline.
// At most 1.5 GiB of the GPU's memory is taken. Exit codes: 0; 1 if a step could not be completed, which a record
// "failure" tells.
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <string_view>

#include "rendezvous/base/system/end_with_parent.h"
#include "worker_runtime/gpu_test/gpu_between.h"
#include "worker_runtime/gpu_test/gpu_reduce.h"
#include "worker_runtime/gpu_test/gpu_steps.h"
#include "worker_runtime/gpu_test/record.h"
#include "worker_runtime/kernels/check_kernels.h"

using namespace muster;
using namespace muster::runtime;

namespace {

/// What a failure says about the GPU: nothing where memory or a library is missing.
const char* kind_of(const Error& error) {
    if (error.code == Errc::limit_exceeded) return "memory";
    return error.code == Errc::unsupported ? "library" : "gpu";
}

void print_failure(const Error& error) {
    print_record(cat("failure", field("kind", kind_of(error)), field("text", error.context)));
}

Result<void> test(std::uint64_t seed) {
    print_record(cat("step", field("name", "the start of CUDA")));
    auto opened = MUSTER_TRY(TestDevice::open());
    auto& device = *opened;
    // Data is moved at both edges of the clock.
    const auto memory_khz = static_cast<std::uint64_t>(device.attribute(cudaDevAttrMemoryClockRate));
    const auto bus_bits = static_cast<std::uint64_t>(device.attribute(cudaDevAttrGlobalMemoryBusWidth));
    print_record(cat("cuda", field("versions", device.versions()), field("seed", seed),
                     field("memory-mbytes-per-s", memory_khz * 2 * bus_bits / 8 / 1000),
                     field("free-mib", device.free_bytes() >> 20)));
    MUSTER_TRY(test_products(device, seed));
    MUSTER_TRY(test_copies(device, seed));
    return test_memory(device, seed);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc > 1 && std::string_view(argv[1]) == "--all-reduce") {
        const auto reduced = reduce_between_gpus();
        if (!reduced) print_failure(reduced.error());
        return reduced ? 0 : 1;
    }
    end_with_parent();
    const bool between = argc > 1 && std::string_view(argv[1]) == "--between";
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    const auto seed =
        kernels::mixed(static_cast<std::uint64_t>(now.tv_nsec) << 20 ^ static_cast<std::uint64_t>(::getpid()));
    const auto done = between ? copy_between_gpus(seed) : test(seed);
    if (!done) print_failure(done.error());
    if (between) print_record("end");
    // Without the destructors of CUDA, which wait for work that may never end.
    ::_exit(done ? 0 : 1);
}
