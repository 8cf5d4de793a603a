"""A daemon that is killed and started again beneath its job, with each kind of state."""
import contextlib
import json
import os
import signal
import time
import unittest
import urllib.request

from job import Job, wait_for

FAST = ("--lease", 10)  # a process of a busy machine may stand still for seconds, and agents are waited for a quarter of it
AWAY = 5.0  # s; longer than the 0.4 lease after which the agents ask each other
BACK = 60.0  # s


def status(job):
    """The nodes of the one job, as the daemon tells; empty while there is no daemon or no job."""
    with contextlib.suppress(OSError, ValueError):
        with urllib.request.urlopen(f"http://127.0.0.1:{job.port}/status", timeout=60) as answer:
            jobs = json.load(answer)["jobs"]
            return jobs[0] if jobs else {}
    return {}


class Restart(unittest.TestCase):
    def start(self, job, state, *options):
        daemon = job.spawn("musterd", "--port", job.port, "--state", state, *options)
        wait_for("listening musterd", job.answers)
        return daemon

    def restart(self, job, daemon, state, away=AWAY):
        """Kills the daemon, and starts another one; returns how long the agents took to be back, in s."""
        daemon.kill()
        daemon.wait()
        if away:
            end = time.monotonic() + away
            wait_for("the time without a daemon", lambda: time.monotonic() >= end)
        daemon = self.start(job, state)
        started = time.monotonic()
        wait_for("agents that are back", lambda: self.all_back(job), BACK)
        return daemon, time.monotonic() - started

    def all_back(self, job):
        nodes = status(job).get("nodes", [])
        return len(nodes) == 2 and all(node["connected"] for node in nodes)

    def no_worker_notices(self, state):
        with Job() as job:
            where = state.format(directory=job.directory)
            daemon = self.start(job, where, "--first-start")
            nodes = [job.node(*FAST, "--max-restarts", 3) for _ in range(2)]
            first = job.round(0, 4)
            daemon, back = self.restart(job, daemon, where)
            print(f"{state}: agents back after {back:.3f} s")
            self.assertLessEqual({line["pid"] for line in first.values()}, set(job.processes()))
            os.kill(first[1]["pid"], signal.SIGKILL)
            second = job.round(1, 4)
            self.assertEqual({line["restart"] for line in second.values()}, {1})
            daemon, _ = self.restart(job, daemon, where, away=0)
            os.kill(second[3]["pid"], signal.SIGKILL)
            third = job.round(2, 4)
            self.assertEqual({line["restart"] for line in third.values()}, {2})
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)
            job.expect_gone(but=[daemon])

    def test_no_worker_notices_a_restart_with_state_in_a_file(self):
        self.no_worker_notices("sqlite:{directory}/state.db")

    def test_no_worker_notices_a_restart_without_state(self):
        self.no_worker_notices("memory")

    def test_a_stopped_daemon_is_waited_for_on_its_own_host_and_reported_to_a_node_with_workers(self):
        with Job() as job:
            daemon = job.daemon()

            def expect_line(text):
                wait_for(text, lambda: text in node.err.read_text())

            daemon.send_signal(signal.SIGSTOP)
            node = job.node(*FAST, nnodes="1")
            expect_line("If it is the rendezvous of this job, it is stopped or overloaded")
            daemon.send_signal(signal.SIGCONT)
            job.round(0, 2)
            daemon.send_signal(signal.SIGSTOP)
            expect_line("the workers keep running; timeout in")
            daemon.send_signal(signal.SIGCONT)
            expect_line("answers again after")
            job.finish()
            job.expect_exit(node, 0)
            job.expect_gone(but=[daemon])
            self.assertEqual(node.err.read_text().count("the workers keep running"), 1)

    def test_a_failure_while_the_daemon_is_away_is_charged_once(self):
        with Job() as job:
            where = f"sqlite:{job.directory}/state.db"
            daemon = self.start(job, where, "--first-start")
            nodes = [job.node(*FAST, "--max-restarts", 1) for _ in range(2)]
            first = job.round(0, 4)
            daemon.kill()
            daemon.wait()
            os.kill(first[0]["pid"], signal.SIGKILL)
            wait_for("end of the worker", lambda: first[0]["pid"] not in job.processes())
            daemon = self.start(job, where)
            second = job.round(1, 4)
            self.assertEqual({line["restart"] for line in second.values()}, {1})
            # The budget is known to be spent, also by a daemon that did not spend it.
            daemon, _ = self.restart(job, daemon, where, away=0)
            os.kill(second[2]["pid"], signal.SIGKILL)
            for node in nodes:
                self.assertNotEqual(job.exit_code(node), 0)
            self.assertEqual(len(job.starts(round=2)), 0, job.story())
            job.expect_gone(but=[daemon])

    def expect_help(self, node):
        for help in ("--rdzv-backend etcd", "musterd --state etcd://", "--rdzv-endpoint", "musterd --state sqlite:PATH"):
            self.assertIn(help, node.err.read_text())

    def test_who_loses_the_only_host_keeps_its_workers_and_then_says_what_would_have_saved_the_job(self):
        with Job() as job:
            lease = 15  # s; of it an agent may stand still for a quarter while the others rely on its word
            daemon = self.start(job, "memory", "--first-start")
            nodes = [job.node("--lease", lease, "--rdzv-lost-timeout", 3 * lease) for _ in range(2)]
            first = job.round(0, 4)
            daemon.kill()
            daemon.wait()
            end = time.monotonic() + lease
            wait_for("the time without a daemon", lambda: time.monotonic() >= end)
            self.assertLessEqual({line["pid"] for line in first.values()}, set(job.processes()))
            for node in nodes:
                job.expect_exit(node, 75)
                self.expect_help(node)
            job.expect_gone()

    def test_who_loses_the_node_that_had_the_rendezvous_says_the_same(self):
        # It never answers, so the others are fenced and wait for a round that nobody begins: another way out than above.
        with Job() as job:
            nodes = [job.node("--lease", 5, "--rdzv-lost-timeout", 10, nnodes="2:3", nproc=1,
                              conf=f"last_call_timeout=60,is_host={int(index == 0)}") for index in range(3)]
            job.round(0, 3)
            nodes[0].kill()
            for node in nodes[1:]:
                job.expect_exit(node, 75)
                self.assertIn("no round within", node.err.read_text())
                self.expect_help(node)
            nodes[0].wait()
            job.expect_gone()

    def test_a_damaged_state_is_kept_aside_and_taught_anew(self):
        with Job() as job:
            path = job.directory / "state.db"
            where = f"sqlite:{path}"
            daemon = self.start(job, where, "--first-start")
            nodes = [job.node(*FAST, "--max-restarts", 3) for _ in range(2)]
            first = job.round(0, 4)
            daemon.kill()
            daemon.wait()
            for name in ("state.db", "state.db-wal"):
                with open(job.directory / name, "r+b") as file:
                    file.write(os.urandom(64))
            daemon = self.start(job, where)
            wait_for("agents that are back", lambda: self.all_back(job), BACK)
            wait_for("line about the file", lambda: "; renamed to " in daemon.err.read_text())
            self.assertTrue((job.directory / "state.db.aside-1").exists())
            self.assertLessEqual({line["pid"] for line in first.values()}, set(job.processes()))
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)
            job.expect_gone(but=[daemon])


if __name__ == "__main__":
    unittest.main(verbosity=2)
