"""Real PyTorch under real launchers: DDP over gloo under muster, and a real torchrun on musterd."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BIN = pathlib.Path(os.environ["MUSTER_BIN"])
PYTHON = pathlib.Path(os.environ["MUSTER_TEST_PYTHON"])
SCRIPT = pathlib.Path(__file__).with_name("ddp_train.py")
DEADLINE = 180
SUPPORT = pathlib.Path(__file__).resolve().parents[2] / "support"

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "integration" / "elastic"))
from job import free_port, wait_for  # noqa: E402
from torch_there import has_torch  # noqa: E402

if not has_torch(PYTHON):
    if os.environ.get("CI") == "true":
        sys.exit(f"training: {PYTHON} has no torch, which CI requires (scripts/setup --tests installs it)")
    print(f"training: skipped, {PYTHON} has no torch (scripts/setup --tests installs it)")
    sys.exit(77)


class Training(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory(prefix="muster training ")
        self.result = pathlib.Path(self.directory.name) / "result.json"
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("PET_", "MUSTER_", "SLURM_"))}
        self.environment |= {"PYTHON_EXEC": str(PYTHON), "TMPDIR": self.directory.name, "OMP_NUM_THREADS": "1",
                             "PYTHONPATH": str(SUPPORT)}
        self.running = []

    def tearDown(self):
        for process in self.running:
            if process.poll() is None:
                process.kill()
            process.communicate()
        self.directory.cleanup()

    def start(self, *command):
        process = subprocess.Popen(list(map(str, command)), env=self.environment, cwd=self.directory.name,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.running.append(process)
        return process

    def finish(self, *processes, world):
        for process in processes:
            output, _ = process.communicate(timeout=DEADLINE)
            self.assertEqual(process.returncode, 0, output)
        result = json.loads(self.result.read_text())
        self.assertEqual(result["world"], world)
        self.assertLess(result["last"], 0.05 * result["first"])  # it has learned

    # A rank takes more than two core-seconds, most of them for imports: the worlds are no larger than what is asked for.
    def test_ddp_on_one_node(self):
        self.finish(self.start(BIN / "muster", "--standalone", "--nproc-per-node", 2, SCRIPT, self.result), world=2)

    def test_ddp_on_two_nodes(self):
        for backend, workers in (("c10d", 2), ("static", 1)):
            with self.subTest(backend=backend):
                port = free_port()
                nodes = []
                for rank in range(2):
                    where = (["--rdzv-endpoint", f"localhost:{port}"] if backend == "c10d" else
                             ["--master-addr", "localhost", "--master-port", port])
                    nodes.append(self.start(BIN / "muster", "--nnodes", 2, "--nproc-per-node", workers, "--rdzv-backend",
                                            backend, "--node-rank", rank, *where, SCRIPT, self.result))
                self.finish(*nodes, world=2 * workers)

    def test_ddp_with_a_store_that_worker_rank_0_binds(self):
        self.environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        self.finish(self.start(BIN / "muster", "--standalone", "--nproc-per-node", 2, SCRIPT, self.result), world=2)

    def test_a_real_torchrun_meets_at_musterd(self):
        port = free_port()
        daemon = self.start(BIN / "musterd", "--bind", "127.0.0.1", "--port", port)
        wait_for("listening musterd", lambda: f":{port}" in daemon.stdout.readline())
        nodes = [self.start(PYTHON, "-m", "torch.distributed.run", "--nnodes", 2, "--nproc-per-node", 1,
                            "--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{port}", "--rdzv-conf", "is_host=0",
                            "--rdzv-id", "interop", "--local-addr", "localhost", SCRIPT, self.result) for _ in range(2)]
        self.finish(*nodes, world=2)
        self.assertIsNone(daemon.poll())


if __name__ == "__main__":
    unittest.main(verbosity=2)
