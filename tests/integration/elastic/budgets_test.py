"""What failures cost: restarts within a window, a node its place, the job where a restart would be in vain."""
import os
import signal
import sys
import time
import unittest

from job import Job, wait_for
from nodes_test import job_status

FAST = ("--lease", 5)  # a process of a busy machine may stand still for seconds
WINDOW = 20  # s; two restarts one after the other take less, on a busy machine too


class Budgets(unittest.TestCase):
    def test_a_missing_module_is_not_restarted_and_the_report_says_why(self):
        with Job() as job:
            script = job.directory / "train.py"
            script.write_text("import sys\nimport no_such_module_anywhere\n")
            node = job.spawn("muster", "--standalone", "--nproc-per-node", 2, "--max-restarts", 5, script,
                             PYTHON_EXEC=sys.executable)
            job.expect_exit(node, 1)
            said = node.err.read_text()
            self.assertIn("failed before its first step, with an error that a restart would repeat "
                          "(--restart-early-failures restarts anyway)", said)
            self.assertIn("ModuleNotFoundError: No module named 'no_such_module_anywhere'", said)
            self.assertNotIn("next round follows", said)

    def test_who_asks_for_it_gets_the_restarts(self):
        with Job() as job:
            script = job.directory / "train.py"
            script.write_text("import os\nopen(os.environ['ELASTIC_LOG'], 'a').write('run\\n')\nimport no_such_module\n")
            node = job.spawn("muster", "--standalone", "--max-restarts", 2, "--restart-early-failures", script,
                             PYTHON_EXEC=sys.executable)
            job.expect_exit(node, 1)
            self.assertEqual(job.log.read_text().count("run"), 3)
            self.assertIn("no restart is left (2 of 2 used)", node.err.read_text())

    def test_a_budget_with_a_window_is_spent_and_said(self):
        with Job() as job:
            node = job.spawn("muster", "--standalone", "--max-restarts", "2/1h", "--no-python", "/bin/false")
            job.expect_exit(node, 1)
            self.assertIn("no restart is left (--max-restarts 2/1h: 2 within the last", node.err.read_text())

    def test_a_charge_that_is_older_than_the_window_counts_no_more(self):
        with Job() as job:
            node = job.node(*FAST, "--max-restarts", f"1/{WINDOW}s", nnodes="1", nproc=1)
            os.kill(job.round(0, 1)[0]["pid"], signal.SIGKILL)
            second = job.round(1, 1)
            self.assertEqual(second[0]["restart"], 1)
            over = time.monotonic() + WINDOW + 0.1
            wait_for("end of the window", lambda: time.monotonic() >= over)
            os.kill(second[0]["pid"], signal.SIGKILL)
            third = job.round(2, 1)
            self.assertEqual(third[0]["restart"], 2)
            os.kill(third[0]["pid"], signal.SIGKILL)  # the charge before is a moment old
            job.expect_exit(node, 128 + signal.SIGKILL)
            self.assertIn(f"no restart is left (--max-restarts 1/{WINDOW}s: 1 within the last {WINDOW} s, 2 in all)", node.err.read_text())
            self.assertEqual(job.starts(round=3), [])

    def test_a_node_that_fails_twice_gives_its_rank_to_the_spare_and_every_node_says_so(self):
        with Job() as job:
            daemon = job.daemon()
            options = (*FAST, "--spares", 1, "--max-restarts", 9, "--node-failures", "2/4")
            healthy = job.node(*options, nproc=1)
            broken = job.node(*options, nproc=1, worker=("--fail-on", job.directory / "break", 3, "--until", "done"))
            wait_for("both nodes", lambda: job_status(job).count('"host"') == 2)
            spare = job.node(*options, nproc=1)
            first = job.round(0, 2)
            group = next(line["group"] for line in first.values() if job.parent(job.parent(line["pid"])) == broken.pid)
            job.touch("break")
            third = job.round(2, 2)  # after round 1, in place, in which it failed again at once
            taken = next(line for line in third.values() if job.parent(job.parent(line["pid"])) == spare.pid)
            self.assertEqual(taken["group"], group)
            self.assertEqual(taken["restart"], 2)
            why = (f"(pid {broken.pid}) is excluded: it was the first cause of the end of 2 of the last 4 rounds "
                   "(--node-failures 2/4)")
            for node in (healthy, broken, spare):
                wait_for("line about the node that is left out", lambda: why in node.err.read_text())
            job.finish()
            for node in (healthy, broken, spare):
                job.expect_exit(node, 0)
            job.expect_gone(but=[daemon])

    def test_a_host_that_failed_is_not_forgiven_for_a_new_agent(self):
        with Job() as job:
            daemon = job.daemon()
            options = (*FAST, "--max-restarts", 9, "--node-failures", "3/9")

            def kill_worker(node, number, workers):
                mine = next(line for line in job.round(number, workers).values() if job.parent(job.parent(line["pid"])) == node.pid)
                os.kill(mine["pid"], signal.SIGKILL)

            healthy, broken = (job.node(*options, nnodes="1:2", nproc=1) for _ in range(2))
            kill_worker(broken, 0, 2)
            job.round(1, 2)  # in place
            broken.kill()
            job.round(2, 1)
            again = job.node(*options, nnodes="1:2", nproc=1)
            kill_worker(again, 3, 2)
            job.round(4, 1)
            why = f"(pid {again.pid}) is excluded: it was the first cause of the end of 3 of the last 9 rounds"
            wait_for("line about the host's new agent", lambda: why in healthy.err.read_text())
            job.finish()
            job.expect_exit(healthy, 0)
            job.expect_exit(again, 0)
            job.expect_gone(but=[daemon])


if __name__ == "__main__":
    unittest.main(verbosity=2)
