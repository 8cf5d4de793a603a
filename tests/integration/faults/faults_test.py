"""The table of faults: what each does to a job of two nodes, and what the report of every node says of it.

Each row runs with the C++ trainer (two workers a node) and with a plain PyTorch DDP script on gloo (one worker a node).
The fault is always the last rank's, on the second node. The nodes are two launchers on this host, each with a host name
of its own where we may give it one (root: a UTS namespace); small disks and memory limits are made in the same way."""
import contextlib
import ctypes
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "elastic"))
from job import BIN, Job, wait_for  # noqa: E402

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
PYTHON = pathlib.Path(os.environ.get("MUSTER_TEST_PYTHON") or REPOSITORY / ".venv/bin/python")
DDP = REPOSITORY / "tests/worker_programs/ddp_faults.py"
DIGITS = REPOSITORY / "worker_runtime/examples/data/digits.csv"
# Root, and allowed to make namespaces.
ROOT = os.geteuid() == 0 and subprocess.run(["unshare", "--uts", "--mount", "true"], stderr=subprocess.DEVNULL).returncode == 0
HAS_TORCH = PYTHON.exists() and subprocess.run([PYTHON, "-c", "import importlib.util as u; assert u.find_spec('torch')"],
                                               stderr=subprocess.DEVNULL).returncode == 0
MEMORY_LIMIT = 400 << 20
HOSTS = ("node-a", "node-b")
# Torch's flight recorder is enabled by name, so that it is asked.
RECORDER = {"TORCH_FR_BUFFER_SIZE": "2000"}


def keep_mounts_private():
    """What this test mounts is seen by it and by what it starts."""
    clone_newns = 0x20000
    if ctypes.CDLL(None, use_errno=True).unshare(clone_newns) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


@contextlib.contextmanager
def small_disk(folder, size):
    """A disk of that size at `folder` for the time of a job; none without a size."""
    if size:
        folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "small", folder], check=True)
    try:
        yield
    finally:
        if size:
            subprocess.run(["umount", folder], check=True)


class MemoryGroup:
    """A control group with a memory limit for one launcher and what it starts; entered by its shell before exec."""

    def __init__(self, name):
        self.path = None
        for root, limit in (("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")):
            folder = pathlib.Path(root) / name
            try:
                folder.mkdir()
                if not (folder / "cgroup.procs").exists():  # no control group, but a folder of what they are mounted in
                    raise OSError
                (folder / limit).write_text(str(MEMORY_LIMIT))
                self.path = folder
                return
            except OSError:
                if folder.exists():
                    folder.rmdir()

    def close(self):
        if self.path:
            wait_for("empty memory group", lambda: not (self.path / "cgroup.procs").read_text())
            self.path.rmdir()


class FaultJob(Job):
    """Two launchers with reports; each in namespaces of its own."""

    def __init__(self):
        super().__init__()
        self.reports = []
        self.variables = {"OMP_NUM_THREADS": "1"}
        self.endpoint = f"127.0.0.1:{self.port}"

    def launch(self, index, arguments, prelude="", nproc=2):
        report = self.directory / f"report-{index}.json"
        self.reports.append(report)
        command = [str(BIN / "muster"), "--nnodes", "2", "--nproc-per-node", str(nproc), "--rdzv-backend", "c10d",
                   "--rdzv-endpoint", self.endpoint, "--rdzv-id", self.id, "--node-rank", str(index),
                   "--report", str(report), "--lease", "60", *map(str, arguments)]
        if ROOT:
            script = f"hostname {HOSTS[index]} && {prelude or 'true'} && exec \"$@\""
            command = ["unshare", "--uts", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *command]
        return self.spawn_command(command)

    def spawn_command(self, command):
        number = len(self.launchers)
        out, err = (self.directory / f"{number}.{kind}" for kind in ("out", "err"))
        with open(out, "wb") as to, open(err, "wb") as errors:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=to, stderr=errors, cwd=self.directory,
                                       env=self.environment(**self.variables), start_new_session=True)
        process.out, process.err = out, err
        self.launchers.append(process)
        return process

    def both(self, arguments, prelude="", nproc=2):
        """Runs the job to its end, the prelude on the second node; the two reports."""
        nodes = [self.launch(0, arguments, nproc=nproc)]
        wait_for("the host's daemon", self.answers)
        nodes.append(self.launch(1, arguments, prelude, nproc))
        for node in nodes:
            self.exit_code(node, 60)
        missing = [str(report) for report in self.reports if not report.exists()]
        assert not missing, f"no report: {missing}\n{self.story()}"
        return [json.loads(report.read_text()) for report in self.reports]


