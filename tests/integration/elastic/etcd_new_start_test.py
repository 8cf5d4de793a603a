"""--rdzv-backend etcd, and the job's name used again: after all nodes were killed, or stopped, at once. And commands that have to
find the daemon that leads."""
import functools
import signal
import time
import unittest

from etcd_backend_test import BACK, Nodes
from etcd_server import needs_etcd
from etcd_test import Cluster
from job import Job, wait_for

LOST = 12  # s, --rdzv-lost-timeout; the least beside a lease of 5 s is below that


@needs_etcd
class NewStart(unittest.TestCase):
    def test_a_job_that_was_killed_everywhere_is_started_anew_with_other_terms(self):
        with Job() as job:
            nodes = Nodes(job, 0, "2")
            killed = [nodes.start("--rdzv-lost-timeout", LOST) for _ in range(2)]
            job.round(0, 2)
            for node in killed:
                node.kill()
            wait_for("end of all workers", lambda: not {line["pid"] for line in job.starts()} & set(job.processes()), BACK)
            began = time.monotonic()
            nodes.all = [nodes.start("--rdzv-lost-timeout", LOST, "--max-restarts", 5) for _ in range(2)]
            job.round(1, 2)
            print(f"begun anew after {time.monotonic() - began:.2f} s")
            self.assertIn("the lost agents of this job's earlier run to be confirmed gone",
                          nodes.all[0].err.read_text() + nodes.all[1].err.read_text())
            nodes.finish()
            wait_for("empty etcd", lambda: nodes.etcd.kept() == {}, BACK)

    def test_a_job_that_is_stopped_everywhere_at_once_leaves_nothing_behind(self):
        with Job() as job:
            nodes = Nodes(job, 3, "3")
            job.round(0, 3)
            leader = nodes.wait_for_leader()
            leader.send_signal(signal.SIGINT)
            for node in nodes.all:
                if node is not leader:
                    node.send_signal(signal.SIGINT)
            for node in nodes.all:
                job.exit_code(node)
            wait_for("empty etcd", lambda: nodes.etcd.kept() == {}, BACK)
            # Other terms at once: nothing is in the way.
            nodes.all = [nodes.start("--max-restarts", 5) for _ in range(3)]
            wait_for("three more workers", lambda: len(job.starts(round=0)) == 6, BACK)
            nodes.finish()

    def test_faults_and_drains_find_the_daemon_that_leads(self):
        with Job() as job:
            secret = job.directory / "secret"
            secret.write_text("the secret of this job")
            secret.chmod(0o600)
            job.spawn = functools.partial(job.spawn, MUSTER_SECRET_FILE=str(secret))  # for daemons, nodes and people
            cluster = Cluster(job)
            leader = cluster.wait_for_leader()
            nodes = cluster.nodes("--max-restarts", 3)
            job.round(0, 4)
            # From anywhere, the leader named last of all, and one that does not answer first.
            ports = [1] + [port for i, port in enumerate(cluster.ports) if i != leader] + [cluster.ports[leader]]
            named = ",".join(f"127.0.0.1:{port}" for port in ports)
            for endpoints in (named, f"127.0.0.1:{ports[1]}"):
                command = job.spawn("muster", "drain", "nobody", "--job", job.id, "--rdzv-endpoint", endpoints)
                self.assertEqual(job.exit_code(command), 1)
                self.assertIn("has no node 'nobody'", command.err.read_text())
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)

    def test_a_daemon_of_the_nodes_suffers_a_fault_where_its_muster_allows_it(self):
        with Job() as job:
            nodes = Nodes(job, 0, "2")
            nodes.all = [nodes.start("--allow-faults") for _ in range(2)]
            job.round(0, 2)
            command = job.spawn("muster", "fault", "slow", "daemon", "--for", "1", "--job", job.id)
            job.expect_exit(command, 0)
            nodes.finish()


if __name__ == "__main__":
    unittest.main(verbosity=2)
