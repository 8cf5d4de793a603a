// muster-topology: prints the CPUs of this host, as hwloc reports them, and which of them this process may use:
//
//     cpu CPU CORE CACHE SOCKET NODE ALLOWED     CACHE: the last-level one; ALLOWED: 1 or 0
//     memory NODE                                this process may allocate memory from this NUMA node
//     policy REASON                              only if no memory policy can be set
//     end                                        the output is complete
//
// CPU and NODE are the operating system's numbers, the others hwloc's. HWLOC_SYNTHETIC and HWLOC_XMLFILE replace this
// machine by another, as for all programs of hwloc. A separate program, so that only launches with --numa-binding or
// --omp=auto load the library.
//
// Exit codes: 0; 1 if hwloc fails.
#include <errno.h>
#include <hwloc.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <utility>

namespace {

constexpr unsigned nodes_max = 1024;
constexpr unsigned cpus_max = 1U << 16;
constexpr unsigned word_bits = sizeof(unsigned long) * CHAR_BIT;
using NodeMask = std::array<unsigned long, nodes_max / word_bits>;

hwloc_obj_t last_level_cache(hwloc_obj_t pu) {
    hwloc_obj_t found = nullptr;
    for (auto* above = pu->parent; above != nullptr; above = above->parent)
        if (hwloc_obj_type_is_dcache(above->type)) found = above;
    return found;
}

/// Of several nodes beside the same CPUs the first is their own; the others are memory alone (HBM, CXL, a GPU's).
unsigned node_of(hwloc_topology_t topology, hwloc_obj_t pu) {
    hwloc_obj_t best = nullptr;
    for (hwloc_obj_t node = nullptr;
         (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
        if (node->cpuset == nullptr || !hwloc_bitmap_isset(node->cpuset, pu->os_index)) continue;
        if (best == nullptr || std::pair(hwloc_bitmap_weight(node->cpuset), node->os_index) <
                                   std::pair(hwloc_bitmap_weight(best->cpuset), best->os_index))
            best = node;
    }
    return best != nullptr ? best->os_index : 0;
}

/// The process's mask as the kernel knows it: within its cpuset already. hwloc knows the mask of the machine that it
/// describes, which need not be this one.
class OwnMask {
  public:
    OwnMask() : set_(CPU_ALLOC(cpus_max)) {
        CPU_ZERO_S(CPU_ALLOC_SIZE(cpus_max), set_);
        ::sched_getaffinity(0, CPU_ALLOC_SIZE(cpus_max), set_);
    }
    ~OwnMask() { CPU_FREE(set_); }
    OwnMask& operator=(OwnMask&&) = delete;
    [[nodiscard]] bool has(unsigned cpu) const {
        return cpu < cpus_max && CPU_ISSET_S(cpu, CPU_ALLOC_SIZE(cpus_max), set_);
    }

  private:
    cpu_set_t* set_;
};

void print_cpus(hwloc_topology_t topology) {
    // Beyond hwloc's numbers: a CPU without a core is one; where caches are hidden, the node's CPUs share one.
    constexpr unsigned core_alone = 1U << 18, cache_hidden = 1U << 19;
    const OwnMask own;
    for (hwloc_obj_t pu = nullptr; (pu = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PU, pu)) != nullptr;) {
        auto* const core = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_CORE, pu);
        auto* const socket = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, pu);
        const bool allowed =
            hwloc_bitmap_isset(hwloc_topology_get_allowed_cpuset(topology), pu->os_index) != 0 && own.has(pu->os_index);
        auto* const cache = last_level_cache(pu);
        const auto node = node_of(topology, pu);
        ::printf("cpu %u %u %u %u %u %d\n", pu->os_index,
                 core != nullptr ? core->logical_index : core_alone + pu->logical_index,
                 cache != nullptr ? cache->logical_index : cache_hidden + node,
                 socket != nullptr ? socket->logical_index : 0, node, allowed ? 1 : 0);
    }
}

/// Tries with what is allowed, which changes nothing for a process that ends at once.
void print_memory() {
    NodeMask allowed{};
    if (::syscall(SYS_get_mempolicy, nullptr, allowed.data(), nodes_max, nullptr, MPOL_F_MEMS_ALLOWED) != 0) {
        ::printf("policy get_mempolicy: %s\n", ::strerror(errno));
        return;
    }
    for (unsigned node = 0; node < nodes_max; ++node)
        if ((allowed[node / word_bits] >> (node % word_bits) & 1) != 0) ::printf("memory %u\n", node);
    // One more than there are bits: the kernel leaves out the last one.
    if (::syscall(SYS_set_mempolicy, MPOL_PREFERRED, allowed.data(), nodes_max + 1) != 0)
        ::printf("policy set_mempolicy: %s\n", ::strerror(errno));
}

}  // namespace

int main() {
    hwloc_topology_t topology = nullptr;
    if (hwloc_topology_init(&topology) != 0) return 1;
    hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    if (hwloc_topology_load(topology) != 0) {
        ::printf("note hwloc: %s\n", ::strerror(errno));
        return 1;
    }
    print_cpus(topology);
    print_memory();
    ::printf("end\n");
    hwloc_topology_destroy(topology);
    return 0;
}