class LinkedJob(FaultJob):
    """Each launcher in a network of its own, and one wire between the two."""

    ADDRESSES = ("10.9.0.1", "10.9.0.2")

    def __enter__(self):
        self.holders = [subprocess.Popen(["unshare", "--net", "sleep", "infinity"]) for _ in range(2)]
        own = os.readlink("/proc/self/ns/net")
        for holder in self.holders:
            wait_for("network of its own", lambda pid=holder.pid: os.readlink(f"/proc/{pid}/ns/net") != own)
        subprocess.run(["ip", "link", "add", "eth0", "netns", str(self.holders[0].pid), "type", "veth", "peer", "name", "eth0",
                        "netns", str(self.holders[1].pid)], check=True)
        for index in range(2):
            self.ip(index, "addr", "add", f"{self.ADDRESSES[index]}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                self.ip(index, "link", "set", device, "up")
        return super().__enter__()

    def __exit__(self, *how):
        super().__exit__(*how)
        for holder in self.holders:
            holder.kill()
            holder.wait()

    def ip(self, index, *words):
        subprocess.run(["nsenter", f"--net=/proc/{self.holders[index].pid}/ns/net", "ip", *words], check=True)

    def spawn_command(self, command):
        index = len(self.launchers)
        return super().spawn_command(["nsenter", f"--net=/proc/{self.holders[index].pid}/ns/net", *command])

    def drop(self):
        """Every frame goes to where nobody is: no answer, no error, as on a wire that was pulled beyond a switch."""
        for index in range(2):
            self.ip(index, "neigh", "replace", self.ADDRESSES[1 - index], "lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud",
                    "permanent")


class Faults(unittest.TestCase):
    """One method for a row; `check` has what all of them share."""

    def run_fault(self, kind, trainer, prelude="", extra=("--epochs", "200"), disk=None, launcher=(), step=3, variables=()):
        with FaultJob() as job, small_disk(job.directory / "disk", disk):
            job.variables.update(variables)
            if trainer == "cpp":
                rank, nproc = 3, 2
                program = ["--no-python", BIN / "digits_trainer", "--data", DIGITS,
                           *(["--fault", f"{kind}:{rank}:{step}"] if kind else []), *extra]
            else:
                rank, nproc = 1, 1
                program = ["--no-python", PYTHON, DDP, kind, rank, step, "disk"]
            reports = job.both([*launcher, *program], prelude, nproc)
            story = job.story()
        for report in reports:
            self.assertEqual(report["outcome"], "failed", story)
        # The verdict is the same on every node; only who reads it differs.
        for field in ("first", "groups", "why", "whereabouts", "other_failure_count", "stopped_count"):
            self.assertEqual(reports[0].get(field), reports[1].get(field), story)
        if ROOT:
            self.assertEqual([report["host"] for report in reports], list(HOSTS))
        return reports[0], rank, story

    def check(self, kind, cause, trainer, end=None, says="", failure_kind=None, **options):
        report, rank, story = self.run_fault(kind, trainer, **options)
        first = report["first"]
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
            if trainer == "ddp" and not HAS_TORCH:
                continue
            with self.subTest(trainer=trainer):
                own = {name: value[trainer] if isinstance(value, dict) else value for name, value in options.items()}
                own_kind, own_cause = (value[trainer] if isinstance(value, dict) else value for value in (kind, cause))
                self.check(own_kind, own_cause, trainer, **own)

    def test_crash(self):
        self.each("crash", "unknown", end={"cpp": "SIGABRT", "ddp": "exit code 1"}, says="a rehearsed crash",
                  failure_kind={"cpp": "killed", "ddp": "worker_error"})

    @unittest.skipUnless(ROOT, "a memory limit needs root")
    def test_out_of_memory(self):
        for trainer in ("cpp", "ddp"):
            if trainer == "ddp" and not HAS_TORCH:
                continue
            group = MemoryGroup(f"muster-faults-{os.getpid()}")
            try:
                if group.path is None:
                    self.skipTest("no memory control group can be made here")
                enter = f"echo $$ > {group.path}/cgroup.procs"
                with self.subTest(trainer=trainer):
                    self.check("memory", "out_of_memory", trainer, prelude=enter, end="SIGKILL", failure_kind="killed",
                               says=r"memory ran out.*the limit is 400 MiB .*, the most that was used (400|39\d) MiB: raise it")
            finally:
                group.close()

    @unittest.skipUnless(ROOT, "the prelude needs namespaces")
    def test_refused_memory(self):
        # Of the C++ trainer alone: torch maps more than any limit that is soon reached.
        self.each("memory", "allocation_failed", ("cpp",), prelude="ulimit -v 4000000", end="SIGABRT",
                  says="refused memory.*ulimit -v")

    @unittest.skipUnless(ROOT, "a small /dev/shm needs a mount namespace")
    def test_full_shared_memory(self):
        self.each("bus", "shared_memory_full", prelude="mount -t tmpfs -o size=16m shm /dev/shm", end="SIGBUS",
                  says="/dev/shm of 16 MiB is full", failure_kind="killed")

    def test_segmentation_fault(self):
        # Python's fault handler ends it a second time by itself, of which the kernel's log says nothing.
        self.each("segment", "memory_fault", end="SIGSEGV", says="a memory access that is not allowed|where is not known",
                  failure_kind="killed")

    def test_missing_module_or_library(self):
        self.each({"cpp": "library", "ddp": "import"}, {"cpp": "missing_library", "ddp": "import_error"},
                  end={"cpp": "exit code 127", "ddp": "exit code 1"},
                  says={"cpp": "librehearsed.so.1 is not found", "ddp": "No module named 'a_module_that_is_not_installed'"})

    def test_missing_gpu(self):
        self.each("gpu", "missing_gpu", ("ddp",), says="wants a GPU and finds none")
        # The C++ trainer is asked to use GPUs on that node alone, where CUDA is not installed.
        with FaultJob() as job:
            program = [BIN / "digits_trainer", "--data", DIGITS, "--epochs", "200"]
            nodes = [job.launch(0, ["--no-python", "env", *program], nproc=1)]
            wait_for("the host's daemon", job.answers)
            nodes.append(job.launch(1, ["--no-python", "env", "MUSTER_TRANSPORT=nccl", "MUSTER_CUDA_LIBRARY=/no/libcudart.so.12",
                                        *program], nproc=1))
            for node in nodes:
                job.exit_code(node, 60)
            for report in (json.loads(report.read_text()) for report in job.reports):
                self.assertEqual(report["first"]["rank"], 1, job.story())
                self.assertEqual(report["first"]["cause"]["kind"], "missing_gpu", job.story())
                self.assertIn("wants a GPU and finds none", report["text"], job.story())
                if ROOT:
                    self.assertEqual(report["first"]["host"], HOSTS[1], job.story())

    @unittest.skipUnless(ROOT, "a small disk needs a mount namespace")
    @unittest.skipUnless(HAS_TORCH, "no PyTorch")
    def test_full_disk(self):
        self.check("disk", "disk_full", "ddp", disk="64k", says="a disk or a quota is full")

    @unittest.skipUnless(ROOT, "a small disk needs a mount namespace")
    def test_disk_full_of_checkpoints(self):
        # All ranks share the disk and fail together, in whatever order; who found it full is in the message of each.
        report, _, story = self.run_fault("", "cpp", disk="32k", extra=("--checkpoint-dir", "disk", "--epochs", "2"))
        first = report["first"]
        self.assertRegex(first["stderr_tail"], r"not saved: rank \d: write \S+: No space left on device", story)
        self.assertEqual(first["host"], HOSTS[first["group_rank"]], story)
        self.assertEqual(first["cause"]["kind"], "disk_full", story)

    def test_swapped_collective(self):
        self.each("swap", "collective_mismatch", ("cpp",), says=r"called different operations.*rank 3 \(pid \d+ on "
                  r"\S+\) runs barrier")

    def test_size_mismatch(self):
        self.each("size", "collective_mismatch", ("cpp",), says=r"called different operations.*rank 3 \(pid \d+ on "
                  r"\S+\) runs all_reduce sum f32 x 7")

    def test_of_two_ranks_that_differ_both_are_named(self):
        # Nobody can tell which of them is right: the second one differs from the first, and that one's call stands beside.
        with FaultJob() as job:
            reports = job.both(["--no-python", BIN / "digits_trainer", "--data", DIGITS, "--epochs", "200", "--fault", "size:1:3"],
                               nproc=1)
            for report in reports:
                self.assertEqual(report["first"], reports[0]["first"], job.story())
                self.assertEqual(report["first"]["cause"]["kind"], "collective_mismatch", job.story())
                self.assertRegex(report["text"], r"rank 0 \(pid \d+ on \S+\) runs all_reduce avg f32 x \d+.*, rank 1 \(pid \d+ on "
                                 r"\S+\) runs all_reduce sum f32 x 7")

    def test_stopped_rank(self):
        self.each("stop", "hung", ("cpp",), launcher=("--hang-timeout", "1"), step=30, end="SIGKILL", failure_kind="killed",
                  says=r"it has done nothing for .*stopped by a signal.*missing from all_reduce \d+ of world, in which rank.*; it was at ")

    def test_a_slow_rank_is_not_ended(self):
        with FaultJob() as job:
            reports = job.both(["--hang-timeout", "0.3", "--no-python", BIN / "digits_trainer", "--data", DIGITS, "--epochs",
                                "4", "--fault", "slow:3:40"])
            for report in reports:
                self.assertEqual(report["outcome"], "succeeded", job.story())

    @unittest.skipUnless(ROOT, "a network of its own needs root")
    def test_dropped_link(self):
        # The node that has the daemon says who was lost; the other one, that it has lost the daemon. No word passes between.
        programs = {"cpp": ["--no-python", BIN / "digits_trainer", "--data", DIGITS, "--epochs", "100000"],
                    "ddp": ["--no-python", PYTHON, DDP, "slow", 0, 1]}
        for trainer in ("cpp", "ddp") if HAS_TORCH else ("cpp",):
            with self.subTest(trainer=trainer), LinkedJob() as job:
                job.endpoint = f"{job.ADDRESSES[0]}:{job.port}"
                nodes = [job.launch(index, ["--lease", "1", "--rdzv-lost-timeout", "2", "--local-addr", job.ADDRESSES[index],
                                            "--rdzv-conf", f"join_timeout=20,is_host={1 - index}", "--log-level", "info",
                                            "--shutdown-timeout", "1", *programs[trainer]], nproc=1) for index in range(2)]
                wait_for("both workers", lambda: all("round 0" in node.err.read_text() for node in nodes))
                job.drop()
                job.expect_exit(nodes[1], 75)
                self.assertEqual(json.loads(job.reports[1].read_text())["host"], HOSTS[1])
                self.assertRegex(nodes[1].err.read_text(), "killing the workers at once")
                wait_for("word of the lost node", lambda: re.search(
                    rf"round 0 ended: {HOSTS[1]} \(pid \d+\) was lost: no word for \d", nodes[0].err.read_text()))
                nodes[0].terminate()
                job.expect_exit(nodes[0], 143)

    @unittest.skipUnless(HAS_TORCH, "no PyTorch")
    def test_a_stopped_rank_of_an_unmodified_script_is_named_on_every_node(self):
        # Nobody may end it for what it does not do; gloo gives up after 4 s, and then both nodes say who was stopped where.
        report, _, story = self.run_fault("stop", "ddp", launcher=("--hang-timeout", "1", "--shutdown-timeout", "1"))
        places = {one["rank"]: one for one in report["whereabouts"]}
        self.assertIn(1, places, story)
        self.assertIn("stopped by a signal", places[1]["state"], story)
        self.assertRegex(report["text"], r"rank 1 .*stopped by a signal", story)

    @unittest.skipUnless(HAS_TORCH, "no PyTorch")
    def test_a_timer_that_runs_out_ends_its_worker_and_not_the_agent(self):
        with FaultJob() as job:
            job.variables["TORCHELASTIC_ENABLE_FILE_TIMER"] = "1"
            reports = job.both(["--no-python", PYTHON, DDP, "timer", 1, 3], nproc=1)
            for report in reports:
                self.assertEqual(report["first"]["rank"], 1, job.story())
                self.assertEqual(report["first"]["cause"]["kind"], "timer_expired", job.story())
                self.assertIn("its timer 'a step' has run out", report["text"])

    @unittest.skipUnless(HAS_TORCH, "no PyTorch")
    def test_size_mismatch_on_gloo(self):
        # Of two ranks that differ neither is right: gloo ends the one that got more than it asked for.
        report, _, story = self.run_fault("size", "ddp")
        self.assertEqual(report["first"]["cause"]["kind"], "collective_mismatch", story)
        self.assertRegex(report["text"], "100000 vs", story)

    @unittest.skipUnless(HAS_TORCH, "no PyTorch")
    def test_swapped_collective_on_gloo(self):
        # Gloo tells nobody apart: every rank waits until its time-out. Where each stood does, on every node.
        report, _, story = self.run_fault("swap", "ddp", launcher=("--hang-timeout", "1"), variables=RECORDER)
        places = {one["rank"]: one for one in report["whereabouts"]}
        self.assertEqual(sorted(places), [0, 1], story)
        self.assertRegex(places[0]["place"], r"/torch/.*, from main \(.*ddp_faults.py:\d+\)$", story)
        self.assertRegex(places[1]["place"], r"^broadcast \(.*/torch/.*\), from commit \(.*ddp_faults.py:\d+\)$", story)
        self.assertRegex(report["text"], r"(?s)its ranks stood in different places:\n +rank [01] .*\n +rank [01] ", story)
        self.assertRegex(places[0]["operation"], r"^gloo:all_reduce \d+ of default_pg$", story)
        self.assertRegex(places[1]["operation"], r"^gloo:broadcast \d+ of default_pg$", story)
        self.assertEqual([places[0]["inside"], places[1]["inside"]], [True, True], story)

    @unittest.skipUnless(HAS_TORCH, "no PyTorch")
    def test_who_does_not_come_to_gloo_is_named_with_the_collective(self):
        report, rank, story = self.run_fault("away", "ddp", launcher=("--hang-timeout", "1"), variables=RECORDER)
        self.assertRegex(report["text"], rf"rank {rank} on \S+ \(pid \d+\): had done nothing for .*, after gloo:all_reduce \d+ of default_pg, "
                         r"missing from gloo:all_reduce \d+ of default_pg, at commit \(.*ddp_faults.py:\d+\)", story)


if __name__ == "__main__":
    if ROOT:
        keep_mounts_private()
    unittest.main(verbosity=2)
