#!/usr/bin/env python3
"""The newest step lies in the memory of agents alone when their job ends: the next start finds it on the disk."""
import json
import os
import shutil
import signal
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "elastic"))
from job import BIN, WORKERS, Job, wait_for, without_times  # noqa: E402
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "faults"))
from fault_job import REPOSITORY, ROOT, keep_mounts_private, small_disk  # noqa: E402

KEPT = "step 20 was written from memory to "
DIGITS = REPOSITORY / "worker_runtime/examples/data/digits.csv"


def setUpModule():
    if ROOT:
        keep_mounts_private()


class Persist(unittest.TestCase):
    def setUp(self):
        self.job = self.enterContext(Job())
        self.directory = self.job.directory / "my ckpt"

    def launch(self, way, *options, nproc=2, directory=None, **extra):
        return self.job.spawn("muster", "--standalone", "--nproc-per-node", nproc,
                              "--checkpoint-dir", directory or self.directory, *options, "--no-python", WORKERS / "persist_worker", way, **extra)

    def ends(self, process, code):
        self.job.expect_exit(process, code)
        self.job.expect_gone()
        return process.err.read_text()

    def loads(self, what, nproc=2):
        process = self.launch("load", nproc=nproc)
        self.job.expect_exit(process, 0)
        self.assertIn(f"loaded {what} from disk", process.out.read_text(), self.job.story())

    def test_a_worker_that_died_between_save_and_its_writer_takes_no_step_with_it(self):
        told = self.ends(self.launch("kill-writer", "--max-restarts", 0), 128 + signal.SIGKILL)
        self.assertIn(f"{KEPT}{self.directory}/step_00000020", told)
        self.loads(20)

    def test_a_copy_in_memory_alone_outlives_the_job(self):
        told = self.ends(self.launch("exit"), 3)
        self.assertEqual(told.count(KEPT), 1, told)
        self.loads(20, nproc=3)

    def test_an_agent_that_is_told_to_stop_brings_its_copies_to_the_disk_first(self):
        process = self.launch("wait")
        wait_for("the copies", lambda: (self.job.directory / "ready").exists())
        process.send_signal(signal.SIGTERM)
        self.assertIn(KEPT, self.ends(process, 128 + signal.SIGTERM))
        self.loads(20)

    def test_a_second_stop_kills_at_once_and_still_takes_no_step_along(self):
        process = self.launch("stubborn")
        wait_for("the copies", lambda: (self.job.directory / "ready").exists())
        process.send_signal(signal.SIGTERM)
        wait_for("the first stop", lambda: "stopping this node's workers" in process.err.read_text())
        process.send_signal(signal.SIGTERM)
        self.assertIn(KEPT, self.ends(process, 128 + signal.SIGTERM))
        self.loads(20)

    def test_a_stop_is_told_on_the_channel_to_those_who_do_not_handle_its_signal(self):
        process = self.launch("notified")
        wait_for("both workers", lambda: (self.job.directory / "ready").exists())
        process.send_signal(signal.SIGTERM)
        self.ends(process, 76)

    def test_while_the_next_round_has_not_begun_the_step_comes_to_the_disk_too(self):
        self.ends(self.launch("kill-look", "--max-restarts", 1), 0)
        self.loads(20)

    def test_workers_that_save_and_leave_by_themselves_end_the_job_although_restarts_are_left(self):
        process = self.launch("notified", "--max-restarts", 5)
        wait_for("both workers", lambda: (self.job.directory / "ready").exists())
        # Others of the job's processes come and go.
        workers = [pid for pid in self.job.processes() if "/persist_worker notified" in self.job.command_of(pid)
                   and not self.job.command_of(pid).startswith(str(BIN))]
        os.kill(workers[0], signal.SIGUSR2)
        told = self.ends(process, 76)
        self.assertNotIn("round 1", told)
        self.assertIn("saved and left (exit code 76)", told)

    def test_a_local_disk_is_nearer_than_the_shared_one(self):
        local = ("--checkpoint-local-dir", self.job.directory / "local")
        self.ends(self.launch("exit", "--persist-timeout", 0, *local), 3)
        for options, place in ((local, "a local disk"), ((), "disk")):
            process = self.launch("load", *options)
            self.job.expect_exit(process, 0)
            self.assertIn(f"loaded 10 from {place}\n", process.out.read_text())

    def test_without_time_for_it_the_step_stays_in_memory(self):
        self.assertNotIn(KEPT, self.ends(self.launch("exit", "--persist-timeout", 0), 3))
        self.loads(10)

    def test_a_crash_loop_that_only_loads_leaves_the_step_on_the_disk(self):
        process = self.launch("kill-once", "--max-restarts", 9, "--max-stalled-restarts", 2)
        self.ends(process, 77)
        self.loads(20)

    def test_another_directory_than_the_launchers_travels_with_the_copy(self):
        other = self.job.directory / "other"
        events = self.job.directory / "events.jsonl"
        process = self.job.spawn("muster", "--standalone", "--nproc-per-node", 1, "--events", events, "--no-python", WORKERS / "persist_worker",
                                 "exit", other)
        self.assertIn(f"{KEPT}{other}", self.ends(process, 3))
        kept, = [one for one in map(json.loads, events.read_text().splitlines()) if KEPT in one["data"]["text"]]
        self.assertEqual((kept["type"], kept["data"]["checkpoint_step"]), ("muster.checkpoint.persisted.v1", 20))
        self.assertTrue((other / "step_00000020/manifest.json").exists())

    @unittest.skipUnless(ROOT, "a small disk needs a mount namespace")
    def test_on_a_full_disk_the_report_names_the_step_that_is_lost_and_the_one_that_is_safe(self):
        small, report = self.job.directory / "small", self.job.directory / "report.json"
        with small_disk(small, "2m"):  # Preflight's look would write to it at some moment.
            told = self.ends(self.launch("exit", "--preflight=off", "--report", report, directory=small), 3)
            self.assert_lost(told, json.loads(report.read_text()), 20, f"step 10 is safe in {small}/step_00000010")
            process = self.launch("load", "--preflight=off", directory=small)
            self.job.expect_exit(process, 0)
            self.assertIn("loaded 10 from disk", process.out.read_text())

    def assert_lost(self, told, report, step, safe):
        """The report's last line, for people and for programs."""
        last = without_times(told).splitlines()[-1]
        self.assertRegex(last, rf"^  checkpoint: step {step} is lost, because it was only in memory: .* were not written to disk: .*: "
                         "No space left on device; ")
        self.assertIn(safe, last)
        self.assertEqual(last, f"  checkpoint: {report['unsaved']}")
        self.assertTrue(report["text"].endswith(last + "\n"), report)

    def test_a_job_that_succeeds_brings_a_step_that_only_its_memory_has_to_the_disk(self):
        self.assertIn(f"{KEPT}{self.directory}/step_00000020", self.ends(self.launch("ends"), 0))
        self.loads(20)

    def test_two_agents_whose_job_succeeds_bring_their_halves_and_wait_for_the_other(self):
        daemon = self.job.daemon()
        nodes = [self.node("ends"), self.node("ends")]
        for each in nodes:
            self.job.expect_exit(each, 0)
        self.job.expect_gone(but=[daemon])
        self.assertTrue(all(f"{KEPT}{self.directory}/step_00000020" in each.err.read_text() for each in nodes), self.job.story())
        self.loads(20, nproc=3)

    @unittest.skipUnless(ROOT, "a small disk needs a mount namespace")
    def test_success_is_never_less_on_the_disk_than_in_memory(self):
        small, report = self.job.directory / "small", self.job.directory / "report.json"
        with small_disk(small, "2m"):
            told = self.ends(self.launch("ends", "--preflight=off", "--report", report, directory=small), 70)
            found = json.loads(report.read_text())
            self.assertEqual((found["outcome"], found["exit_code"]), ("unsaved", 70))
            self.assertIn("every worker exited 0, but the newest step was not written to disk", told)
            self.assert_lost(told, found, 20, f"step 10 is safe in {small}/step_00000010")

    def test_success_without_time_for_it_is_none_where_the_step_stays_in_memory(self):
        told = self.ends(self.launch("ends", "--persist-timeout", 0), 70)
        self.assertIn("--persist-timeout", told.splitlines()[-1])
        self.loads(10)

    @unittest.skipUnless(ROOT, "a small disk needs a mount namespace")
    def test_a_disk_that_is_too_full_for_a_checkpoint_is_no_reason_for_a_restart(self):
        disk, report = self.job.directory / "disk", self.job.directory / "report.json"
        with small_disk(disk, "160k"):
            process = self.job.spawn("muster", "--standalone", "--nproc-per-node", 2, "--max-restarts=1", "--checkpoint-dir", disk,
                                     "--preflight=off", "--report", report, "--no-python", BIN / "digits_trainer", "--data", DIGITS, "--epochs", 6,
                                     "--checkpoint-every", 10)
            told = self.ends(process, 1)
            found = json.loads(report.read_text())
            steps = sorted(disk.glob("step_????????"))
        self.assertNotIn("round 1", told)
        self.assertIn("could not save its checkpoint on a full disk, and a restart frees no space", told)
        self.assertEqual((found["restart_count"], found["first"]["cause"]["kind"]), (0, "disk_full"))
        self.assert_lost(told, found, 90, f"is safe in {steps[-1]}")

    def test_a_directory_that_another_job_has_taken_is_left_alone(self):
        process = self.launch("wait")
        wait_for("the copies", lambda: (self.job.directory / "ready").exists())
        # The job's rank 0 has a file that is there no more; another job makes the directory anew.
        self.directory.rename(self.job.directory / "moved")
        other = self.launch("exit", "--persist-timeout", 0, nproc=1)
        self.job.exit_code(other)
        before = sorted(path.name for path in self.directory.iterdir())
        process.send_signal(signal.SIGTERM)
        told = self.ends(process, 128 + signal.SIGTERM)
        self.assertIn("were not written to disk", told)
        self.assertIn(f"{self.directory} belongs to round 0 of job", told)
        self.assertEqual(sorted(path.name for path in self.directory.iterdir()), before)

    def node(self, way):
        return self.job.spawn("muster", "--nnodes", 2, "--nproc-per-node", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint",
                              f"127.0.0.1:{self.job.port}", "--rdzv-id", self.job.id, "--checkpoint-dir", self.directory, "--no-python",
                              WORKERS / "persist_worker", way)

    def test_two_agents_with_half_of_the_ranks_each(self):
        daemon = self.job.daemon()
        nodes = [self.node("kill-writer"), self.node("kill-writer")]
        told = [self.job.exit_code(each) and each.err.read_text() for each in nodes]
        self.job.expect_gone(but=[daemon])
        self.assertTrue(all(KEPT in each for each in told), told)
        self.assertTrue(any(f"muster: {KEPT}" in each for each in told), told)
        self.loads(20, nproc=3)

    def test_a_program_that_is_not_there_or_hangs_costs_its_step_and_a_success(self):
        alone = self.job.directory / "bin"
        alone.mkdir()
        shutil.copy(BIN / "muster", alone)
        for way, code, program, why in (("exit", 3, "", "No such file"), ("ends", 70, "", "No such file"),
                                        ("exit", 3, "exec sleep 99", "did not finish within 1 s; its file system may hang"),
                                        ("ends", 70, "exec sleep 99", "did not finish within 1 s; its file system may hang")):
            with self.subTest(f"{way}, {program or 'missing'}"):
                if program:
                    (alone / "muster-persist").write_text(f"#!/bin/sh\n{program}\n")
                    (alone / "muster-persist").chmod(0o755)
                process = subprocess.run([alone / "muster", "--standalone", "--nproc-per-node=1", "--persist-timeout=1", "--checkpoint-dir",
                                          self.directory, "--no-python", WORKERS / "persist_worker", way], env=self.job.environment(),
                                         capture_output=True, text=True, timeout=120)
                self.assertEqual(process.returncode, code, process.stderr)
                last = process.stderr.splitlines()[-1]
                self.assertRegex(last, f"step 20 is lost, because it was only in memory: .*muster-persist.*{why}")
        self.job.expect_gone()


if __name__ == "__main__":
    unittest.main(verbosity=2)
