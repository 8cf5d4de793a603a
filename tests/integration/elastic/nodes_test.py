"""Nodes that come, go, die and stand by."""
import os
import signal
import unittest

from job import Job, wait_for

FAST = ("--lease", 5)  # a process of a busy machine may stand still for seconds
SLOW = ("--lease", 12)  # a guardian may be late by 0.3 of it


class Nodes(unittest.TestCase):
    def test_a_killed_agent_is_left_behind_and_the_others_go_on(self):
        with Job() as job:
            daemon = job.daemon()
            survivor = job.node(*FAST, nnodes="1:2")
            victim = job.node(*FAST, nnodes="1:2")
            job.round(0, 4)
            victim.kill()
            second = job.round(1, 2)
            self.assertEqual({line["restart"] for line in second.values()}, {0})  # a lost node charges nothing
            self.assertEqual({line["groups"] for line in second.values()}, {1})
            job.finish()
            job.expect_exit(survivor, 0)
            job.expect_gone(but=[daemon])

    def test_a_killed_agent_beside_an_embedded_daemon(self):
        with Job() as job:
            host = job.node(*FAST, nnodes="1:2")
            wait_for("the host's daemon", job.answers)
            victim = job.node(*FAST, nnodes="1:2")
            job.round(0, 4)
            victim.kill()
            job.round(1, 2)
            job.finish()
            job.expect_exit(host, 0)
            job.expect_gone()

    def test_a_stopped_agents_workers_are_gone_and_the_others_go_on(self):
        with Job() as job:
            daemon = job.daemon()
            survivor = job.node(*SLOW, nnodes="1:2")
            victim = job.node(*SLOW, nnodes="1:2", worker=("--grandchild", "--until", "done"))
            first = job.round(0, 4)
            theirs = {line["pid"] for line in first.values() if job.parent(job.parent(line["pid"])) == victim.pid}
            self.assertEqual(len(theirs), 2)
            os.kill(victim.pid, signal.SIGSTOP)
            try:
                job.round(1, 2)
                self.assertFalse(theirs & set(job.processes()))  # never two rounds at once
                self.assertFalse(set(job.grandchildren()) & set(job.processes()))
            finally:
                os.kill(victim.pid, signal.SIGCONT)
            job.finish()
            job.expect_exit(survivor, 0)
            job.exit_code(victim)
            job.expect_gone(but=[daemon])

    def test_a_late_node_is_taken_in_by_one_restart(self):
        with Job() as job:
            daemon = job.daemon()
            terms = {"nnodes": "1:2", "conf": "last_call_timeout=1"}
            early = job.node(*FAST, **terms)
            job.round(0, 2)
            late = job.node(*FAST, **terms)
            both = job.round(1, 4)
            self.assertEqual({line["restart"] for line in both.values()}, {0})
            job.finish()
            job.expect_exit(early, 0)
            job.expect_exit(late, 0)
            job.expect_gone(but=[daemon])

    def test_a_surplus_node_parks_and_takes_the_lost_ones_rank(self):
        with Job() as job:
            daemon = job.daemon()
            nodes = [job.node(*FAST, nnodes="2:2") for _ in range(2)]
            first = job.round(0, 4)
            spare = job.node(*FAST, nnodes="2:2")
            wait_for("parked spare", lambda: '"parked"' in job_status(job))
            victim_rank = 3
            victim_pid = first[victim_rank]["pid"]
            victim = next(node for node in nodes if job.parent(job.parent(victim_pid)) == node.pid)
            group = first[victim_rank]["group"]
            victim.kill()
            second = job.round(1, 4)
            taken = [line for line in second.values() if job.parent(job.parent(line["pid"])) == spare.pid]
            self.assertEqual({line["group"] for line in taken}, {group})
            job.finish()
            for node in [*nodes, spare]:
                if node is not victim:
                    job.expect_exit(node, 0)
            job.expect_gone(but=[daemon])

    def test_a_parked_node_leaves_with_the_job(self):
        with Job() as job:
            job.daemon()
            node = job.node(nnodes="1:1", nproc=1)
            job.round(0, 1)
            spare = job.node(nnodes="1:1", nproc=1)
            wait_for("parked spare", lambda: '"parked"' in job_status(job))
            job.finish()
            job.expect_exit(node, 0)
            job.expect_exit(spare, 0)

    def test_different_worker_counts_and_roles_share_a_world(self):
        with Job() as job:
            job.daemon()
            nodes = [job.node("--role", "trainer", nproc=1), job.node("--role", "reader", nproc=3)]
            starts = job.round(0, 4)
            self.assertEqual(sorted(starts), [0, 1, 2, 3])
            self.assertEqual(sorted(line["role"] for line in starts.values()), ["reader"] * 3 + ["trainer"])
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)

    def test_terms_that_differ_are_refused_with_both_values(self):
        with Job() as job:
            job.daemon()
            job.node("--max-restarts", 3, nnodes="2:3")
            wait_for("first member", lambda: job.id in job_status(job))
            other = job.node("--max-restarts", 5, nnodes="2:3")
            job.expect_exit(other, 78)
            said = other.err.read_text()
            self.assertIn("3", said)
            self.assertIn("5", said)
            self.assertIn("max-restarts", said)


def job_status(job):
    import urllib.request
    return urllib.request.urlopen(f"http://127.0.0.1:{job.port}/status", timeout=60).read().decode()


if __name__ == "__main__":
    unittest.main(verbosity=2)
