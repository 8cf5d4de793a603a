"""Stops, and that nothing is left after any of them: as root and as an ordinary user, with and without a cgroup."""
import os
import signal
import unittest

from job import Job, wait_for

NOBODY = 65534
STUBBORN = ("--ignore-term", "--grandchild", "--until", "done")


def users():
    return [None, NOBODY] if os.getuid() == 0 else [None]


class Stops(unittest.TestCase):
    def test_sigterm_during_rendezvous_ends_the_launcher(self):
        with Job() as job:
            node = job.node(nnodes="2")
            wait_for("the host's daemon", job.answers)
            node.terminate()
            job.expect_exit(node, 128 + signal.SIGTERM, 5)
            job.expect_gone()

    def test_sigint_reaches_the_workers_and_is_the_exit_code(self):
        with Job() as job:
            node = job.node(nnodes="1")
            job.round(0, 2)
            node.send_signal(signal.SIGINT)
            job.expect_exit(node, 128 + signal.SIGINT, 5)
            job.expect_gone()

    def test_a_second_signal_does_not_wait_for_the_grace(self):
        with Job() as job:
            node = job.node("--shutdown-timeout", 60, nnodes="1", worker=STUBBORN)
            job.round(0, 2)
            wait_for("grandchildren", lambda: len(job.grandchildren()) == 2)
            node.terminate()
            wait_for("the first signal's word", lambda: "SIGTERM" in node.err.read_text() or node.poll() is not None)
            self.assertIsNone(node.poll())
            node.terminate()
            job.expect_exit(node, 128 + signal.SIGTERM, 10)
            job.expect_gone()

    def test_an_agent_killed_leaves_nothing(self):
        for user in users():
            with self.subTest(user=user), Job(user) as job:
                node = job.node(nnodes="1", worker=STUBBORN)
                job.round(0, 2)
                wait_for("grandchildren", lambda: len(job.grandchildren()) == 2)
                node.kill()
                node.wait()
                job.expect_gone(2.0)

    def test_an_agent_stopped_leaves_no_worker(self):
        for user in users():
            with self.subTest(user=user), Job(user) as job:
                node = job.node("--lease", 1, nnodes="1", worker=STUBBORN)
                starts = job.round(0, 2)
                wait_for("grandchildren", lambda: len(job.grandchildren()) == 2)
                workers = {line["pid"] for line in starts.values()} | set(job.grandchildren())
                os.kill(node.pid, signal.SIGSTOP)
                try:
                    wait_for("end of the workers", lambda: not workers & set(job.processes()), 3.0)
                finally:
                    os.kill(node.pid, signal.SIGCONT)

    def test_a_guardian_killed_leaves_nothing_and_the_launcher_says_so(self):
        with Job() as job:
            node = job.node(nnodes="1", worker=STUBBORN)
            starts = job.round(0, 2)
            wait_for("grandchildren", lambda: len(job.grandchildren()) == 2)
            os.kill(job.parent(starts[0]["pid"]), signal.SIGKILL)
            self.assertNotEqual(job.exit_code(node), 0)
            self.assertIn("guardian", node.err.read_text())
            job.expect_gone(2.0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
