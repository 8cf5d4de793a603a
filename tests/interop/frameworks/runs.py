"""Runs a training script under muster over one back end, kills a worker in the middle, and looks at the weights at the end.

Imported, it starts the importing program again in the Python that has torch, which computes the expected weights."""
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


if not os.environ.get("IN_FRAMEWORKS_TEST"):
    go_on_with_torch()

import own_tmpdir  # noqa: E402, F401
import torch  # noqa: E402
from job import wait_for  # noqa: E402
from samples import BATCH, SAVE_EVERY, STEPS, Samples, loss_of, network, optimizer_of  # noqa: E402

PATIENCE = 400
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

    def of_two_ranks(self, script, *arguments):
        return [*self.words, "--standalone", "--nproc-per-node=2", HERE / script, self.folder, *arguments]

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
            assert not ended, f"{self.backend}: ended with {ended} before the worker was killed"
            return self.halted.exists()
        try:
            wait_for(f"worker that stands still over {self.backend}", looked, PATIENCE)
        except AssertionError as failure:
            raise AssertionError(f"{failure}\n{self.text()}") from None
        return int(self.halted.read_text())

    def weights(self, world):
        """Those of the second round, which began with a checkpoint."""
        for process in self.processes:
            try:
                code = process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"{self.backend}: no end within {PATIENCE} s\n{self.text()}") from None
            assert code in (0, -signal.SIGKILL), f"{self.backend}: ended with {code}\n{self.text()}"
        result = torch.load(self.folder / "result.pt")
        weights = result.pop("weights")
        last = {"began": SAVE_EVERY, "backend": self.backend, "world": world, "round": "1"}
        assert result == last, f"{result} instead of {last}\n{self.text()}"
        return weights


class Frameworks(unittest.TestCase):
    def check_a_kill(self, command, share):
        """Both back ends beside each other: a killed worker, one restart, and the weights bit by bit. `command` makes the
        words of a run."""
        runs = [Run(self, backend) for backend in BACKENDS]
        for run in runs:
            run.start(*command(run))
        for run in runs:
            os.kill(run.halted_pid(), signal.SIGKILL)
        weights = expected(BATCH * 2, 2, share)
        for run in runs:
            self.expect_weights(run, weights, torch.equal)

    def check_a_script(self, share, script, *arguments):
        self.check_a_kill(lambda run: run.of_two_ranks(script, *arguments), share)

    def expect_weights(self, run, weights, same):
        got = run.weights(world=2)
        self.assertEqual(got.keys(), weights.keys())
        for name, value in weights.items():
            self.assertTrue(same(got[name], value), f"{run.backend}: {name} differs\n{run.text()}")
