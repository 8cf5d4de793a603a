"""One node leaves and the job goes on; all workers are told that the end is near."""
import os
import signal
import subprocess
import unittest

from job import BIN, WORKERS, Job, as_user, wait_for
from nodes_test import job_status

FAST = ("--lease", 10)  # a process of a busy machine may stand still for seconds


def command(job, verb, *arguments, **extra):
    return subprocess.run([BIN / "muster", verb, *map(str, arguments)], capture_output=True, text=True, timeout=60,
                          env=job.environment(**extra))


def drain(job, *arguments, **extra):
    return command(job, "drain", *arguments, **extra)


def node_name(job, launcher):
    return f"{os.uname().nodename}:{launcher.pid}"


class Drain(unittest.TestCase):
    def test_a_drained_node_saves_and_leaves_and_a_spare_takes_its_rank(self):
        with Job() as job:
            daemon = job.daemon()
            options = (*FAST, "--spares", 1)
            saving = ("--save", job.directory / "saved", 100, "--until", "done")
            stays = job.node(*options, nproc=1)
            leaves = job.node(*options, nproc=1, worker=saving)
            wait_for("both nodes", lambda: job_status(job).count('"host"') == 2)
            spare = job.node(*options, nproc=1)
            first = job.round(0, 2)
            group = next(line["group"] for line in first.values() if job.parent(job.parent(line["pid"])) == leaves.pid)
            done = drain(job, node_name(job, leaves), "--job", job.id)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"{node_name(job, leaves)} was ordered to stop its workers and leave", done.stdout)
            job.expect_exit(leaves, 76)
            self.assertEqual((job.directory / "saved").read_text(), "1\n")  # one signal, and its grace
            second = job.round(1, 2)
            taken = next(line for line in second.values() if job.parent(job.parent(line["pid"])) == spare.pid)
            self.assertEqual((taken["group"], taken["restart"]), (group, 0))
            job.finish()
            job.expect_exit(stays, 0)
            job.expect_exit(spare, 0)
            job.expect_gone(but=[daemon])

    def test_a_node_or_job_that_does_not_exist_is_answered_with_those_that_do(self):
        with Job() as job:
            job.daemon()
            node = job.node(*FAST, nnodes="1:1", nproc=1)
            job.round(0, 1)
            wrong = drain(job, "gpu99", "--job", job.id)
            self.assertEqual(wrong.returncode, 1)
            self.assertIn(f"the job has no node 'gpu99'; it has {node_name(job, node)}", wrong.stderr)
            wrong = drain(job, "gpu99", "--job", "nosuchjob")
            self.assertEqual(wrong.returncode, 1)
            self.assertIn("no job 'nosuchjob' has an agent on this host; jobs on this host: ", wrong.stderr)
            self.assertIn(job.id, wrong.stderr)
            for words in ((), ("a", "b"), ("--what",), ("a", "--job")):
                self.assertEqual(drain(job, *words).returncode, 2, words)
            job.finish()
            job.expect_exit(node, 0)

    def test_a_job_of_one_node_is_found_by_its_name(self):
        with Job() as job, Job() as other:
            alone = {one: one.spawn("muster", "--rdzv-id", one.id, "--no-python",
                                    WORKERS / "elastic", "--until", "done") for one in (job, other)}
            for one, node in alone.items():
                one.round(0, 1)
                wrong = drain(one, "gpu99", "--job", one.id)
                self.assertIn(f"the job has no node 'gpu99'; it has {node_name(one, node)}", wrong.stderr)
            which = drain(job, "gpu99")
            self.assertIn("several jobs run on this host; write --job ID", which.stderr)
            for one, node in alone.items():
                self.assertIn(one.id, which.stderr)
                one.finish()
                one.expect_exit(node, 0)

    def test_the_node_that_serves_the_rendezvous_is_not_drained(self):
        with Job() as job:
            host = job.node(*FAST, nnodes="1:1", nproc=1)
            job.round(0, 1)
            wrong = drain(job, node_name(job, host), "--job", job.id)
            self.assertEqual(wrong.returncode, 1)
            self.assertIn("serves the rendezvous", wrong.stderr)
            job.finish()
            job.expect_exit(host, 0)

    @unittest.skipUnless(os.geteuid() == 0, "needs another user")
    def test_another_users_command_is_not_taken(self):
        with Job() as job:
            job.daemon()
            node = job.node(*FAST, nnodes="1:1", nproc=1)
            job.round(0, 1)
            refused = subprocess.run([*as_user(65534), BIN / "muster",
                                      "drain", node_name(job, node)], capture_output=True, text=True, timeout=60)
            self.assertEqual(refused.returncode, 1)
            self.assertIn("no agent of this user runs on this host", refused.stderr)
            job.finish()
            job.expect_exit(node, 0)

    def test_the_preemption_signal_reaches_the_workers_of_all_nodes(self):
        with Job() as job:
            daemon = job.daemon()
            nodes = [job.node(*FAST, "--preemption-signal", "SIGTERM", "--signals-to-handle", "SIGINT", nproc=1,
                              worker=("--save", job.directory / f"saved{index}", 10)) for index in range(2)]
            job.round(0, 2)
            nodes[0].send_signal(signal.SIGTERM)
            for index, node in enumerate(nodes):
                job.expect_exit(node, 0)  # they save and exit 0 by themselves
                self.assertEqual((job.directory / f"saved{index}").read_text(), "1\n")
                self.assertIn("notice to this node's workers: SIGTERM to", node.err.read_text())
            job.expect_gone(but=[daemon])

    def test_a_preemption_while_the_daemon_is_away_is_told_here_at_once_and_elsewhere_when_it_is_back(self):
        with Job() as job:
            daemon = job.daemon()
            nodes = [job.node(*FAST, "--preemption-signal", "SIGTERM", "--signals-to-handle", "SIGINT", nproc=1,
                              worker=("--save", job.directory / f"saved{index}", 10)) for index in range(2)]
            job.round(0, 2)
            daemon.kill()
            daemon.wait()
            nodes[0].send_signal(signal.SIGTERM)
            wait_for("save of the preempted node", (job.directory / "saved0").exists)
            wait_for("line about the daemon", lambda: "no answer from the rendezvous" in nodes[0].err.read_text())
            self.assertFalse((job.directory / "saved1").exists())
            daemon = job.spawn("musterd", "--port", job.port)
            for index, node in enumerate(nodes):
                job.expect_exit(node, 0)
                self.assertEqual((job.directory / f"saved{index}").read_text(), "1\n")  # one notice each
            job.expect_gone(but=[daemon])

    def test_workers_without_a_handler_survive_the_notice(self):
        with Job() as job:
            node = job.node(*FAST, "--preemption-signal", "SIGUSR1", nnodes="1:1", nproc=2)
            for line in job.round(0, 2).values():
                os.kill(line["pid"], signal.SIGUSR1)  # as Slurm does, with all processes of a step
            node.send_signal(signal.SIGUSR1)
            wait_for("line about the missing handler",
                     lambda: "SIGUSR1 was not forwarded: local rank 0, 1 has no handler" in node.err.read_text())
            job.finish()
            job.expect_exit(node, 0)

    def test_a_notice_that_comes_while_the_launcher_ends_changes_nothing(self):
        """A host that is about to go may send it every few seconds."""
        with Job() as job:
            report = job.directory / "report.json"
            out, into = os.pipe()
            node = job.spawn("muster", "--preemption-signal", "SIGUSR1", "--report", report, "--log-dir", job.directory / "logs",
                             "--tee", 3, "--no-python", "/bin/sh", "-c", "yes | head -c 1000000", stdout=into)
            os.close(into)
            # Its agent and the guardians are gone, and it waits for this reader, up to 5 s: this process may stand still for longer.
            wait_for("the last seconds", lambda: report.exists() and set(job.processes()) <= {node.pid})
            node.send_signal(signal.SIGUSR1)
            with open(out, "rb") as console:
                console.read()
            job.expect_exit(node, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
