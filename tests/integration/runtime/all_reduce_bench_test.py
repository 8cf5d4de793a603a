"""What scripts/bench/all_reduce says to a name that it does not know, and where a peer's library is missing."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import own_processes  # noqa: E402, F401

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "scripts/bench/all_reduce"
# A compiler that lacks every header of others.
NO_HEADER = """#!/bin/sh
echo "rank.cpp:1:10: fatal error: peer/peer.h: No such file or directory" >&2
exit 1
"""


def bench(*words, path=os.environ["PATH"]):
    return subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True, timeout=100,
                          env={**os.environ, "PATH": path})


class AllReduceBench(unittest.TestCase):
    def test_an_unknown_method_is_refused_with_those_that_there_are(self):
        refused = bench("--methods", "muster shm,muster,gloo")
        self.assertEqual(refused.returncode, 2, refused.stdout)
        self.assertIn("unknown: 'muster', 'gloo'; there are 'roofline', 'muster shm', ", refused.stderr)

    def test_a_missing_library_is_named_with_its_package(self):
        with tempfile.TemporaryDirectory() as folder:
            for compiler in ("g++", "mpicxx"):
                (pathlib.Path(folder) / compiler).write_text(NO_HEADER)
                (pathlib.Path(folder) / compiler).chmod(0o755)
            listed = bench("--list", "--methods", "gloo tcp, open mpi", path=f"{folder}:{os.environ['PATH']}")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        for method, packages in (("gloo tcp", r"g\+\+ libgloo-dev"), ("open mpi", "libopenmpi-dev openmpi-bin")):
            self.assertRegex(listed.stdout, rf"{method} +left out: no peer/peer.h: install {packages} "
                                            r"\(scripts/setup --benchmarks\)\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
