"""muster in a real Slurm: a cluster of five nodes on this host (cluster.py), and what a user would type.

It runs in a process namespace, so that nothing of it outlives a test that is killed.
"""
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import cluster  # noqa: E402
from hosts import processes_with  # noqa: E402  (cluster knows where it is)

BUILD = pathlib.Path(os.environ["MUSTER_BUILD"])
SOURCE = pathlib.Path(__file__).resolve().parents[3]
MUSTER = BUILD / "bin/muster"
BESIDE = ("limited", "warned")  # jobs that run beside the tests
SAY = "echo rank $RANK of $WORLD_SIZE on $SLURMD_NODENAME"
# Says so when it is told, and runs until the file is there. (A shell could not handle what it started to ignore.)
TOLD = r"""
import os, pathlib, signal, sys, time
# In one write: where Python does not buffer, print() writes word by word, and workers that share a pipe would mix.
say = lambda word: os.write(1, f"{os.environ['RANK']} {word}\n".encode())
signal.signal(signal.SIGUSR1, lambda *_: say("told"))
say("ready")
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
"""


def parent_of(pid):
    try:
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


def name_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


class Slurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="muster-slurm-")
        cls.addClassCleanup(cls.folder.cleanup)
        # n3 has its name in Slurm alone. Of the codes that are to be started again, 76 is left to requeue.sh.
        cls.slurm = cluster.Cluster(cls.folder.name, nodes=5, slurmd_timeout=10, nameless=["n3"], requeue_exit="75")
        cls.slurm.__enter__()
        cls.addClassCleanup(cls.slurm.close)
        cls.begin_jobs_with_time_limits()

    @classmethod
    def begin_jobs_with_time_limits(cls):
        """Slurm looks at time limits every 30 s: these run beside the other tests, on a node of their own. One ends at the
        first look, the other one has its notice then."""
        cls.report = pathlib.Path(cls.folder.name) / "limited.json"
        cls.limited = cls.begin_beside("limited", "-t1", MUSTER, f"--report={cls.report}", "--no-python", "sh", "-c",
                                       "echo ready; exec sleep 600")
        job = cls.slurm.run("squeue", "-h", "-n", "limited", "-o", "%A").stdout.strip()
        cls.slurm.run("scontrol", "update", f"JobId={job}", "EndTime=now+1")
        cls.warned = cls.begin_beside("warned", "-t10", "--signal=USR1@600", MUSTER, "--no-python", "sh", "-c",
                                      'echo ready; until [ -e "$0" ]; do sleep 0.5; done', f"{cls.folder.name}/warned")

    @classmethod
    def begin_beside(cls, name, *words):
        assert name in BESIDE
        process = subprocess.Popen(
            cls.slurm.command("srun", "-J", name, "-wn5", "-N1", "-n1", "-c4", *words),
            env=cls.slurm.environment, stdin=subprocess.DEVNULL, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT)
        cls.addClassCleanup(lambda: (process.stdout.close(), process.poll() is None and process.kill(), process.wait()))
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line == "ready\n":
                return process
        raise AssertionError("".join(lines) + cls.slurm.logs())

    def tearDown(self):
        """What a failed test has left must not fail the next one."""
        jobs = [line.split()[0] for line in self.slurm.run("squeue", "-h", "-o", "%A %j").stdout.splitlines()
                if line.split()[1] not in BESIDE]
        if jobs:
            self.slurm.run("scancel", *jobs)
        for name in self.slurm.nodes:
            if name not in self.slurm.daemons:
                self.slurm.start_node(name)
        self.slurm.until("idle nodes", lambda: self.slurm.idle(apart="n5"), 150)

    def srun(self, *words, **more):
        return self.slurm.run("srun", *words, **more)

    def begin(self, *words, mark=None):
        """A command in the background whose lines can be read."""
        environment = {**self.slurm.environment, **({"MARK": mark} if mark else {})}
        process = subprocess.Popen(self.slurm.command(*words), env=environment, stdin=subprocess.DEVNULL, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(process.stdout.close)
        self.addCleanup(lambda: (process.poll() is None and process.kill(), process.wait()))
        return process

    def lines_until(self, process, pattern, count, limit=150):
        """Lines of `process` up to the `count`th that matches."""
        lines, end = [], time.monotonic() + limit
        while count > 0:
            line = process.stdout.readline()
            lines.append(line)
            count -= bool(re.search(pattern, line))
            self.assertTrue(line and time.monotonic() < end, "".join(lines) + self.slurm.logs())
        return lines

    def text_until(self, process, patterns, limit=150):
        """What `process` says until a line of its own has come for each of `patterns`, in any order."""
        text, left, end = "", list(patterns), time.monotonic() + limit
        while left:
            line = process.stdout.readline()
            text += line
            self.assertTrue(line and time.monotonic() < end, f"{self.slurm.logs()}\n{left} in\n{text}")
            if found := next((pattern for pattern in left if re.search(pattern, line)), None):
                left.remove(found)
        return text

    def job_id(self):
        jobs = self.slurm.run("squeue", "-h", "-o", "%A %j").stdout.splitlines()
        return next(line.split()[0] for line in jobs if line.split()[1] not in BESIDE)

    def test_no_flags(self):
        for nodes in (1, 2, 4):
            with self.subTest(nodes=nodes):
                done = self.srun(f"-N{nodes}", "--ntasks-per-node=1", MUSTER, "--no-python", "sh", "-c", SAY)
                self.assertEqual(done.returncode, 0, done.stderr)
                said = sorted(re.findall(f"rank (\\d) of {nodes} on (n\\d)", done.stdout))
                self.assertEqual([rank for rank, _ in said], [str(i) for i in range(nodes)], done.stdout)
                # Ranks follow the step's order of nodes.
                self.assertEqual([name for _, name in said], sorted(name for _, name in said))
                self.assertEqual(done.stderr.count("no GPUs: starting one worker on each node"), 1, done.stderr)

    def test_a_first_node_whose_name_is_in_slurm_alone(self):
        done = self.srun("-N2", "-wn3,n4", "--ntasks-per-node=1", MUSTER, "--no-python", "sh", "-c", SAY)
        self.assertEqual(len(re.findall("rank . of 2", done.stdout)), 2, done.stderr)

    def test_tasks_that_are_unevenly_spread(self):
        done = self.srun("-N2", "-n3", MUSTER, "--nproc-per-node=2", "--no-python", "sh", "-c", SAY)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(line[:11] for line in done.stdout.splitlines()),
                         [f"rank {i} of 4" for i in range(4)], done.stderr)
        self.assertEqual(done.stderr.count(" exits: one muster on each host"), 1, done.stderr)

    def test_notice_reaches_every_rank_and_ends_none(self):
        leave = pathlib.Path(self.folder.name) / "leave"
        job = self.begin("srun", "-N3", "--ntasks-per-node=1", MUSTER, "--nproc-per-node=2", "--no-python", "sh", "-c",
                         'if [ $GROUP_RANK = 2 ]; then echo $RANK ready; until [ -e "$0" ]; do sleep 0.1; done; '
                         'else exec python3 -c "$1" "$0"; fi', leave, TOLD)
        self.lines_until(job, "ready", 6)
        self.slurm.run("scancel", "-s", "USR1", self.job_id())
        # Slurm tells every process itself. That muster does too is in its own words, one line for each node.
        words = (r"notice to this node's workers", r"notice to this node's workers", r"was not forwarded: local rank 0, 1 has",
                 "0 told", "1 told", "2 told", "3 told", "reason of the signal: neither a preemption by Slurm nor a time limit")
        text = self.text_until(job, words)
        leave.touch()
        text += job.communicate(timeout=150)[0]
        self.assertEqual(job.returncode, 0, text)
        self.assertEqual({rank for rank in re.findall(r"(\d) told", text)}, set("0123"), text)

    def test_scancel_is_a_stop_by_muster_that_leaves_nothing(self):
        mark = f"MUSTER_TEST_{os.getpid()}_{time.monotonic_ns()}"
        # Workers that SIGTERM does not end, and a child in a session of its own: muster's last words are said when all
        # have gone, long before Slurm's own SIGKILL after KillWait (30 s).
        worker = "trap '' TERM; setsid sleep 600 & echo ready; while :; do sleep 1; done"
        job = self.begin("srun", "-N2", "--ntasks-per-node=1", MUSTER, "--nproc-per-node=2", "--shutdown-timeout=1",
                         "--no-python", "sh", "-c", worker, mark=mark)
        self.lines_until(job, "ready", 4)
        self.assertGreaterEqual(len(processes_with(mark)), 10)
        self.slurm.run("scancel", self.job_id())
        text = job.communicate(timeout=150)[0]
        self.assertEqual(text.count("stopped by SIGTERM (this job was cancelled (scancel))"), 1, text)  # the first host asks
        self.assertEqual(len(re.findall(r"stopped by SIGTERM.*; this node has left", text)), 2, text)
        self.slurm.until("end of all processes", lambda: not processes_with(mark), 90)

    def test_a_preemption_is_told_as_such(self):
        # Slurm sends SIGTERM twice, which takes nothing of the grace.
        job = self.begin("srun", "-N1", "-wn1", "--exclusive", MUSTER, "--no-python", "sh", "-c",
                         "trap 'sleep 1; sleep 1; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.1; done")
        self.lines_until(job, "ready", 1)
        self.assertEqual(self.srun("-N1", "-wn1", "-purgent", "true").returncode, 0)
        text = job.communicate(timeout=150)[0]
        self.assertIn("stopped by SIGTERM (Slurm preempted this job for another one)", text)
        self.assertIn("saved\n", text)

    def test_zz_notice_ahead_of_the_limit(self):  # last, so that it need not be waited for
        """--signal=USR1@... itself, to a worker that knows nothing of it."""
        text = self.text_until(self.warned, ("reason of the signal: this job's time limit in Slurm ends in ",
                                             "SIGUSR1 was not forwarded: local rank 0 has no handler"), limit=150)
        pathlib.Path(self.folder.name, "warned").touch()
        text += self.warned.communicate(timeout=150)[0]
        self.assertEqual(self.warned.returncode, 0, text)

    def test_zz_time_limit(self):
        text = self.limited.communicate(timeout=150)[0]
        self.assertIn("reason of the signal: Slurm's time limit for this job (00:01:00) is over", text)
        self.assertIn("stopped by SIGTERM (Slurm's time limit for this job", text)
        self.assertIn("DUE TO TIME LIMIT", text)  # Slurm's own word
        report = json.loads(self.report.read_text())
        self.assertEqual((report["outcome"], report["signal_reason"]),
                         ("cancelled", "Slurm's time limit for this job (00:01:00) is over"))

    def test_a_heterogeneous_job_is_one(self):
        parts = ("salloc", "-N1", "-wn3", "-n2", ":", "-N2", "-wn1,n2", "-n2", "srun")
        done = self.slurm.run(*parts, "--het-group=0,1", MUSTER, "--no-python", "sh", "-c", SAY)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), [f"rank {i} of 3 on n{i + 1}" for i in range(3)])
        self.assertEqual(done.stderr.count(" exits: one muster on each host"), 1, done.stderr)
        done = self.slurm.run(*parts, "--het-group=1", MUSTER, "--no-python", "sh", "-c", SAY)
        self.assertEqual(sorted(done.stdout.splitlines()), [f"rank {i} of 2 on n{i + 1}" for i in range(2)])
        self.assertIn("does not use 1 hosts of the heterogeneous job", done.stderr)

    def test_exit_codes_and_the_queue(self):
        """By RequeueExit alone, which is muster's code as srun and the batch shell hand it on."""
        out = pathlib.Path(self.folder.name) / "codes-%x.out"
        nobody = "--nnodes=3 --rdzv-conf=join_timeout=1"
        jobs = {}
        for code, nodes, words in ((75, 2, f"{nobody} --no-python true"), (77, 1, "--no-python sh -c 'exit 77'")):
            begun = self.slurm.run("sbatch", "--parsable", "--requeue", "-J", f"{code}", "-o", out, f"-N{nodes}", f"-n{nodes}",
                                   f"--wrap=srun --kill-on-bad-exit=0 {MUSTER} {words}")
            self.assertEqual(begun.returncode, 0, begun.stderr)
            jobs[code] = begun.stdout.strip()
        state = lambda code: self.slurm.run("scontrol", "-o", "show", "job", jobs[code]).stdout
        self.slurm.until("job that is started again", lambda: "Restarts=1" in state(75), 150)
        self.slurm.until("end of the other one", lambda: "JobState=FAILED" in state(77), 150)
        self.assertRegex(state(77), "Restarts=0 .*ExitCode=77:0")

    def test_mpich_in_an_allocation_is_mpichs(self):
        """Its helper is a step of srun's, whose variables say nothing of its processes."""
        done = self.slurm.run("salloc", "-N2", "-n2", "-wn1,n2", "mpiexec.hydra", "-ppn", "1", "-n", "2", MUSTER,
                              "--rdzv-endpoint=n1:29400", "--rdzv-id=mine", "--nproc-per-node=2", "--no-python", "sh", "-c", SAY)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(re.findall(r"rank \d of 4", done.stdout)), [f"rank {i} of 4" for i in range(4)], done.stderr)

    def test_gpus_that_were_asked_for(self):
        done = self.srun("-N2", "--ntasks-per-node=1", "--gpus-per-node=2", MUSTER, "--no-python", "sh", "-c", SAY)
        self.assertEqual(len(re.findall("rank . of 4 on", done.stdout)), 4, done.stderr)
        lacking = ("salloc", "-N1", "-wn1", "--gpus-per-node=2", "srun", "-n1", "env", "CUDA_VISIBLE_DEVICES=0", MUSTER)
        done = self.slurm.run(*lacking, "--no-python", "true")
        self.assertIn("SLURM_GPUS_PER_NODE: 2 GPUs per node were requested, but this task on n1 has 1; write srun",
                      done.stderr)
        self.assertEqual(self.slurm.run(*lacking, "--nproc-per-node=1", "--no-python", "true").returncode, 0)
        # A task on its own for each GPU, as for torch.distributed without a launcher.
        done = self.srun("-N1", "--ntasks-per-node=2", "--gpus-per-task=1", "--gpu-bind=single:1", MUSTER, "--no-python", "sh",
                         "-c", SAY)
        self.assertIn("1 of the step's 2 GPUs on this node are unused", done.stderr)
        done = self.srun("-N1", MUSTER, "--nproc-per-node=gpu", "--no-python", "true")
        self.assertRegex(done.stderr, "got 'gpu', but .*Slurm gave this step no GPUs: write srun --gpus-per-node N")

    def test_a_node_lost(self):
        mark = f"MUSTER_TEST_{os.getpid()}_{time.monotonic_ns()}"
        worker = "echo rank $RANK of $WORLD_SIZE ready; [ $WORLD_SIZE = 2 ] || sleep 600"
        job = self.begin("srun", "-N3", "--ntasks-per-node=1", "--no-kill", "--kill-on-bad-exit=0", MUSTER,
                         "--nnodes=2:3", "--rdzv-conf=last_call_timeout=15", "--max-restarts=2", "--no-python", "sh", "-c",
                         worker, mark=mark)
        self.lines_until(job, "of 3 ready", 3)
        # As a machine would go: its slurmd, its steps, and all that they run.
        self.slurm.stop("n3", signal.SIGKILL)
        pids = processes_with("SLURMD_NODENAME=n3")
        # slurmstepd first: it must not live to tell srun of its task's end, which a machine that goes does not.
        for pid in [parent for parent in map(parent_of, pids) if name_of(parent) == "slurmstepd"] + pids:
            with contextlib.suppress(ProcessLookupError):  # one may take others along
                os.kill(pid, signal.SIGKILL)
        self.lines_until(job, "of 2 ready", 2)  # srun itself would wait for the lost node to be down in Slurm's eyes

    def test_an_array_side_by_side(self):
        out = pathlib.Path(self.folder.name) / "array-%a.out"
        # Sixteen tasks of two nodes on four: several on each node at a time.
        words = f"srun --ntasks-per-node=1 {MUSTER} --nproc-per-node=2 --no-python sh -c '{SAY} in $SLURM_ARRAY_TASK_ID'"
        done = self.slurm.run("sbatch", "--wait", "--array=0-5", "-N2", "-n2", "-o", out, f"--wrap={words}", timeout=200)
        texts = {task: pathlib.Path(str(out).replace("%a", str(task))).read_text() for task in range(6)}
        self.assertEqual(done.returncode, 0, f"{done.stderr}{texts}")
        for task, text in texts.items():
            ranks = re.findall(r"rank (\d) of 4 on n\d in (\d)", text)
            self.assertEqual(sorted(ranks), [(str(rank), str(task)) for rank in range(4)], text)

    def test_the_scripts_for_fixed_and_elastic_jobs(self):
        for script, nodes, world in (("fixed.sh", 2, 2), ("elastic.sh", 3, 2)):
            with self.subTest(script=script):
                out = pathlib.Path(self.folder.name) / script
                done = self.slurm.run(
                    "env", f"MUSTER={MUSTER}", "NODES=1:2", "SPARES=1", f"CHECKPOINTS={self.folder.name}/none", "sbatch",
                    "--wait", f"-N{nodes}", "--gpus-per-node=0", "-c1", "-o", out, SOURCE / "scripts/slurm" / script,
                    "--no-python", "sh", "-c", SAY, timeout=200)
                text = out.read_text() if out.exists() else ""
                self.assertEqual(done.returncode, 0, done.stderr + text)
                self.assertEqual(len(re.findall(f"rank . of {world}", text)), world, text)

    def test_requeued_and_resumed(self):
        folder = pathlib.Path(self.folder.name) / "requeue"
        folder.mkdir()
        out = pathlib.Path(self.folder.name) / "requeue.out"  # of which a failure tells
        done = self.slurm.run(
            "env", f"MUSTER={MUSTER}", f"CHECKPOINTS={folder}/checkpoints", "sbatch", "--parsable", "-N2",
            "-c1", "--gpus-per-node=0", "-o", out, SOURCE / "scripts/slurm/requeue.sh", "--no-python",
            BUILD / "bin/digits_trainer", "--data", SOURCE / "worker_runtime/examples/data/digits.csv", "--epochs",
            "4000", "--checkpoint-every", "50")  # far more than until it is told
        self.assertEqual(done.returncode, 0, done.stderr)
        job = done.stdout.strip()
        steps = lambda: list((folder / "checkpoints").glob("step*"))
        self.slurm.until("checkpoint", steps, 150)
        self.slurm.run("scancel", "-s", "USR1", job)
        state = lambda: self.slurm.run("scontrol", "-o", "show", "job", job).stdout
        self.slurm.until("requeued job", lambda: "Restarts=1" in state(), 150)
        # Left alone it waits for two minutes; at once, its nodes would take it for the job that has just ended.
        self.slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now+3")
        went_on = r"world 2: continuing from the (checkpoint|agents. copy) of step \d+\nepoch \d+: loss"
        self.slurm.until("job that goes on", lambda: re.search(went_on, out.read_text()) or "JobState=FAILED" in state(), 150)
        text = out.read_text()
        self.assertIn("saved and left", text)
        self.assertEqual(text.count("training from the start"), 1, text)
        self.assertRegex(text, went_on)


if __name__ == "__main__":
    if missing := cluster.missing_parts():
        cluster.skip_or_fail(f"a Slurm cluster needs {', '.join(missing)}")
    if os.getpid() != 1:
        os.execvp("unshare", ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child=SIGKILL", sys.executable, *sys.argv])
    unittest.main(verbosity=2)
