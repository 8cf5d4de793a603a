"""muster --torch-steps: the steps of plain PyTorch scripts, counted by their optimizer."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import training_test
from job import Job, wait_for
from status_test import status

SCRIPT = pathlib.Path(__file__).with_name("resumed_train.py")
STEPS_AFTER_CHECKPOINT = 3
PACKAGE = pathlib.Path(__file__).resolve().parents[3] / "worker_runtime/python"
# With the hook that `import torch` has made, and what it reports.
CASES = r"""
import copy, gc, os
import torch, muster
from muster.torch import steps

said = []
steps.call_void = lambda name, step: said.append(step)

def make(kind):
    return kind([torch.nn.Parameter(torch.zeros(2))], lr=0.1)

def told(optimizer, count=1):
    for _ in range(count):
        optimizer.param_groups[0]["params"][0].grad = torch.ones(2)
        optimizer.step()
    now = list(said)
    said.clear()
    return now

def expect(found, wanted):
    assert found == wanted, (found, wanted)

first, second, plain = make(torch.optim.Adam), make(torch.optim.Adam), make(torch.optim.SGD)
first.param_groups[0]["lr"] = 0.0
expect(told(first), [])  # as the distributed checkpoints make a state
first.param_groups[0]["lr"] = 0.1
first.state.clear()
expect(told(first, 2), [1, 2])
expect(told(second, 5), [])
saved = copy.deepcopy(first.state_dict())
expect(told(first, 3), [3, 4, 5])
first.load_state_dict(saved)
expect(told(first), [3])
child = os.fork()
if child == 0:
    os._exit(len(told(first)))
expect(os.waitpid(child, 0)[1], 0)
expect(told(first), [4])
del first
gc.collect()
expect(told(second), [5])
third = make(torch.optim.Adam)
expect(told(third, 100), [6])  # somebody keeps the second one, which steps no more
expect(told(second), [])
expect(told(third), [7])
steps._section.round_count += 1  # as muster.recoverable enters a round in place
expect(told(second), [8])
steps._section.round_count += 1
many = [make(torch.optim.Adam) for _ in range(150)]  # one for each parameter, as in the backward pass
for turn in range(1, 4):
    expect([step for one in many for step in told(one)], [turn])
frozen, trained = (torch.nn.Parameter(torch.zeros(2)) for _ in range(2))
both = torch.optim.Adam([frozen, trained], lr=0.1)
frozen.grad = torch.ones(2)
for _ in range(3):
    trained.grad = torch.ones(2)
    both.step()
    frozen.grad = None
steps._section.round_count += 1
expect(said, [])
both.step()
expect(said, [4])
said.clear()

reporter = steps._StepReporter()
reporter.after_step(plain)
reporter.after_step(plain)
expect(said, [1 - 2**63, 2 - 2**63])
said.clear()
muster.progress(7)
expect(told(second), [])
"""
BROKEN = r"""
import torch
plain = torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.1)
for _ in range(3):
    plain.step()
print("trained")
"""


class TorchSteps(unittest.TestCase):
    def start(self, job, kind, *options, **extra):
        job.daemon()
        return job.spawn("muster", "--nnodes", 1, "--nproc-per-node", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint",
                         f"127.0.0.1:{job.port}", "--rdzv-id", job.id, "--max-restarts", 1, "--lease", 10, *options, SCRIPT,
                         job.directory, kind, PYTHON_EXEC=str(training_test.PYTHON), OMP_NUM_THREADS="1", **extra)

    def page(self, job):
        self.assertIsNone(job.launchers[-1].poll(), "the launcher has ended")
        jobs = json.loads(status(job, job.id, "--json").stdout or '{"jobs": [{}]}')["jobs"]
        return jobs[0] if jobs else {}

    def done(self, job):
        """The script's own count."""
        try:
            return int((job.directory / "step").read_text())
        except FileNotFoundError:
            return 0

    def resumed(self, job, *options, kind):
        """Steps until killed, in a round that resumes, and the page of it."""
        launcher = self.start(job, kind, "--torch-steps", *options)
        first = wait_for("steps", lambda: (page := self.page(job)).get("step", 0) > 20 and page, 120)
        self.assertLessEqual(first["step"], self.done(job) + 1)
        job.touch("fail")
        page = wait_for("steps of the next round", lambda: (page := self.page(job)).get("round") == 1 and "step" in page and page, 120)
        self.assertLessEqual(page["step"], self.done(job) + 1)
        job.finish()
        job.expect_exit(launcher, 0)
        return page, launcher

    def goes_on(self, *options):
        """False: a standby process was late."""
        with Job() as job:
            page, launcher = self.resumed(job, *options, kind="adam")
            self.assertEqual(page["goodput"]["lost_steps"], STEPS_AFTER_CHECKPOINT, page)
            self.assertGreater(page["step"], 20)
            self.assertGreater(page["goodput"]["stepping"], 0)
            return "starts normally" not in launcher.err.read_text().partition("round 0 ended")[0]

    def test_the_numbers_go_on_with_those_of_the_optimizers_checkpoint(self):
        self.assertTrue(self.goes_on())
        warm = ("--warm-workers", "2", "--warm-join")
        self.assertTrue(any(self.goes_on(*warm) for _ in range(3)), "no standby process was ready in time")

    def test_an_optimizer_that_counts_no_steps_has_no_lost_work(self):
        with Job() as job:
            page, _ = self.resumed(job, kind="sgd")
            self.assertEqual(page["goodput"]["lost_steps"], 0, page)

    def test_without_the_option_there_are_no_steps(self):
        with Job() as job:
            launcher = self.start(job, "adam")
            wait_for("steps for longer than agents take to look", lambda: self.done(job) > 150, 120)
            self.assertNotIn("step", self.page(job))
            job.finish()
            job.expect_exit(launcher, 0)

    def run_here(self, script, **extra):
        with tempfile.TemporaryDirectory() as folder:  # PyTorch leaves its caches in it
            return subprocess.run([training_test.PYTHON, "-c", script], capture_output=True, text=True, timeout=120,
                                  env={**os.environ, "TMPDIR": folder, "PYTHONPATH": str(PACKAGE), "MUSTER_TORCH_STEPS": "1", **extra})

    def test_the_first_optimizer_counts_and_a_checkpoint_sets_its_number(self):
        ran = self.run_here(CASES)
        self.assertEqual(ran.returncode, 0, ran.stderr)

    def test_a_script_that_has_closed_stderr_trains(self):
        ran = self.run_here("import os\nos.close(2)\n" + BROKEN, MUSTER_LIBRARY="/nowhere/libmuster.so.1")
        self.assertEqual((ran.returncode, ran.stdout), (0, "trained\n"))

    def test_without_the_library_a_line_says_so_and_the_script_trains(self):
        ran = self.run_here(BROKEN, MUSTER_LIBRARY="/nowhere/libmuster.so.1")
        self.assertEqual((ran.returncode, ran.stdout), (0, "trained\n"), ran.stderr)
        self.assertEqual(ran.stderr.count("muster: no steps are reported: "), 1, ran.stderr)


if __name__ == "__main__":
    unittest.main()
