"""muster fault: parts of a job are lost on order, and what comes of it is told with its true cause."""
import json
import os
import pathlib
import re
import subprocess
import unittest

from drain_test import FAST, command, node_name
from job import Job, wait_for
from nodes_test import job_status
from secret_test import secret_file


def can_limit_memory():
    """Root, and a memory controller that reaches groups of our own: version 1, or version 2 where we are not its root. In CI
    it must be there, or the test fails."""
    if os.environ.get("CI") == "true":
        return True
    if os.geteuid() != 0:
        return False
    if pathlib.Path("/sys/fs/cgroup/memory/cgroup.procs").exists():
        return True
    own = pathlib.Path("/proc/self/cgroup").read_text().strip().rpartition("0::/")[2]
    return bool(own) and pathlib.Path("/sys/fs/cgroup", own, "memory.max").exists()


def fault(job, *words, **extra):
    return command(job, "fault", *words, **extra)


def injected(job, *words, **extra):
    def started():
        """A worker may have written its first line before its agent hears that it runs, and an agent may be connecting again."""
        done = fault(job, *words, "--job", job.id, **extra)
        return None if "has not started yet" in done.stderr or "try again later" in done.stderr else done
    done = wait_for("rank that runs", started)
    assert done.returncode == 0, f"{words}: {done.stderr}\n{job.story()}"
    return done.stdout


