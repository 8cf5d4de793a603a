"""--numa-binding and --omp: what workers and their children have got, from the kernel's own mouth.

hwloc describes a machine of two NUMA nodes with one core each in the place of this one (HWLOC_SYNTHETIC), so that two
real CPUs are enough.
"""
import ctypes
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import own_processes  # noqa: E402, F401
from line_times import without_times  # noqa: E402

MUSTER = pathlib.Path(os.environ["MUSTER_BIN"]) / "muster"
TWO_NODES = "numa:2 core:1 pu:1"
# In a child of the worker, so that what is inherited is seen.
SAY = ("cpus=$(sed -n 's/Cpus_allowed_list:\\t//p' /proc/self/status)\n"
       "memory=$(sed -n 's/.* \\(default\\|prefer[^ ]*\\( (many)\\)\\?:[0-9]*\\|bind:[0-9]*\\).*/\\1/p' /proc/self/numa_maps | sort -u)\n"
       "echo \"rank $RANK cpus $cpus memory $memory threads ${OMP_NUM_THREADS:-none}\"")


def refuse_set_mempolicy():
    """As the seccomp profile of many containers does."""
    pr_set_seccomp, filter_mode, pr_set_no_new_privs = 22, 2, 38
    set_mempolicy = 238 if os.uname().machine == "x86_64" else 237
    allow, refuse = 0x7FFF0000, 0x00050001  # EPERM
    code = [(0x20, 0, 0, 0), (0x15, 0, 1, set_mempolicy), (0x06, 0, 0, refuse), (0x06, 0, 0, allow)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
    header = struct.pack("HxxxxxxP", len(code), ctypes.addressof(program))
    libc = ctypes.CDLL(None)
    libc.prctl(pr_set_no_new_privs, 1, 0, 0, 0)
    assert libc.prctl(pr_set_seccomp, filter_mode, header) == 0


class Placement(unittest.TestCase):
    def launch(self, *options, cpus=(0, 1), workers=2, before=None, command=(MUSTER,), **variables):
        def start():
            os.sched_setaffinity(0, cpus)
            if before:
                before()
        done = subprocess.run(
            [*command, f"--nproc-per-node={workers}", *options, "--no-python", "sh", "-c", SAY.replace("$", "$$")],
            env={**{name: value for name, value in os.environ.items()
                    if not name.startswith(("HWLOC_", "OMP_", "SLURM_", "CUDA_"))}, "LOGLEVEL": "INFO", **variables},
            stdin=subprocess.DEVNULL, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=200,
            preexec_fn=start)
        return done

    def said(self, *options, **more):
        done = self.launch(*options, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = sorted(re.findall(r"rank (\d) cpus (\S*) memory (.*) threads (\S*)", done.stdout))
        self.assertEqual(len(found), more.get("workers", 2), done.stdout + done.stderr)
        return [rest for _, *rest in found]

    def test_this_machine_as_it_is(self):
        both = self.said("--numa-binding=socket")
        self.assertTrue(both[0][0].startswith("0"), both)
        self.assertRegex(both[0][1], r"^prefer.*:0")
        self.assertEqual(self.said(), [["0-1", "default", "1"]] * 2)

    def test_each_worker_has_the_cpus_of_its_node_and_its_memory(self):
        for mode in ("node", "socket", "exclusive", "core-complex"):
            with self.subTest(mode=mode):
                one, other = self.said(f"--numa-binding={mode}", HWLOC_SYNTHETIC="pack:2 numa:1 core:1 pu:1")
                self.assertEqual((one[0], other[0]), ("0", "1"))
                self.assertRegex(one[1], r"^prefer.*:0")
                if not pathlib.Path("/sys/devices/system/node/node1").exists():
                    self.assertEqual(other[1], "default")  # memory that there is not cannot be preferred

    def test_only_cpus_that_the_mask_allows(self):
        self.assertEqual([cpus for cpus, *_ in self.said("--numa-binding=node", cpus=(1,), HWLOC_SYNTHETIC=TWO_NODES)],
                         ["1", "1"])

    def gpus_on(self, *nodes):
        """muster where /sys says that the GPUs of the library in NVML's place are on these NUMA nodes."""
        if os.geteuid() != 0:
            self.skipTest("needs root, for a /sys of its own")
        folder = tempfile.TemporaryDirectory(prefix="muster-pci-")
        self.addCleanup(folder.cleanup)
        for number, node in enumerate(nodes):
            device = pathlib.Path(folder.name) / f"0000:e{number}:00.0"
            device.mkdir()
            (device / "numa_node").write_text(f"{node}\n")
        return {"command": ("unshare", "--mount", "sh", "-c", 'mount --bind "$0" /sys/bus/pci/devices && exec "$@"',
                            folder.name, MUSTER),
                "HWLOC_SYNTHETIC": TWO_NODES, "MUSTER_NVML_LIBRARY": os.environ["FAKE_NVML_LIBRARY"],
                "FAKE_NVML": "GPU-a;GPU-b"}

    def test_the_gpu_decides_in_the_order_of_cuda(self):
        gpus = self.gpus_on(1, 0)
        self.assertEqual([cpus for cpus, *_ in self.said("--numa-binding=node", **gpus)], ["1", "0"])
        for visible in ("1,0", "GPU-b,GPU-a"):
            self.assertEqual(
                [cpus for cpus, *_ in self.said("--numa-binding=node", CUDA_VISIBLE_DEVICES=visible, **gpus)], ["0", "1"])

    def test_no_cpu_beside_a_gpu_is_one_line(self):
        done = self.launch("--numa-binding=node", cpus=(0,), **self.gpus_on(0, 1))
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertRegex(without_times(done.stderr), r"\Amuster: --numa-binding: local rank 1: its GPU 0000:e1:00.0 is on NUMA node 1.*"
                                      r"\(allowed: 0\).*--gres-flags=enforce-binding.*\n\Z")

    def test_where_memory_cannot_be_bound_the_cpus_are(self):
        done = self.launch("--numa-binding=node", before=refuse_set_mempolicy, HWLOC_SYNTHETIC=TWO_NODES)
        self.assertEqual(sorted(re.findall(r"cpus (\d) memory (\w+)", done.stdout)),
                         [("0", "default"), ("1", "default")], done.stderr)
        self.assertEqual(done.stderr.count("CPUs are bound, memory is not (set_mempolicy: Operation not permitted"), 1)

    def test_threads_from_cores(self):
        threads = lambda *options, **more: [found[2] for found in self.said(*options, **more)]
        four = "numa:1 core:2 pu:1"
        self.assertEqual(threads("--omp=auto", HWLOC_SYNTHETIC=four), ["1", "1"])
        self.assertEqual(threads("--omp=auto", workers=1, HWLOC_SYNTHETIC=four), ["2"])
        self.assertEqual(threads("--omp=auto", workers=1, HWLOC_SYNTHETIC="numa:1 core:1 pu:2"), ["1"])
        self.assertEqual(threads("--omp=auto", workers=1, OMP_NUM_THREADS="7"), ["7"])
        self.assertEqual(threads("--omp=auto", "--numa-binding=node", HWLOC_SYNTHETIC=TWO_NODES), ["1", "1"])
        self.assertEqual(threads(workers=1), ["none"])

    def group_below_a_quota(self, cpus):
        """The path by which a process joins a group that has no CPU quota of its own, but one above it has."""
        root = pathlib.Path("/sys/fs/cgroup")
        first, limit = (root / "cpu", ("cpu.cfs_quota_us", f"{cpus * 100000}"))
        if (root / "cgroup.controllers").exists():
            first, limit = (root, ("cpu.max", f"{cpus * 100000} 100000"))
        outer = first / f"muster-test-{os.getpid()}"
        try:
            (outer / "inner").mkdir(parents=True)
            self.addCleanup(outer.rmdir)
            self.addCleanup((outer / "inner").rmdir)  # the first of the two
            (outer / limit[0]).write_text(limit[1])
        except OSError as refused:
            self.skipTest(f"no control group with a CPU quota can be made here: {refused}")
        return outer / "inner/cgroup.procs"

    def test_a_cpu_quota_above_this_group_counts(self):
        join = self.group_below_a_quota(1)
        done = self.launch(workers="cpu", before=lambda: join.write_text(str(os.getpid())))
        self.assertEqual(re.findall(r"rank \d", done.stdout), ["rank 0"], done.stderr)
        self.assertEqual(len(self.said()), 2)

    def test_an_installation_without_muster_topology(self):
        with tempfile.TemporaryDirectory(prefix="muster-alone-") as folder:
            shutil.copy(MUSTER, folder)
            done = self.launch("--numa-binding=node", command=(f"{folder}/muster",))
            self.assertEqual(done.returncode, 2)
            self.assertRegex(without_times(done.stderr), r"\Amuster: --numa-binding: .*start muster-topology: No such file.*\n\Z")
            self.assertEqual(self.launch(command=(f"{folder}/muster",)).returncode, 0)


if __name__ == "__main__":
    if not {0, 1} <= os.sched_getaffinity(0):
        print("skipped: needs CPUs 0 and 1")
        sys.exit(1 if os.environ.get("CI") == "true" else 77)
    unittest.main(verbosity=2)
