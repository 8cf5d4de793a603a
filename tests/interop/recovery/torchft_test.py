"""torchft under --on-worker-failure=keep: a worker that is killed comes back alone, takes the weights over from the
others, and all end with the same ones."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SUPPORT = pathlib.Path(__file__).resolve().parents[2] / "support"
sys.path.insert(0, str(SUPPORT))
import own_processes  # noqa: E402, F401

BIN = pathlib.Path(os.environ["MUSTER_BIN"])
PYTHON = pathlib.Path(os.environ["MUSTER_TEST_PYTHON"])
DEADLINE = 240

# Serves until its stdin is closed. A worker that stands still for a moment is not lost.
LIGHTHOUSE = """
import sys
from torchft.coordination import LighthouseServer
server = LighthouseServer(bind="127.0.0.1:0", min_replicas=2, join_timeout_ms=200, heartbeat_timeout_ms=6000)
print(server.address(), flush=True)
sys.stdin.read()
server.shutdown()
"""

if subprocess.run([PYTHON, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('torchft') is None)"]).returncode != 0:
    if os.environ.get("CI") == "true":
        sys.exit(f"torchft: {PYTHON} has no torchft, which CI requires (scripts/setup --tests installs it)")
    print(f"torchft: skipped, {PYTHON} has no torchft (scripts/setup --tests installs it)")
    sys.exit(77)


class Torchft(unittest.TestCase):
    def test_a_killed_replica_comes_back_alone(self):
        with tempfile.TemporaryDirectory(prefix="muster torchft ") as folder:
            environment = {k: v for k, v in os.environ.items() if not k.startswith(("PET_", "MUSTER_", "SLURM_"))}
            environment |= {"PYTHON_EXEC": str(PYTHON), "TMPDIR": folder, "HOME": folder, "OMP_NUM_THREADS": "1",
                            "PYTHONPATH": str(SUPPORT), "RUST_LOG": "warn"}
            lighthouse = subprocess.Popen([PYTHON, "-c", LIGHTHOUSE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                          stderr=subprocess.DEVNULL, env=environment)
            try:
                environment["LIGHTHOUSE"] = lighthouse.stdout.readline().strip()
                run = subprocess.run([BIN / "muster", "--nproc-per-node=3", "--on-worker-failure=keep",
                                      pathlib.Path(__file__).with_name("torchft_train.py"), folder],
                                     env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                     timeout=DEADLINE)
            finally:
                lighthouse.stdin.close()
                lighthouse.wait(timeout=60)
                lighthouse.stdout.close()
            self.assertEqual(run.returncode, 0, run.stdout[-4000:])
            self.assertIn("starting it again (1 of 3 times in this round)", run.stdout[-4000:])
            ends = [json.loads((pathlib.Path(folder) / f"{rank}.json").read_text()) for rank in range(3)]
            self.assertEqual([end["again"] for end in ends], [0, 1, 0])
            self.assertEqual([end["round"] for end in ends], [0, 0, 0])
            self.assertGreater(ends[0]["step"], 8)
            self.assertEqual(len({end["step"] for end in ends}), 1, ends)
            self.assertEqual(ends[0]["weights"], ends[1]["weights"])
            self.assertEqual(ends[0]["weights"], ends[2]["weights"])


if __name__ == "__main__":
    unittest.main()
