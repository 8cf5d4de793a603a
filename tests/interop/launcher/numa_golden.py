"""Writes what torch's --numa-binding would do on random machines, for tests/unit/agent/supervision/placement_test.cpp:

    .venv/bin/python tests/interop/launcher/numa_golden.py > tests/unit/agent/supervision/numa_golden.txt

To be run again when torch/numa/binding.py changes. The machines are made up: what torch reads from /sys and from CUDA
is put in the place of the functions that read it. Each machine is written as muster-topology would describe it, on one
line, then "gpus NODE...", then "MODE CPUS CPUS ..." for each mode, the CPUs for each GPU, "refused" where torch raises.
"""
import random

import torch.numa.binding as binding


def machine(random):
    sockets, nodes, caches = random.choice((1, 2)), random.choice((1, 2, 4)), random.choice((1, 2, 3))
    cores, threads = random.choice((1, 2, 3)), random.choice((1, 2))
    total = sockets * nodes * caches * cores
    cpus = []
    for number in range(total * threads):
        # As firmware numbers them: all first threads, then all second ones; or thread beside thread.
        core = number % total if total % 2 else number // threads
        cache = core // cores
        cpus.append([number, core, cache, cache // caches // nodes, cache // caches])
    keep = random.choice((1.0, 1.0, 0.7, 0.4))
    for cpu in cpus:
        cpu.append(int(random.random() < keep))
    gpus = [random.randrange(sockets * nodes) for _ in range(random.choice((1, 2, 4, 8)))]
    return cpus, sorted(gpus) if random.random() < 0.5 else gpus


def pretend(cpus, gpus):
    of = lambda column, value: {cpu[0] for cpu in cpus if cpu[column] == value}
    facts = {cpu[0]: cpu for cpu in cpus}
    binding._get_allowed_cpu_indices_for_current_thread = lambda: of(5, 1)
    binding._get_cpu_indices_for_numa_node_MAYBE_NOT_ALLOWED = lambda *, numa_node_index: of(4, numa_node_index)
    binding._get_numa_node_index_for_gpu_index = lambda *, gpu_index: gpus[gpu_index]
    binding._get_gpu_count = lambda: len(gpus)
    binding._get_logical_cpu_indices_sharing_same_physical_core_as = (
        lambda *, logical_cpu_index: of(1, facts[logical_cpu_index][1]))
    binding._get_logical_cpus_sharing_same_max_level_cache_as = (
        lambda *, logical_cpu_index: of(2, facts[logical_cpu_index][2]))
    binding._get_socket_index_for_cpu = lambda *, cpu_index: facts[cpu_index][3]
    binding._get_systemwide_numa_node_indices = lambda: {cpu[4] for cpu in cpus}


def answer(mode, gpu):
    try:
        cpus = binding._get_logical_cpus_to_bind_to(gpu_index=gpu, numa_options=binding.NumaOptions(mode))
    except Exception:
        return "refused"
    return ",".join(map(str, sorted(cpus))) or "refused"


def main():
    source = random.Random(6)
    for _ in range(60):
        cpus, gpus = machine(source)
        pretend(cpus, gpus)
        print("; ".join(" ".join(map(str, ["cpu", *cpu])) for cpu in cpus))
        print("gpus", *gpus)
        # torch trips over a NUMA node without allowed CPUs anywhere; we do not.
        whole = all(any(cpu[4] == node and cpu[5] for cpu in cpus) for node in {cpu[4] for cpu in cpus})
        for mode in binding.AffinityMode:
            if whole or mode != binding.AffinityMode.SOCKET:
                print(mode.value, *(answer(mode, gpu) for gpu in range(len(gpus))))
        print()


main()
