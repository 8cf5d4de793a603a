#!/usr/bin/env python3
"""The quick start's trainer under muster, and under the real torchrun (whose store it then speaks to).

`trainer_test.py libtorch`: the same training on libtorch."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import own_tmpdir  # noqa: E402, F401

REPOSITORY = Path(__file__).resolve().parents[3]
BIN = Path(os.environ["MUSTER_BIN"])
PYTHON = Path(os.environ.get("MUSTER_TEST_PYTHON") or REPOSITORY / ".venv/bin/python")
TORCHRUN = PYTHON.parent / "torchrun"
DATA = ["--data", str(REPOSITORY / "worker_runtime/examples/data/digits.csv")]
TRAINER = [str(BIN / "digits_trainer"), *DATA]
MUSTER = [str(BIN / "muster"), "--standalone"]
LIBTORCH_TRAINER = [str(BIN / "digits_libtorch"), *DATA]
SHORT = ["--epochs", "4"]


def run(command, expect=0, limit_s=200):
    """The output of a command that ends as expected in time."""
    with tempfile.TemporaryDirectory() as scratch, subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True, env={**os.environ, "TMPDIR": scratch}) as child:
        try:
            output, _ = child.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            raise
    if child.returncode != expect:
        raise AssertionError(f"{command} ended with {child.returncode}, not {expect}:\n{output}")
    return output


def muster(workers, *arguments, restarts=0, expect=0):
    return run([*MUSTER, f"--nproc-per-node={workers}", f"--max-restarts={restarts}", *TRAINER, *SHORT,
                *arguments], expect)


def weights(output):
    found = re.findall(r"^.*weights ([0-9a-f]{16})$", output, re.M)
    assert len(found) == 1, output
    return found[0]


def curve(test, folder, workers, trainer):
    """The loss of each step of a whole training, which must end with a good model."""
    file = folder / f"losses of {workers}"
    file.unlink(missing_ok=True)  # the trainer adds to it
    run([*MUSTER, f"--nproc-per-node={workers}", *trainer, "--accuracy-min", "95", "--losses",
         str(file)], limit_s=200)
    lines = [line.split() for line in file.read_text().splitlines()]
    test.assertEqual([int(step) for step, _ in lines], list(range(1, 451)))
    return [float(loss) for _, loss in lines]


def compare_curves(test, alone, together, workers):
    for step, (one, many) in enumerate(zip(alone, together), 1):
        test.assertLessEqual(abs(many - one), 1e-5 * one, f"{workers} workers, step {step}: {many}, alone {one}")


class Trainer(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="muster trainer ")))

    def test_a_killed_worker_costs_nothing_but_time(self):
        whole = muster(2)
        broken = run([*MUSTER, "--nproc-per-node=2", "--max-restarts=1", "--checkpoint-dir", str(self.folder / "c"), *TRAINER, *SHORT,
                      "--checkpoint-every", "7", "--die-at-step", "25", "--die-once", str(self.folder / "died"),
                      "--steps-taken", str(self.folder / "steps")])
        self.assertTrue((self.folder / "died").exists())
        taken = [tuple(map(int, line.split())) for line in (self.folder / "steps").read_text().splitlines()]
        self.assertEqual([step for number, rank, step in taken if (number, rank) == (0, 1)], list(range(1, 26)))
        self.assertEqual({(number, rank) for number, rank, step in taken if step == 60}, {(1, 0), (1, 1)})
        # A copy is left out while a checkpoint is being written: those of 22 to 25 may be missing, not all since 14.
        self.assertRegex(broken, "continuing from (the agents' copy|the checkpoint) of step (1[4-9]|2[0-5])\\n")
        self.assertEqual(weights(broken), weights(whole))

    def test_a_stop_signal_is_a_notice_after_which_all_is_saved_and_nothing_repeated(self):
        command = [*MUSTER, "--nproc-per-node=2", "--checkpoint-dir", str(self.folder / "c"), *TRAINER]
        first = subprocess.Popen([*command, "--epochs", "1000000"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                 start_new_session=True)
        try:
            said = ""
            while "epoch 3:" not in said:
                line = first.stdout.readline()
                self.assertTrue(line, said)
                said += line
            first.send_signal(signal.SIGTERM)
            said += first.communicate(timeout=200)[0]
        finally:
            if first.poll() is None:
                os.killpg(first.pid, signal.SIGKILL)
        self.assertEqual(first.returncode, 76, said)
        self.assertIn("preemption notice: state is saved, exiting", said)
        self.assertNotIn("weights", said)
        # The signal came in the last of these epochs, or in the next one.
        epochs = ["--epochs", str(max(map(int, re.findall(r"epoch (\d+):", said))) + 2)]
        second = run([*command, *epochs])
        self.assertRegex(second, r"continuing from the checkpoint of step \d+\n")
        self.assertEqual(weights(second), weights(muster(2, *epochs)))

    def test_restarts_that_bring_no_checkpoint_end_the_job(self):
        output = run([*MUSTER, "--nproc-per-node=1", "--max-restarts=9", "--checkpoint-dir", str(self.folder / "c"),
                      "--max-stalled-restarts=2", "/bin/false"], expect=77)
        self.assertIn("crash loop: 2 restarts in a row without a newer checkpoint (there is none)", output)
        self.assertEqual(output.count("resumes from the start: no checkpoint in"), 2)

    def test_without_a_restart_left_the_job_fails_with_the_signal(self):
        output = muster(2, "--die-at-step", "25", "--die-once", str(self.folder / "died"), expect=128 + signal.SIGKILL)
        self.assertNotIn("weights", output)

    def losses(self, workers):
        return curve(self, self.folder, workers, TRAINER)

    def test_any_number_of_workers_walks_the_curve_of_one(self):
        alone = self.losses(1)
        self.assertLess(alone[-1], 0.1 * alone[0])
        for workers in (2, 3, 4, 5):  # 5 does not divide the batch of 96
            compare_curves(self, alone, self.losses(workers), workers)

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


class LibtorchTrainer(unittest.TestCase):
    def test_any_number_of_workers_walks_the_curve_of_one(self):
        with tempfile.TemporaryDirectory(prefix="muster trainer ") as folder:
            alone = curve(self, Path(folder), 1, LIBTORCH_TRAINER)
            for workers in (2, 3, 4):
                compare_curves(self, alone, curve(self, Path(folder), workers, LIBTORCH_TRAINER), workers)


if __name__ == "__main__":
    chosen = LibtorchTrainer if sys.argv[1:] == ["libtorch"] else Trainer
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(chosen)
    sys.exit(not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful())
