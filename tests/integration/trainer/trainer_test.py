#!/usr/bin/env python3
"""The quick start's trainer under muster, and under the real torchrun (whose store it then speaks to)."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
BIN = Path(os.environ["MUSTER_BIN"])
PYTHON = Path(os.environ.get("MUSTER_TEST_PYTHON") or REPOSITORY / ".venv/bin/python")
TORCHRUN = PYTHON.parent / "torchrun"
TRAINER = [str(BIN / "digits_trainer"), "--data", str(REPOSITORY / "worker_runtime/examples/data/digits.csv")]
SHORT = ["--epochs", "4"]


def run(command, expect=0):
    """The output of a command that ends as expected within a minute."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          start_new_session=True) as child:
        try:
            output, _ = child.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            raise
    if child.returncode != expect:
        raise AssertionError(f"{command} ended with {child.returncode}, not {expect}:\n{output}")
    return output


def muster(workers, *arguments, restarts=0, expect=0):
    return run([str(BIN / "muster"), "--standalone", f"--nproc-per-node={workers}", f"--max-restarts={restarts}", *TRAINER,
                *(arguments if "--epochs" in arguments else [*SHORT, *arguments])], expect)


def weights(output):
    found = re.findall(r"^.*weights ([0-9a-f]{16})$", output, re.M)
    assert len(found) == 1, output
    return found[0]


class Trainer(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="muster trainer ")))

    def test_a_killed_worker_costs_nothing_but_time(self):
        whole = muster(2)
        broken = muster(2, "--checkpoint", str(self.folder / "model"), "--checkpoint-every", "7", "--die-at-step", "25",
                        "--die-once", str(self.folder / "died"), restarts=1)
        self.assertTrue((self.folder / "died").exists())
        self.assertIn("going on from the checkpoint of step 21", broken)
        self.assertEqual(weights(broken), weights(whole))

    def test_without_a_restart_left_the_job_fails_with_the_signal(self):
        output = muster(2, "--die-at-step", "25", "--die-once", str(self.folder / "died"), expect=128 + signal.SIGKILL)
        self.assertNotIn("weights", output)

    def losses(self, workers):
        """The loss of each step of a whole training, which must end with a good model."""
        file = self.folder / f"losses of {workers}"
        muster(workers, "--epochs", "30", "--accuracy-min", "95", "--losses", str(file))
        lines = [line.split() for line in file.read_text().splitlines()]
        self.assertEqual([int(step) for step, _ in lines], list(range(1, 451)))
        return [float(loss) for _, loss in lines]

    def test_any_number_of_workers_walks_the_curve_of_one(self):
        alone = self.losses(1)
        self.assertLess(alone[-1], 0.1 * alone[0])
        for workers in (2, 3, 4, 5):  # 5 does not divide the batch of 96
            for step, (one, many) in enumerate(zip(alone, self.losses(workers)), 1):
                self.assertLessEqual(abs(many - one), 1e-5 * one, f"{workers} workers, step {step}: {many}, alone {one}")

    def test_the_curve_is_the_same_over_tcp(self):
        self.assertEqual(self.losses(2), self.over_tcp(2))

    def over_tcp(self, workers):
        os.environ["MUSTER_TRANSPORT"] = "tcp"
        try:
            return self.losses(workers)
        finally:
            del os.environ["MUSTER_TRANSPORT"]

    def test_a_model_that_is_not_good_enough_fails_the_job(self):
        self.assertIn("below --accuracy-min", muster(2, "--accuracy-min", "99.9", expect=1))

    def test_torchrun_gives_the_same_weights(self):
        if not TORCHRUN.exists():
            if os.environ.get("CI") == "true":
                self.fail(f"{TORCHRUN} is not there; run scripts/setup --tests")
            self.skipTest(f"no torchrun at {TORCHRUN}; run scripts/setup --tests")
        real = run([str(TORCHRUN), "--standalone", "--nproc-per-node=2", "--no-python", *TRAINER, *SHORT])
        self.assertEqual(weights(real), weights(muster(2)))


if __name__ == "__main__":
    unittest.main(verbosity=2)
