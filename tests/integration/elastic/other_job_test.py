"""Two jobs that share an endpoint and an id by accident, and nodes that stand by."""
import json
import os
import unittest

from job import NOBODY, Job, as_user, wait_for

ONE = {"nnodes": "1:1", "nproc": 1}


class OtherJob(unittest.TestCase):
    def said(self, node, *words):
        """Waits until the launcher has printed a line with all of these words."""
        def line():
            return next((line for line in node.err.read_text().splitlines() if all(word in line for word in words)), None)
        return wait_for(f"line with {words}", line)

    def assert_refused(self, job, other):
        job.expect_exit(other, 78)
        line = self.said(other, "is full and runs other arguments")
        self.assertIn(f"job '{job.id}' at 127.0.0.1:{job.port} is full and runs other arguments: ", line)
        self.assertIn("`elastic --until done`", line)
        self.assertIn("`elastic --until 'another day'`", line)
        self.assertTrue(line.endswith("; if this is another job, give it its own --rdzv-id or port"), line)

    def test_another_job_at_a_full_ones_endpoint_is_refused_and_the_first_one_goes_on(self):
        with Job() as job:
            job.daemon()
            node = job.node(**ONE)
            job.round(0, 1)
            self.assert_refused(job, job.node(worker=("--until", "another day"), **ONE))
            job.finish()
            job.expect_exit(node, 0)
            self.assertEqual(len(job.starts()), 1)

    def test_the_same_beside_an_embedded_daemon(self):
        with Job() as job:
            node = job.node(**ONE)
            job.round(0, 1)
            self.assert_refused(job, job.node(worker=("--until", "another day"), **ONE))
            job.finish()
            job.expect_exit(node, 0)

    def test_a_daemon_that_goes_on_from_its_state_knows_the_jobs_arguments(self):
        with Job() as job:
            state = ("--state", f"sqlite:{job.directory / 'state'}")
            daemon = job.daemon(*state)
            node = job.node(**ONE)
            job.round(0, 1)
            daemon.kill()
            daemon.wait()
            job.daemon(*state)
            self.assert_refused(job, job.node(worker=("--until", "another day"), **ONE))
            job.finish()
            job.expect_exit(node, 0)

    @unittest.skipUnless(os.getuid() == 0 or os.environ.get("CI"), "needs root, which may become another user")
    def test_another_user_of_the_host_neither_joins_a_job_nor_holds_it_up(self):
        as_nobody = as_user(NOBODY)
        with Job() as job:
            node = job.node()  # hosts the job, which waits for a second node
            wait_for("the daemon", job.answers)
            stranger = job.node("--rdzv-conf", "is_host=0", before=as_nobody)
            job.expect_exit(stranger, 78)
            self.said(stranger, f"the connection comes from user {NOBODY} of this host", "serves user 0 and root only", "--local-users=all")
            own_daemon = job.node(before=as_nobody)  # would host a job of its own at the port
            job.expect_exit(own_daemon, 78)
            self.said(own_daemon, "it serves another job: choose another port")
            second = job.node()
            job.round(0, 4)
            job.finish()
            for one in (node, second):
                job.expect_exit(one, 0)
        with Job() as job:
            job.daemon("--local-users", "all")
            nodes = [job.node(), job.node("--local-users", "all", before=as_nobody)]
            job.round(0, 4)
            job.finish()
            for one in nodes:
                job.expect_exit(one, 0)

    def test_a_spare_is_told_at_once_and_at_the_end_that_it_has_not_run_its_program(self):
        with Job() as job:
            job.daemon()
            node = job.node(**ONE)
            job.round(0, 1)
            spare = job.node("--report", job.directory / "report.json", **ONE)
            self.said(spare, f"spare of job '{job.id}'", f"127.0.0.1:{job.port}", "starts its workers only when a node is lost")
            job.finish()
            job.expect_exit(node, 0)
            job.expect_exit(spare, 0)
            self.said(spare, f"job '{job.id}' succeeded", "was a spare", "did not run elastic")
            self.assertNotIn("spare", node.err.read_text())
            report = json.loads((job.directory / "report.json").read_text())
            self.assertEqual((report["outcome"], report["exit_code"], report["part"]), ("succeeded", 0, "spare"))
            self.assertIn("did not run elastic", report["why"])

    def test_nodes_of_one_round_with_different_arguments_are_shown_both_on_every_node(self):
        with Job() as job:
            job.daemon()
            nodes = [job.node(), job.node(worker=("--until", "done", "--until", "done"))]
            job.round(0, 4)
            for node in nodes:
                self.said(node, "different arguments", "`elastic --until done`", "`elastic --until done --until done`", "--rdzv-id")
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
