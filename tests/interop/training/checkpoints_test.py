"""The examples of DDP with checkpoints under muster: a worker is killed once, and the run ends with the bits of one that
was left alone; a notice is obeyed by all ranks at once."""
import collections
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

import training_test  # skips everything where there is no torch
from training_test import BIN, PYTHON

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
EXAMPLES = REPOSITORY / "worker_runtime/python/examples"
DATA = REPOSITORY / "worker_runtime/examples/data/digits.csv"
STEPS = 40
DEADLINE = 250
SAMPLES = 1797


class Checkpoints(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="muster ddp ")))
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PET_", "MUSTER_", "SLURM_"))}
        self.environment = {**kept, "PYTHON_EXEC": str(PYTHON), "TMPDIR": str(self.folder), "OMP_NUM_THREADS": "1",
                            "PYTHONPATH": f"{EXAMPLES.parent}:{REPOSITORY}/tests/support", "MUSTER_LIBRARY": os.environ["MUSTER_LIBRARY"]}

    def start(self, script, name, *arguments, ranks=2):
        command = [BIN / "muster", "--standalone", "--nproc-per-node", ranks, "--max-restarts=2", "--checkpoint-dir",
                   self.folder / name, EXAMPLES / script, "--data", DATA, "--order", self.folder / f"{name} order", *arguments]
        process = subprocess.Popen(list(map(str, command)), env=self.environment, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, start_new_session=True)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

    def finish(self, process, code=0):
        output, _ = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, code, output)
        return output

    def order(self, name, rank):
        """step -> its samples, as this rank took them last."""
        lines = (self.folder / f"{name} order.{rank}").read_text().splitlines()
        return {int(line.split()[0]): line for line in lines}

    def check_a_kill(self, script):
        runs = {"whole": self.start(script, "whole", "--steps", STEPS),
                "broken": self.start(script, "broken", "--steps", STEPS, "--die-once", self.folder / "died")}
        outputs = {name: self.finish(process) for name, process in runs.items()}
        self.assertTrue((self.folder / "died").exists())
        self.assertRegex(outputs["broken"], "continuing from .*")
        ends = {name: re.findall(r"^loss \S+ weights \w{16}$", output, re.M) for name, output in outputs.items()}
        self.assertEqual(len(ends["whole"]), 1, outputs["whole"])
        self.assertEqual(ends["broken"], ends["whole"], outputs["broken"])
        for rank in range(2):
            self.assertEqual(self.order("broken", rank), self.order("whole", rank))
            self.assertEqual(list(self.order("whole", rank)), list(range(1, STEPS + 1)))
        return outputs["broken"]

    def test_a_killed_worker_changes_no_bit_with_muster_s_checkpoints(self):
        output = self.check_a_kill("ddp_checkpoints.py")
        # A save that came while the one before was still being written was left out.
        self.assertRegex(output, r"continuing from step (5|10|15|20) of .+\n")

    def test_a_killed_worker_changes_no_bit_with_torch_save(self):
        self.assertRegex(self.check_a_kill("ddp_torch_save.py"), "continuing from step 20 of")

    def test_after_a_notice_another_world_goes_on_with_the_next_sample(self):
        first = self.start("ddp_checkpoints.py", "moved", "--steps", 100000, "--save-every", 100000)
        seen = self.folder / "moved order.1"
        training_test.wait_for("a few steps", lambda: seen.exists() and seen.read_text().count("\n") > 3, DEADLINE)
        first.send_signal(signal.SIGTERM)
        self.finish(first, 76)
        steps = max(self.order("moved", 0))
        self.assertEqual(max(self.order("moved", 1)), steps)
        last = (steps * 64 // SAMPLES + 1) * 29  # to the end of an epoch: 28 batches of 64 and one of 5
        output = self.finish(self.start("ddp_checkpoints.py", "moved", "--steps", last, ranks=1))
        self.assertRegex(output, rf"continuing from step {steps} of .*/step_{steps:08d}\n")
        taken = collections.Counter()
        for rank in range(2):
            for line in (self.folder / f"moved order.{rank}").read_text().splitlines():
                _, epoch, *samples = line.split()
                taken.update((epoch, sample) for sample in samples)
        epochs = {epoch for epoch, _ in taken}
        self.assertEqual(len(taken), SAMPLES * len(epochs))
        self.assertEqual(set(taken.values()), {1})


if __name__ == "__main__":
    unittest.main(verbosity=2)
