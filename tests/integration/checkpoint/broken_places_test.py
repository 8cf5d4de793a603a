#!/usr/bin/env python3
"""Places of checkpoints that fail or have changed, under a real launcher: training goes on, each failure is told, and the
last good checkpoint stays."""
import contextlib
import json
import os
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "elastic"))
from job import WORKERS, Job  # noqa: E402


@contextlib.contextmanager
def read_only(test, folder):
    """A folder over itself, which can only be read."""
    mounted = os.geteuid() == 0 and subprocess.run(["mount", "--bind", folder, folder], stderr=subprocess.DEVNULL).returncode == 0
    if not mounted:
        test.skipTest("skipped: nothing can be mounted")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


class BrokenPlaces(unittest.TestCase):
    def setUp(self):
        self.job = self.enterContext(Job())
        self.directory, self.local = self.job.directory / "ckpt", self.job.directory / "local"
        self.local.mkdir()

    def run_worker(self, way, *options, code=0, local=True, wrapper=()):
        """(stdout, stderr) of a job of two workers. The lease is how long the agent waits for a look at the directories."""
        near = ("--checkpoint-local-dir", self.local) if local else ()
        process = self.job.spawn("muster", "--standalone", "--nproc-per-node", 2, "--lease", 60, "--checkpoint-dir", self.directory, *near, *options,
                                 "--no-python", *wrapper, WORKERS / "persist_worker", way)
        self.job.expect_exit(process, code)
        self.job.expect_gone()
        return process.out.read_text(), process.err.read_text()

    def test_a_local_disk_that_can_only_be_read_costs_no_checkpoint(self):
        with read_only(self, self.local):
            said, told = self.run_worker("steps")
        self.assertIn("step 1: saved\nstep 2: saved\n", said)
        for step in (1, 2):
            self.assertIn(f"step {step} is not on the local disk: ", told)
        self.assertIn("Read-only file system", told)
        self.assertIn("loaded 2 from disk", self.run_worker("load")[0])

    def test_a_shared_directory_that_can_only_be_read_keeps_its_last_one_and_training_goes_on_from_local_disks(self):
        self.assertIn("step 2: saved", self.run_worker("steps")[0])
        with read_only(self, self.directory):
            said, told = self.run_worker("steps")
            self.assertIn("step 3: not saved\nstep 4: not saved\n", said)
            for step in (3, 4):
                self.assertIn(f"checkpoint of step {step} was not saved: ", told)
            self.assertIn("loaded 4 from a local disk", self.run_worker("load")[0])
            self.assertIn("loaded 2 from disk", self.run_worker("load", local=False)[0])
        self.assertIn("step 5: saved", self.run_worker("steps")[0])

    def test_progress_on_local_disks_alone_is_no_crash_loop(self):
        self.assertIn("step 2: saved", self.run_worker("steps")[0])
        events = self.job.directory / "events.jsonl"
        limits = ("--max-restarts", 4, "--max-stalled-restarts", 2, "--events", events)
        # Without their agents' memory, which would have each step too.
        alone = ("env", "-u", "MUSTER_AGENT_SOCKET")
        with read_only(self, self.directory):
            said, told = self.run_worker("steps-fail", *limits, code=3, wrapper=alone)
        self.assertIn("step 12: not saved", said)
        text = f"round 4 resumes from step 10 on the local disks, else from {self.directory}/step_00000002"
        self.assertEqual(told.count(text), 1)
        event, = [one for one in map(json.loads, events.read_text().splitlines()) if one["data"]["text"] == text]
        self.assertEqual((event["type"], event["data"]["checkpoint_step"]), ("muster.checkpoint.loading.v1", 10))
        with read_only(self, self.directory):
            told = self.run_worker("steps-fail", *limits, code=77, local=False, wrapper=alone)[1]
        self.assertIn("crash loop: 2 restarts in a row without a newer checkpoint (the newest is of step 2)", told)

    def test_a_directory_that_was_emptied_begins_anew(self):
        self.assertIn("step 2: saved", self.run_worker("steps")[0])
        self.assertIn("loaded 2 from ", self.run_worker("load")[0])
        shutil.rmtree(self.directory)
        said, told = self.run_worker("load")
        self.assertIn("loaded 0 from nowhere", said)
        self.assertIn("belongs to checkpoints from before the directory was emptied", told)


if __name__ == "__main__":
    unittest.main(verbosity=2)