def state_of(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


class Fault(unittest.TestCase):
    def of_one_worker(self, *words, options=()):
        """The report of a job of two nodes that ends with what was done to its rank 1, as the second node has it."""
        with Job() as job:
            daemon = job.daemon()
            reports = [job.directory / f"report{index}" for index in range(2)]
            nodes = [job.node(*FAST, "--allow-faults", "--report", report, *options, nproc=1) for report in reports]
            job.round(0, 2)
            said = injected(job, *words)
            for node in nodes:
                job.exit_code(node)
            job.expect_gone(but=[daemon])  # what made the memory run out stays a second longer
            firsts = [json.loads(report.read_text())["first"] for report in reports]
            self.assertEqual(firsts[0], firsts[1])
            self.assertEqual(firsts[0]["rank"], 1, job.story())
            for node in nodes:
                self.assertIn("injected by muster fault", node.err.read_text())
            return firsts[0], said

    def test_a_killed_worker_is_reported_with_its_true_cause(self):
        first, said = self.of_one_worker("kill", "rank", 1)
        self.assertIn("SIGKILL", first["end"]["text"])
        self.assertIn("injected by muster fault kill rank 1", first["cause"]["text"])
        self.assertRegex(said, r"done to rank 1 \(pid \d+\)")

    @unittest.skipUnless(can_limit_memory(), "makes a memory control group (root)")
    def test_a_worker_without_memory_is_killed_by_the_kernel(self):
        first, _ = self.of_one_worker("oom", "rank", 1, options=("--shutdown-timeout", 2))
        self.assertEqual(first["cause"]["kind"], "out_of_memory")
        self.assertRegex(first["cause"]["text"], r"its limit was 64 MiB \(\S+/memory\.\w+\), peak usage 6\d MiB; "
                                                 r"injected by muster fault oom rank 1")
        self.assertIn("SIGKILL", first["end"]["text"])

    def test_a_stopped_and_a_slowed_worker_go_on(self):
        with Job() as job:
            job.daemon()
            node = job.node(*FAST, "--allow-faults", nnodes="1", nproc=2)
            pids = {rank: line["pid"] for rank, line in job.round(0, 2).items()}
            injected(job, "stop", "rank", 1, "--for", 8)  # it is seen within this time on a busy machine, too
            wait_for("stopped worker", lambda: state_of(pids[1]) == "T")
            self.assertNotEqual(state_of(pids[0]), "T")
            wait_for("worker that goes on", lambda: state_of(pids[1]) != "T")
            injected(job, "slow", "rank", 0, "--for", 300, "--stopped", 60)
            for wanted in (False, True, False, True):
                wait_for("turn of the slow worker", lambda want=wanted: (state_of(pids[0]) == "T") == want)
            job.finish()
            job.expect_exit(node, 0)

    def test_a_killed_stopped_or_cut_off_agent_is_lost_and_the_job_goes_on(self):
        for kind, how in (("kill", "died|its connection closed"), ("stop", "no message for|closed"), ("partition", "no message for")):
            with self.subTest(kind=kind), Job() as job:
                daemon = job.daemon()
                stays = job.node(*FAST, "--allow-faults", nnodes="1:2", nproc=1)
                wait_for("the first node", lambda: '"host"' in job_status(job))
                lost = job.node(*FAST, "--allow-faults", nnodes="1:2", nproc=1)
                first = job.round(0, 2)
                victim = next(one["pid"] for one in first.values() if job.parent(job.parent(one["pid"])) == lost.pid)
                time = () if kind == "kill" else ("--for", 35)  # longer than a busy machine needs to give it up
                injected(job, kind, "node", node_name(job, lost), *time)
                job.round(1, 1)
                self.assertFalse(pathlib.Path(f"/proc/{victim}").exists())
                lost_so = rf"was lost: .*({how}).*; injected by muster fault {kind} node"
                wait_for(f"line like '{lost_so}'", lambda: re.search(lost_so, stays.err.read_text()))
                if kind == "kill":  # which its guardian proves, half a second after the connection's end on a busy machine
                    wait_for("word of the agent's death", lambda: "its agent died" in daemon.err.read_text())
                else:
                    job.round(2, 2)  # it comes back by itself
                job.finish()
                job.expect_exit(stays, 0)
                job.expect_exit(lost, -9 if kind == "kill" else 0)
                job.expect_gone(but=[daemon])

    def test_a_killed_daemon_is_missed_by_nobody(self):
        with Job() as job:
            daemon = job.daemon("--allow-faults")
            node = job.node("--lease", 15, "--allow-faults", nnodes="1", nproc=1)
            job.round(0, 1)
            self.assertIn("the fault strikes this daemon now", injected(job, "kill", "daemon"))
            job.expect_exit(daemon, -9)
            job.daemon()
            wait_for("the agent's return", lambda: '"connected":true' in job_status(job).replace(" ", ""))
            job.finish()
            job.expect_exit(node, 0)
            self.assertEqual(len(job.starts()), 1)

    def test_nothing_is_injected_into_who_does_not_allow_it(self):
        with Job() as job:
            job.daemon()
            node = job.node(*FAST, nnodes="1", nproc=2)
            job.round(0, 2)
            for words in (("kill", "rank", 1), ("kill", "node", node_name(job, node)), ("oom", "rank", 0),
                          ("partition", "node", node_name(job, node)), ("kill", "daemon")):
                refused = fault(job, *words, "--job", job.id)
                self.assertEqual(refused.returncode, 1, words)
                self.assertIn("was started without --allow-faults", refused.stderr)
            job.finish()
            job.expect_exit(node, 0)
            self.assertEqual(len(job.starts()), 2)

    def test_it_needs_the_jobs_secret_from_elsewhere(self):
        with Job() as job:
            secret = secret_file(job, "secret", "a long and random text\n")
            wrong = secret_file(job, "other", "another long text\n")
            job.spawn("musterd", "--port", job.port, "--first-start", **secret)
            wait_for("listening musterd", job.answers)
            node = job.node(*FAST, "--allow-faults", "--max-restarts", 1, nnodes="1", nproc=1, **secret)
            job.round(0, 1)
            words = ("kill", "rank", 0, "--rdzv-endpoint", f"127.0.0.1:{job.port}", "--job", job.id)
            refused = fault(job, *words, **wrong)
            self.assertEqual(refused.returncode, 1)
            self.assertIn("has another secret than this rendezvous", refused.stderr)
            self.assertEqual(fault(job, *words).returncode, 2)
            self.assertEqual(len(job.starts()), 1)
            injected(job, "kill", "rank", 0, "--rdzv-endpoint", f"127.0.0.1:{job.port}", **secret)
            job.round(1, 1)
            job.finish()
            job.expect_exit(node, 0)

    def test_what_does_not_exist_is_answered_with_what_does(self):
        with Job() as job:
            job.daemon()
            node = job.node(*FAST, "--allow-faults", nnodes="1", nproc=2)
            job.round(0, 2)
            for words, says in ((("kill", "rank", 2), "has no rank 2; it has 0 to 1"),
                                (("stop", "node", "gpu99"), f"has no node 'gpu99'; it has {node_name(job, node)}")):
                wrong = fault(job, *words, "--job", job.id)
                self.assertEqual(wrong.returncode, 1, words)
                self.assertIn(says, wrong.stderr)
            wrong = fault(job, "kill", "rank", 0, "--job", "nosuchjob")
            self.assertIn("no job 'nosuchjob' has an agent on this host; jobs on this host: ", wrong.stderr)
            for words, says in (((), "the fault is missing"), (("shoot", "rank", 1), "accepted are kill, stop, slow"),
                                (("kill",), "write rank N, node NAME or daemon"), (("kill", "rank"), "the rank is missing; write rank N"),
                                (("kill", "rank", -1), "unknown option"), (("kill", "rank", "x"), "is not a number"),
                                (("kill", "rank", 0, 1), "only one target is accepted"), (("kill", "rank", 0, "--for", 3), "means nothing to kill"),
                                (("oom", "daemon"), "for a worker alone"), (("partition", "rank", 1), "only a node can be cut off"),
                                (("slow", "rank", 0, "--stopped", 100), "percentage from 1 to 99"),
                                (("stop", "rank", 0, "--for", 7200), "an hour at most"), (("stop", "rank", 0, "--for", -1), "is not a time")):
                wrong = fault(job, *words)
                self.assertEqual(wrong.returncode, 2, words)
                self.assertIn(says, wrong.stderr)
            self.assertEqual(fault(job, "--help").returncode, 0)
            job.finish()
            job.expect_exit(node, 0)
            self.assertEqual(len(job.starts()), 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
