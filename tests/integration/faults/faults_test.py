"""The table of faults: what each does to a job of two nodes, and what the report of every node says of it.

Each row runs with the C++ trainer (two workers a node) and with a plain PyTorch DDP script on gloo (one worker a node, two
where a majority tells who is wrong). The fault is always the last rank's, on the second node. In CI nothing may be missing."""
import json
import os
import re
import unittest

from fault_job import BIN, CI, HAS_TORCH, HOSTS, PYTHON, REPOSITORY, ROOT, WORKERS, FaultJob, LinkedJob, MemoryGroup
from fault_job import keep_mounts_private, small_disk, wait_for

DDP = REPOSITORY / "tests/worker_programs/ddp_faults.py"
DIGITS = REPOSITORY / "worker_runtime/examples/data/digits.csv"
# Torch's flight recorder is enabled by name, so that it is asked.
RECORDER = {"TORCH_FR_BUFFER_SIZE": "2000"}


class Faults(unittest.TestCase):
    """One method for a row; `check` has what all of them share."""

    def run_fault(self, kind, trainer, prelude="", extra=("--epochs", "200"), disk=None, launcher=(), step=3, variables=(), ddp_nproc=1):
        with FaultJob() as job, small_disk(job.directory / "disk", disk):
            job.variables.update(variables)
            if trainer == "cpp":
                rank, nproc = 3, 2
                trainer_and_fault = [WORKERS / "faulty_trainer", f"{kind}:{rank}:{step}"] if kind else [BIN / "digits_trainer"]
                program = ["--no-python", *trainer_and_fault, "--data", DIGITS, *extra]
            else:
                rank, nproc = 2 * ddp_nproc - 1, ddp_nproc
                program = ["--no-python", PYTHON, DDP, kind, rank, step, "disk"]
            reports = job.both([*launcher, *program], prelude, nproc)
            story = job.story()
        for report in reports:
            self.assertEqual(report["outcome"], "failed", story)
        # The verdict is the same on every node; only who reads it differs.
        for field in ("first", "groups", "why", "whereabouts", "suspect", "other_failure_count", "stopped_count"):
            self.assertEqual(reports[0].get(field), reports[1].get(field), story)
        if ROOT:
            self.assertEqual([report["host"] for report in reports], list(HOSTS))
        return reports[0], rank, story

    def need_torch_for(self, trainer):
        if trainer == "ddp" and not HAS_TORCH:
            self.skipTest("no PyTorch")

    def may_be_a_victim(self, report, rank):
        """Where ranks differ, all fail with one error at one time. The odd one may be stopped before its own end because another one
        has failed (FAILURES.md, "Known limit"); the report then shows a victim, whose message names it."""
        return report["first"]["rank"] != rank and report["stopped_count"] > 0

    def check(self, kind, cause, trainer, end=None, says="", failure_kind=None, **options):
        report, rank, story = self.run_fault(kind, trainer, **options)
        first = report["first"]
        if cause != "collective_mismatch" or not self.may_be_a_victim(report, rank):
            self.assertEqual(first["rank"], rank, story)
            self.assertEqual(first["group_rank"], 1, story)
            if ROOT:
                self.assertEqual(first["host"], HOSTS[1], story)
        self.assertIn(first["cause"]["kind"], cause if isinstance(cause, tuple) else (cause,), story)
        if end:
            self.assertIn(end, first["end"]["text"], story)
        self.assertRegex(report["text"], re.compile(says, re.S), story)
        if failure_kind:
            self.assertEqual(first["kind"], failure_kind, story)
        return report

    def each(self, kind, cause, trainers=("cpp", "ddp"), **options):
        for trainer in trainers:
            with self.subTest(trainer=trainer):
                self.need_torch_for(trainer)
                own = {name: value[trainer] if isinstance(value, dict) else value for name, value in options.items()}
                own_kind, own_cause = (value[trainer] if isinstance(value, dict) else value for value in (kind, cause))
                self.check(own_kind, own_cause, trainer, **own)

    def test_crash(self):
        self.each("crash", "unknown", end={"cpp": "SIGABRT", "ddp": "exit code 1"}, says="a rehearsed crash",
                  failure_kind={"cpp": "killed", "ddp": "worker_error"})

    @unittest.skipUnless(ROOT, "a memory limit needs root")
    def test_out_of_memory(self):
        for trainer in ("cpp", "ddp"):
            group = MemoryGroup(f"muster-faults-{os.getpid()}")
            try:
                with self.subTest(trainer=trainer):
                    self.need_torch_for(trainer)
                    if group.path is None:
                        (self.fail if CI else self.skipTest)("no memory control group can be made here")
                    enter = f"echo $$ > {group.path}/cgroup.procs"
                    self.check("memory", "out_of_memory", trainer, prelude=enter, end="SIGKILL", failure_kind="killed",
                               says=r"memory ran out.*the limit is 400 MiB .*, peak usage (400|39\d) MiB: raise it")
            finally:
                group.close()

    @unittest.skipUnless(ROOT, "the prelude needs namespaces")
    def test_refused_memory(self):
        # Of the C++ trainer alone: torch maps more than any limit that is soon reached.
        self.each("memory", "allocation_failed", ("cpp",), prelude="ulimit -v 1000000", end="SIGABRT",
                  says="an allocation failed.*ulimit -v")

    @unittest.skipUnless(ROOT, "a small /dev/shm needs a mount namespace")
    def test_full_shared_memory(self):
        self.each("bus", "shared_memory_full", prelude="mount -t tmpfs -o size=16m shm /dev/shm", end="SIGBUS",
                  says="/dev/shm of 16 MiB is full", failure_kind="killed")

    def test_segmentation_fault(self):
        # Python's fault handler ends it a second time by itself, of which the kernel's log says nothing.
        self.each("segment", "memory_fault", end="SIGSEGV", says="an invalid memory access|the location is unknown",
                  failure_kind="killed")

    def test_missing_module_or_library(self):
        self.each({"cpp": "library", "ddp": "import"}, {"cpp": "missing_library", "ddp": "import_error"},
                  end={"cpp": "exit code 127", "ddp": "exit code 1"},
                  says={"cpp": "librehearsed.so.1 was not found", "ddp": "No module named 'a_module_that_is_not_installed'"})

    def test_missing_gpu(self):
        self.each("gpu", "missing_gpu", ("ddp",), says="found no GPU")
        # The C++ trainer is asked to use GPUs, and CUDA is not installed: each rank says so of itself.
        with FaultJob() as job:
            program = [BIN / "digits_trainer", "--data", DIGITS, "--epochs", "200"]
            asked = ["--no-python", "env", "MUSTER_TRANSPORT=nccl", "MUSTER_CUDA_LIBRARY=/no/libcudart.so.12", *program]
            nodes = [job.launch(0, asked, nproc=1)]
            wait_for("the host's daemon", job.answers)
            nodes.append(job.launch(1, asked, nproc=1))
            for node in nodes:
                job.exit_code(node, 240)
            for report in (json.loads(report.read_text()) for report in job.reports):
                self.assertEqual(report["first"]["cause"]["kind"], "missing_gpu", job.story())
                self.assertIn("found no GPU", report["text"], job.story())

    @unittest.skipUnless(ROOT, "a small disk needs a mount namespace")
    def test_full_disk(self):
        self.each("disk", "disk_full", disk="64k", extra=("--checkpoint-dir", "disk", "--epochs", "200"), end="exit code 1",
                  says="a disk or a quota is full", failure_kind="worker_error")

    @unittest.skipUnless(ROOT, "a small disk needs a mount namespace")
    def test_disk_full_of_checkpoints(self):
        # All ranks share the disk and fail together, in whatever order: whoever is told of, its words name one that found it full.
        report, _, story = self.run_fault("", "cpp", disk="32k", extra=("--checkpoint-dir", "disk", "--epochs", "2"))
        first = report["first"]
        named = re.search(r"not saved: rank (\d): write disk/\S+: No space left on device", first["stderr_tail"])
        self.assertTrue(named, story)
        self.assertEqual(first["cause"]["kind"], "disk_full", story)
        # Its own trouble, or it says whose it was.
        self.assertEqual(first["kind"], "worker_error" if int(named[1]) == first["rank"] else "communication_error", story)
        self.assertEqual(first["group_rank"], first["rank"] // 2, story)
        self.assertEqual(first["host"], HOSTS[first["rank"] // 2], story)

    def test_swapped_collective(self):
        self.each("swap", "collective_mismatch", ("cpp",), says=r"called different operations.*rank 3 \(pid \d+ on "
                  r"\S+\) runs barrier")

    def test_size_mismatch(self):
        self.each("size", "collective_mismatch", ("cpp",), says=r"called different operations.*rank 3 \(pid \d+ on "
                  r"\S+\) runs all_reduce sum f32 x 7")

    def test_of_two_ranks_that_differ_both_are_named(self):
        # Nobody can tell which of them is right: the second one differs from the first, and that one's call stands beside.
        with FaultJob() as job:
            reports = job.both(["--no-python", WORKERS / "faulty_trainer", "size:1:3", "--data", DIGITS, "--epochs", "200"],
                               nproc=1)
            for report in reports:
                self.assertEqual(report["first"], reports[0]["first"], job.story())
                first = report["first"]
                if self.may_be_a_victim(report, 1):
                    self.assertEqual(first["kind"], "communication_error", job.story())
                else:
                    self.assertEqual([first["rank"], first["group_rank"]], [1, 1], job.story())
                self.assertEqual(report["first"]["cause"]["kind"], "collective_mismatch", job.story())
                self.assertRegex(report["text"], r"rank 0 \(pid \d+ on \S+\) runs all_reduce avg f32 x \d+.*, rank 1 \(pid \d+ on "
                                 r"\S+\) runs all_reduce sum f32 x 7")

    def test_stopped_rank(self):
        self.each("stop", "hung", ("cpp",), launcher=("--hang-timeout", "1"), step=30, end="SIGKILL", failure_kind="killed",
                  says=r"it has done nothing for .*stopped by a signal.*missing from all_reduce \d+ of world, in which rank.*; it was at ")

    def test_a_slow_rank_is_not_taken_for_hung(self):
        programs = {"cpp": (2, [WORKERS / "faulty_trainer", "slow:3:130", "--data", DIGITS, "--epochs", "3"]),
                    "ddp": (1, [PYTHON, DDP, "slow", 1, 180])}
        for trainer, (nproc, program) in programs.items():
            with self.subTest(trainer=trainer), FaultJob() as job:
                self.need_torch_for(trainer)
                for report in job.both(["--hang-timeout", "4", "--no-python", *program], nproc=nproc):
                    self.assertEqual(report["outcome"], "succeeded", job.story())

    @unittest.skipUnless(ROOT, "a network of its own needs root")
    def test_dropped_link(self):
        # The node that has the daemon says who was lost; the other one, that it has lost the daemon. No word passes between.
        programs = {"cpp": ["--no-python", BIN / "digits_trainer", "--data", DIGITS, "--epochs", "100000"],
                    "ddp": ["--no-python", PYTHON, DDP, "slow", 0, 1]}
        for trainer, program in programs.items():
            with self.subTest(trainer=trainer), LinkedJob() as job:
                self.need_torch_for(trainer)
                job.endpoint = f"{job.ADDRESSES[0]}:{job.port}"
                nodes = [job.launch(index, ["--lease", "5", "--rdzv-lost-timeout", "7", "--local-addr", job.ADDRESSES[index],
                                            "--rdzv-conf", f"join_timeout=10,is_host={1 - index}", "--log-level", "info",
                                            "--shutdown-timeout", "1", *program], nproc=1) for index in range(2)]
                wait_for("both workers", lambda: all("round 0" in node.err.read_text() for node in nodes))
                job.drop()
                for node in nodes:
                    job.expect_exit(node, 75)
                reports = [json.loads(report.read_text()) for report in job.reports]
                self.assertEqual([report["host"] for report in reports], list(HOSTS))
                self.assertEqual([report["outcome"] for report in reports], ["no_rendezvous"] * 2)
                self.assertRegex(reports[0]["why"], "1 of 2 nodes joined .*; waiting for 1 more node")
                self.assertRegex(reports[0]["last_end"], rf"^round 0 ended: {HOSTS[1]} \(pid \d+\) was lost: no message for .*; it had rank 1$")
                self.assertRegex(reports[1]["why"], f"{job.endpoint} did not answer")
                self.assertRegex(reports[1]["last_end"], r"^rank 1: killing the workers at once: no answer from the rendezvous for ")
                for report in reports:
                    self.assertIn(f"  before: {report['last_end']}\n", report["text"])

    def check_suspect(self, report, rank, story):
        """What is right where the first failure is a victim's, which only gave up waiting: whom the report says to look at."""
        self.assertEqual(report["first"]["kind"], "communication_error", story)
        suspect = report["suspect"]
        self.assertEqual([suspect["rank"], suspect["count"]], [rank, 1], story)
        if ROOT:
            self.assertEqual(suspect["host"], HOSTS[1], story)
            self.assertIn(f"look first at rank {rank} on {HOSTS[1]} (pid {suspect['pid']}), {suspect['why']}\n", report["text"])
        return suspect

    @unittest.skipUnless(HAS_TORCH, "no PyTorch")
    def test_a_stopped_rank_of_an_unmodified_script_is_named_on_every_node(self):
        # Nobody may end it for what it does not do; gloo gives up after 12 s, and then both nodes say who was stopped where.
        report, rank, story = self.run_fault("stop", "ddp", launcher=("--hang-timeout", "1", "--shutdown-timeout", "1"))
        self.assertEqual(report["first"]["rank"], 0, story)  # it waited
        suspect = self.check_suspect(report, rank, story)
        self.assertTrue(suspect["why"].startswith("stopped by a signal"), story)
        self.assertRegex(suspect["place"], r"commit \(.*ddp_faults.py:\d+\)$", story)

    @unittest.skipUnless(HAS_TORCH, "no PyTorch")
    def test_a_timer_that_runs_out_ends_its_worker_and_not_the_agent(self):
        with FaultJob() as job:
            job.variables["TORCHELASTIC_ENABLE_FILE_TIMER"] = "1"
            reports = job.both(["--no-python", PYTHON, DDP, "timer", 1, 3], nproc=1)
            for report in reports:
                self.assertEqual(report["first"]["rank"], 1, job.story())
                self.assertEqual(report["first"]["cause"]["kind"], "timer_expired", job.story())
                self.assertIn("its timer 'a step' has expired", report["text"])

    @unittest.skipUnless(HAS_TORCH, "no PyTorch")
    def test_size_mismatch_on_gloo(self):
        # Of two ranks that differ neither is right: gloo ends the one that got more than it asked for, which is the other one.
        report, rank, story = self.run_fault("size", "ddp")
        first = report["first"]
        self.assertEqual([first["rank"], first["group_rank"]], [1 - rank, 0], story)
        if ROOT:
            self.assertEqual(first["host"], HOSTS[0], story)
        self.assertEqual(first["cause"]["kind"], "collective_mismatch", story)
        self.assertRegex(report["text"], "100000 vs", story)

    @unittest.skipUnless(HAS_TORCH, "no PyTorch")
    def test_swapped_collective_on_gloo(self):
        # Gloo tells nobody apart: every rank waits until its time-out. Where each stood does, and of four the odd one.
        report, rank, story = self.run_fault("swap", "ddp", launcher=("--hang-timeout", "1"), variables=RECORDER, ddp_nproc=2)
        self.assertEqual(sum(one["count"] for one in report["whereabouts"]), 4, story)
        for one in report["whereabouts"]:
            operation, place = ("broadcast", r"^broadcast \(.*/torch/.*\), from commit") if one["rank"] == rank else ("all_reduce", r"from step_of\.<locals>\.backward")
            self.assertRegex(one["operation"], rf"^gloo:{operation} \d+ of default_pg$", story)
            self.assertRegex(one["place"], rf"{place} \(.*ddp_faults.py:\d+\)$", story)
            self.assertTrue(one["inside"], story)
        self.assertRegex(self.check_suspect(report, rank, story)["why"], r"^inside gloo:broadcast \d+ of default_pg where most are inside "
                         r"gloo:all_reduce \d+ of default_pg$", story)

    @unittest.skipUnless(HAS_TORCH, "no PyTorch")
    def test_who_does_not_come_to_gloo_is_named_with_the_collective(self):
        report, rank, story = self.run_fault("away", "ddp", launcher=("--hang-timeout", "1"), variables=RECORDER)
        self.assertRegex(report["text"], rf"rank {rank} on \S+ \(pid \d+\): had done nothing for .*, after gloo:all_reduce \d+ of default_pg, "
                         r"missing from gloo:all_reduce \d+ of default_pg, at commit \(.*ddp_faults.py:\d+\)", story)
        self.assertRegex(self.check_suspect(report, rank, story)["why"], r"^missing from gloo:all_reduce \d+ of default_pg$", story)


if __name__ == "__main__":
    if ROOT:
        keep_mounts_private()
    unittest.main(verbosity=2)
