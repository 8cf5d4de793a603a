#!/usr/bin/env python3
"""scripts/gpu on hosts that are made up: programs that only say which libraries they were given, in the place of those that
need a GPU.
"""
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = Path(os.environ["MUSTER_PLUGIN"])
PROGRAM = """#!/bin/sh
[ "$1" = --help ] || echo "cuda=$MUSTER_CUDA_LIBRARY nccl=$MUSTER_NCCL_LIBRARY"
"""


class GpuScript(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="muster-gpu-script-")
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name).resolve()
        self.bin = self.folder / "bin"
        self.tree = self.folder / "tree"
        carry = self.tree / "build/gpu/carry"
        carry.mkdir(parents=True)
        self.bin.mkdir()
        (self.tree / "scripts").mkdir()
        shutil.copy(ROOT / "scripts/gpu", self.tree / "scripts/gpu")
        for name in ("gpu_nccl_test", "gpu_all_reduce_bench", "gpu_reducer_bench", "muster", "muster-facts", "muster-gpus", "muster-gpu-test"):
            self.program(carry / name, PROGRAM)
        shutil.copy(PLUGIN, carry / "libmuster_nccl.so")
        self.program(self.bin / "ldconfig", "#!/bin/sh\n")

    def program(self, path, text):
        path.write_text(text)
        path.chmod(0o755)

    def packages(self, *files):
        """A python3 whose packages are these."""
        site = self.folder / "env/lib/python3.12/site-packages"
        for file in files:
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            (site / file).touch()
        self.program(self.bin / "python3", f"#!/bin/sh\necho; echo {site}\n")
        return site

    def given(self):
        environment = {"PATH": f"{self.bin}:{os.defpath}", "HOME": str(self.folder)}
        done = subprocess.run([self.tree / "scripts/gpu"], env=environment, text=True, capture_output=True, timeout=200)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = {line for line in done.stdout.splitlines() if line.startswith("cuda=")}
        self.assertEqual(len(lines), 1, done.stdout)
        return lines.pop()

    def test_libraries_are_found_among_the_packages_of_the_python_on_path(self):
        site = self.packages("nvidia/cu13/lib/libcudart.so.13", "nvidia/nccl/lib/libnccl.so.2")
        self.assertEqual(self.given(), f"cuda={site}/nvidia/cu13/lib/libcudart.so.13 nccl={site}/nvidia/nccl/lib/libnccl.so.2")

    def test_a_runtime_that_the_driver_is_too_old_for_is_passed_over(self):
        site = self.packages("nvidia/cu13/lib/libcudart.so.13", "nvidia/cuda_runtime/lib/libcudart.so.12",
                             "nvidia/nccl/lib/libnccl.so.2")
        self.program(self.bin / "nvidia-smi", "#!/bin/sh\necho '| Driver Version: 550.54.15    CUDA Version: 12.4 |'\n")
        self.assertIn(f"cuda={site}/nvidia/cuda_runtime/lib/libcudart.so.12 ", self.given())

    def test_what_the_system_finds_by_itself_is_left_to_it(self):
        self.packages("nvidia/cu13/lib/libcudart.so.13", "nvidia/nccl/lib/libnccl.so.2")
        self.program(self.bin / "ldconfig", "#!/bin/sh\nprintf '\\tlib%s (libc6,x86-64) => /lib/x\\n' nccl.so.2 cudart.so.12\n")
        self.assertEqual(self.given(), "cuda= nccl=")


if __name__ == "__main__":
    unittest.main()
