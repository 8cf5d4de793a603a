"""muster in a real Slurm: a cluster of five nodes on this host (cluster.py), and what a user would type."""
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

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).resolve().parents[1] / "places")]
import cluster
from hosts import processes_with

BUILD = pathlib.Path(os.environ["MUSTER_BUILD"])
SOURCE = pathlib.Path(__file__).resolve().parents[3]
MUSTER = BUILD / "bin/muster"
SAY = "echo rank $RANK of $WORLD_SIZE on $SLURMD_NODENAME"
# Runs until it is told; a shell forwards nothing while it waits for a program, so it waits in short steps.
STAY = "trap 'echo $RANK told; exit 0' USR1; echo $RANK ready; while :; do sleep 0.1; done"


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
        cls.slurm = cluster.Cluster(cls.folder.name, nodes=5, slurmd_timeout=10)
        cls.slurm.__enter__()
        cls.addClassCleanup(cls.slurm.close)
        cls.begin_job_with_time_limit()

    @classmethod
    def begin_job_with_time_limit(cls):
        """Slurm looks at time limits every 30 s: this one runs beside the other tests, on a node of its own."""
        cls.report = pathlib.Path(cls.folder.name) / "limited.json"
        cls.limited = subprocess.Popen(
            cls.slurm.command("srun", "-J", "limited", "-t1", "-wn5", "-N1", "--exclusive", MUSTER, f"--report={cls.report}",
                              "--no-python", "sh", "-c", "echo ready; exec sleep 600"),
            env=cls.slurm.environment, stdin=subprocess.DEVNULL, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT)
        cls.addClassCleanup(lambda: (cls.limited.stdout.close(), cls.limited.poll() is None and cls.limited.kill(),
                                     cls.limited.wait()))
        assert "ready" in "".join(iter(cls.limited.stdout.readline, "ready\n")) + "ready"
        job = cls.slurm.run("squeue", "-h", "-n", "limited", "-o", "%A").stdout.strip()
        cls.slurm.run("scontrol", "update", f"JobId={job}", "EndTime=now+1")

    def tearDown(self):
        """What a failed test has left must not fail the next one."""
        jobs = [line.split()[0] for line in self.slurm.run("squeue", "-h", "-o", "%A %j").stdout.splitlines()
                if not line.endswith(" limited")]
        if jobs:
            self.slurm.run("scancel", *jobs)
        for name in self.slurm.nodes:
            if name not in self.slurm.daemons:
                self.slurm.start_node(name)
        self.slurm.until("idle nodes", lambda: self.slurm.idle(apart="n5"), 90)

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

    def lines_until(self, process, pattern, count, limit=60):
        """Lines of `process` up to the `count`th that matches."""
        lines, end = [], time.monotonic() + limit
        while count > 0:
            line = process.stdout.readline()
            lines.append(line)
            count -= bool(re.search(pattern, line))
            self.assertTrue(line and time.monotonic() < end, "".join(lines) + self.slurm.logs())
        return lines

    def job_id(self):
        jobs = self.slurm.run("squeue", "-h", "-o", "%A %j").stdout.splitlines()
        return next(line.split()[0] for line in jobs if not line.endswith(" limited"))

    def test_no_flags(self):
        for nodes in (1, 2, 4):
            with self.subTest(nodes=nodes):
                done = self.srun(f"-N{nodes}", "--ntasks-per-node=1", MUSTER, "--no-python", "sh", "-c", SAY)
                self.assertEqual(done.returncode, 0, done.stderr)
                said = sorted(re.findall(f"rank (\\d) of {nodes} on (n\\d)", done.stdout))
                self.assertEqual([rank for rank, _ in said], [str(i) for i in range(nodes)], done.stdout)
                # Ranks follow the step's order of nodes.
                self.assertEqual([name for _, name in said], sorted(name for _, name in said))
                self.assertEqual(done.stderr.count("no GPUs: one worker on each node"), 1, done.stderr)

    def test_tasks_that_are_unevenly_spread(self):
        done = self.srun("-N2", "-n3", MUSTER, "--nproc-per-node=2", "--no-python", "sh", "-c", SAY)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(line[:11] for line in done.stdout.splitlines()),
                         [f"rank {i} of 4" for i in range(4)], done.stderr)
        self.assertEqual(done.stderr.count("has nothing to do"), 1, done.stderr)

    def test_notice_reaches_every_rank(self):
        job = self.begin("srun", "-N2", "--ntasks-per-node=1", MUSTER, "--nproc-per-node=2", "--no-python", "sh", "-c",
                         STAY)
        self.lines_until(job, "ready", 4)
        self.slurm.run("scancel", "-s", "USR1", self.job_id())
        text = job.communicate(timeout=60)[0]
        self.assertEqual(job.returncode, 0, text)
        self.assertEqual(sorted(re.findall(r"(\d) told", text)), list("0123"), text)
        # Slurm signals both launchers: that is one notice. (A node whose workers were quicker than it passes none on.)
        self.assertLessEqual(text.count("notice to this node's workers"), 2, text)
        self.assertIn("why the signal: neither a preemption by Slurm nor a time limit, which this job has not", text)

    def test_scancel_leaves_nothing(self):
        mark = f"MUSTER_TEST_{os.getpid()}_{time.monotonic_ns()}"
        job = self.begin("srun", "-N2", "--ntasks-per-node=1", MUSTER, "--nproc-per-node=2", "--no-python", "sh", "-c",
                         "sleep 600 & echo ready; wait", mark=mark)
        self.lines_until(job, "ready", 4)
        self.assertGreaterEqual(len(processes_with(mark)), 10)
        self.slurm.run("scancel", self.job_id())
        job.communicate(timeout=60)
        self.slurm.until("end of all processes", lambda: not processes_with(mark), 40)

    def test_what_took_the_job_away_is_told(self):
        with self.subTest("scancel"):
            job = self.begin("srun", "-N2", "--ntasks-per-node=1", MUSTER, "--no-python", "sh", "-c",
                             "echo ready; exec sleep 600")
            self.lines_until(job, "ready", 2)
            self.slurm.run("scancel", self.job_id())
            self.assertIn("stopped by SIGTERM (this job was cancelled (scancel))", job.communicate(timeout=60)[0])
        with self.subTest("preemption"):
            # Slurm sends SIGTERM twice, which takes nothing of the grace.
            job = self.begin("srun", "-N1", "-wn1", "--exclusive", MUSTER, "--no-python", "sh", "-c",
                             "trap 'sleep 1; sleep 1; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.1; done")
            self.lines_until(job, "ready", 1)
            self.assertEqual(self.srun("-N1", "-wn1", "-purgent", "true").returncode, 0)
            text = job.communicate(timeout=60)[0]
            self.assertIn("stopped by SIGTERM (Slurm preempts this job for another one)", text)
            self.assertIn("saved\n", text)

    def test_zz_time_limit(self):  # last, so that it need not be waited for
        text = self.limited.communicate(timeout=90)[0]
        self.assertIn("why the signal: Slurm's time limit for this job (00:01:00) is over", text)
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
        self.assertEqual(done.stderr.count("has nothing to do"), 1, done.stderr)
        done = self.slurm.run(*parts, "--het-group=1", MUSTER, "--no-python", "sh", "-c", SAY)
        self.assertEqual(sorted(done.stdout.splitlines()), [f"rank {i} of 2 on n{i + 1}" for i in range(2)])
        self.assertIn("leaves out 1 hosts of the heterogeneous job", done.stderr)

    def test_gpus_that_were_asked_for(self):
        done = self.srun("-N2", "--ntasks-per-node=1", "--gpus-per-node=2", MUSTER, "--no-python", "sh", "-c", SAY)
        self.assertEqual(len(re.findall("rank . of 4 on", done.stdout)), 4, done.stderr)
        lacking = ("salloc", "-N1", "--gpus-per-node=2", "srun", "-n1", "env", "CUDA_VISIBLE_DEVICES=0", MUSTER)
        done = self.slurm.run(*lacking, "--no-python", "true")
        self.assertIn("SLURM_GPUS_PER_NODE: 2 GPUs were asked for on each node, but this task on n1 has 1; write srun",
                      done.stderr)
        self.assertEqual(self.slurm.run(*lacking, "--nproc-per-node=1", "--no-python", "true").returncode, 0)
        done = self.srun("-N1", MUSTER, "--nproc-per-node=gpu", "--no-python", "true")
        self.assertRegex(done.stderr, "got 'gpu', but .*Slurm has given this step none: srun --gpus-per-node N")

    def test_a_node_lost(self):
        mark = f"MUSTER_TEST_{os.getpid()}_{time.monotonic_ns()}"
        worker = "echo rank $RANK of $WORLD_SIZE ready; [ $WORLD_SIZE = 2 ] || sleep 600"
        job = self.begin("srun", "-N3", "--ntasks-per-node=1", "--no-kill", "--kill-on-bad-exit=0", MUSTER,
                         "--nnodes=2:3", "--rdzv-conf=last_call_timeout=1", "--max-restarts=2", "--no-python", "sh", "-c",
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
        done = self.slurm.run("sbatch", "--wait", "--array=0-5", "-N2", "-n2", "-o", out, f"--wrap={words}", timeout=120)
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
                    "--no-python", "sh", "-c", SAY, timeout=120)
                text = out.read_text() if out.exists() else ""
                self.assertEqual(done.returncode, 0, done.stderr + text)
                self.assertEqual(len(re.findall(f"rank . of {world}", text)), world, text)

    def test_requeued_and_resumed(self):
        folder = pathlib.Path(self.folder.name) / "requeue"
        folder.mkdir()
        out = folder / "out"
        done = self.slurm.run(
            "env", f"MUSTER={MUSTER}", f"CHECKPOINTS={folder}/checkpoints", "sbatch", "--parsable", "-N2",
            "-c1", "--gpus-per-node=0", "-o", out, SOURCE / "scripts/slurm/requeue.sh", "--no-python",
            BUILD / "bin/digits_trainer", "--data", SOURCE / "worker_runtime/examples/data/digits.csv", "--epochs",
            "400", "--checkpoint-every", "50")
        self.assertEqual(done.returncode, 0, done.stderr)
        job = done.stdout.strip()
        steps = lambda: list((folder / "checkpoints").glob("step*"))
        self.slurm.until("checkpoint", steps, 60)
        self.slurm.run("scancel", "-s", "USR1", job)
        state = lambda: self.slurm.run("scontrol", "-o", "show", "job", job).stdout
        self.slurm.until("requeued job", lambda: "Restarts=1" in state(), 60)
        # Left alone it waits for two minutes; at once, its nodes would take it for the job that has just ended.
        self.slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now+3")
        self.slurm.until("end of the job", lambda: "JobState=COMPLETED" in state(), 120)
        text = out.read_text()
        self.assertIn("saved and left", text)
        self.assertEqual(text.count("training from the start"), 1, text)
        self.assertRegex(text, r"world 2: going on from the (checkpoint|agents. copy) of step \d+")


if __name__ == "__main__":
    if missing := cluster.missing_parts():
        cluster.skip_or_fail(f"a Slurm cluster needs {', '.join(missing)}")
    unittest.main(verbosity=2)
