#include "worker_runtime/shared_memory/own_cpu.h"

namespace muster::runtime {

void OwnCpu::bind() {
    if (is_bound_ || ::sched_getaffinity(0, sizeof before_, &before_) != 0) return;
    const int cpus = CPU_COUNT(&before_);
    if (cpus < 2 || cpus > ranks_) return;
    int cpu = -1;
    for (int passed = -1; passed < rank_ % cpus; ++passed) {
        do ++cpu;
        while (!CPU_ISSET(cpu, &before_));
    }
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(cpu, &own);
    is_bound_ = ::sched_setaffinity(0, sizeof own, &own) == 0;
}

OwnCpu::~OwnCpu() {
    if (is_bound_) (void)::sched_setaffinity(0, sizeof before_, &before_);
}

}  // namespace muster::runtime
