#!/usr/bin/env python3
"""Training frameworks under muster: their own scripts, of which one worker is killed in the middle, resume from their own
checkpoints, over gloo and over muster, and end with the weights that this test computes by itself.

usage: frameworks_test.py [Frameworks.test_NAME...]"""
import importlib.metadata
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "tests/integration/elastic")]
from torch_there import has_torch  # noqa: E402

PYTHON = os.environ.get("MUSTER_TEST_PYTHON") or str(ROOT / ".venv/bin/python")
BIN = pathlib.Path(os.environ.setdefault("MUSTER_BIN", str(ROOT / "build/release/bin")))


def go_on_with_torch():
    if not has_torch(PYTHON) or not list((BIN.parent / "lib").glob("libmuster_torch_*.so")):
        print("skipped: no PyTorch, or the build has no back end for it (MUSTER_TEST_PYTHON, MUSTER_TORCH)")
        sys.exit(1 if os.environ.get("CI") == "true" else 77)
    os.environ.update(OMP_NUM_THREADS="1", IN_FRAMEWORKS_TEST="1")
    os.execv(PYTHON, [PYTHON, *sys.argv])


if __name__ == "__main__" and not os.environ.get("IN_FRAMEWORKS_TEST"):
    go_on_with_torch()

import own_tmpdir  # noqa: E402, F401
import torch  # noqa: E402
from job import free_port, wait_for  # noqa: E402
from samples import BATCH, SAVE_EVERY, STEPS, Samples, loss_of, network, optimizer_of  # noqa: E402

PATIENCE = 200
BACKENDS = ("gloo", "muster")
# Asked for in step 6 by rank 1 of 2, whichever way the samples are shared: step 3 is saved, and step 6 is not.
IN_STEP_6 = 45


def every_other_sample(step, rank):
    """As DistributedSampler shares them."""
    return range(step * BATCH * 2 + rank, (step + 1) * BATCH * 2, 2)


def every_other_batch(step, rank):
    """As Accelerate shares them."""
    return range((step * 2 + rank) * BATCH, (step * 2 + rank + 1) * BATCH)


def expected(a_step, ranks, share):
    """The weights after all steps, without a framework and without ranks: gradients of the ranks are averaged."""
    samples, model = Samples(a_step), network()
    optimizer = optimizer_of(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in range(ranks):
            rows = torch.tensor(share(step, rank))
            (loss_of(model(samples.inputs[rows]), samples.targets[rows]) / ranks).backward()
        optimizer.step()
    return model.state_dict()


class Run:
    """One script over one back end, in a folder of its own."""

    def __init__(self, test, backend, halt_at=IN_STEP_6):
        self.test, self.backend = test, backend
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{backend} "))
        self.halted, self.log = self.folder / "halted", self.folder / "log"
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PET_", "MUSTER_", "SLURM_", "TORCHELASTIC_"))}
        self.environment = {**kept, "PYTHON_EXEC": PYTHON, "HOME": str(self.folder), "PYTHONPATH": str(ROOT / "tests/support"),
                            "HALT": f"{halt_at}:{self.halted}", "HF_HUB_OFFLINE": "1"}
        self.words = [BIN / "muster", "--max-restarts=1"] + (["--torch-backend=muster"] if backend == "muster" else [])
        self.processes = []

    def start(self, *command):
        with self.log.open("ab") as log:
            process = subprocess.Popen(list(map(str, command)), env=self.environment, cwd=self.folder, stdout=log,
                                       stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True)
        self.test.addCleanup(self.end, process)
        self.processes.append(process)
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def text(self):
        return self.log.read_text(errors="replace")[-6000:]

    def halted_pid(self):
        """The worker that stands still."""
        def looked():
            ended = [process.returncode for process in self.processes if process.poll() is not None]
            assert not ended, f"{self.backend}: ended with {ended} before the worker was killed\n{self.text()}"
            return self.halted.exists()
        wait_for(f"worker that stands still over {self.backend}", looked, PATIENCE)
        return int(self.halted.read_text())

    def result(self, world):
        """What the last attempt says, which began with a checkpoint."""
        for process in self.processes:
            try:
                code = process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"{self.backend}: no end within {PATIENCE} s\n{self.text()}") from None
            assert code in (0, -signal.SIGKILL), f"{self.backend}: ended with {code}\n{self.text()}"
        result = torch.load(self.folder / "result.pt")
        told = {name: result[name] for name in ("began", "backend", "world")}
        assert told == {"began": SAVE_EVERY, "backend": self.backend, "world": world}, f"{told}\n{self.text()}"
        return result


def needs(*distributions, optional=False):
    """Skips the test, with a reason, where one of these is not installed; in CI that is a failure, unless it is optional."""
    there = {distribution.metadata["Name"] for distribution in importlib.metadata.distributions()}
    missing = [name for name in distributions if name not in there]
    if missing and os.environ.get("CI") == "true" and not optional:
        return lambda test: lambda self: self.fail(f"{PYTHON} lacks {missing}, which CI requires (scripts/setup --tests)")
    return unittest.skipIf(missing, f"{PYTHON} lacks {missing}")


class Frameworks(unittest.TestCase):
    def check_a_kill(self, script, share, *arguments, before=()):
        """Both back ends beside each other: a killed worker, one restart, and the weights bit by bit."""
        runs = [Run(self, backend) for backend in BACKENDS]
        for run in runs:
            run.start(*before, *run.words, "--standalone", "--nproc-per-node=2", HERE / script, run.folder, *arguments)
        for run in runs:
            os.kill(run.halted_pid(), signal.SIGKILL)
        weights = expected(BATCH * 2, 2, share)
        for run in runs:
            self.expect_weights(run, run.result(world=2), weights, torch.equal)

    def expect_weights(self, run, result, weights, same):
        self.assertEqual(result["weights"].keys(), weights.keys())
        for name, value in weights.items():
            self.assertTrue(same(result["weights"][name], value), f"{run.backend}: {name} differs\n{run.text()}")

    @needs("lightning", "torchdata")
    def test_lightning(self):
        self.check_a_kill("lightning_train.py", every_other_sample, "ddp")

    @needs("accelerate")
    def test_accelerate(self):
        self.check_a_kill("accelerate_train.py", every_other_batch)

    @needs("accelerate", "transformers")
    def test_transformers(self):
        self.check_a_kill("transformers_train.py", every_other_batch)

    @needs("torchdata", "submitit")
    def test_torchdata_as_a_job_of_submitit(self):
        self.check_a_kill("torchdata_train.py", every_other_sample, before=(PYTHON, HERE / "submitit_job.py", "jobs"))

    def test_fsdp2_of_three_nodes_goes_on_with_two(self):
        """A launcher is killed: its node is lost, and the others load what three ranks have saved."""
        runs = [Run(self, backend, halt_at=64) for backend in BACKENDS]  # in step 6, by rank 1 of 3
        for run in runs:
            endpoint = f"localhost:{free_port()}"
            for node in range(3):
                run.start(*run.words, "--nnodes=2:3", "--nproc-per-node=1", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}",
                          f"--node-rank={node}", "--rdzv-id=fsdp", "--rdzv-conf=last_call_timeout=60", HERE / "fsdp_train.py", run.folder)
        for run in runs:
            run.halted_pid()
            run.processes[1].kill()
        weights = expected(12, 1, lambda step, _: range(step * 12, (step + 1) * 12))
        for run in runs:
            self.expect_weights(run, run.result(world=2), weights, lambda one, other: torch.allclose(one, other, rtol=0, atol=1e-6))


if __name__ == "__main__":
    unittest.main(verbosity=2)
