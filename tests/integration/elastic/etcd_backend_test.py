"""--rdzv-backend etcd: no daemon but those of the nodes, of which one leads; any node may go."""
import os
import pathlib
import re
import signal
import time
import unittest

from etcd_server import Etcd, needs_etcd
from job import WORKERS, Job, tcp_sockets, wait_for

BACK = 60.0  # s; an election takes two to five


def listens_at(port):
    """Pid of the process that listens at this port of this host."""
    sockets = tcp_sockets(port, "0A")
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if any(os.readlink(fd) in sockets for fd in (entry / "fd").iterdir()):
                return int(entry.name)
        except OSError:
            continue
    return None


class Nodes:
    def __init__(self, job, count, nnodes, backend="etcd", **environment):
        self.job = job
        self.etcd = Etcd(job).wait_until_healthy()
        self.prefix = f"muster/jobs/{job.id}/"
        self.nnodes, self.backend, self.environment = nnodes, backend, environment
        self.all = [self.start() for _ in range(count)]

    def start(self, *options, conf="last_call_timeout=15"):  # nodes that start together meet on a busy machine, and a round of fewer waits for it
        return self.job.spawn("muster", "--nnodes", self.nnodes, "--nproc-per-node", 1, "--rdzv-backend", self.backend,
                              "--rdzv-endpoint", f"127.0.0.1:{self.etcd.port}", "--rdzv-id", self.job.id, "--rdzv-conf", conf,
                              "--max-restarts", 3, "--lease", 5, *options, "--no-python", WORKERS / "elastic", "--until", "done",
                              **self.environment)

    def leader(self):
        """The launcher whose daemon leads; None while there is none."""
        place = self.etcd.leader(self.prefix)
        if not place:
            return None
        pid = listens_at(int(place.rsplit(":", 1)[1]))
        return next((one for one in self.all if one.pid == pid), None)

    def wait_for_leader(self, but=None):
        return wait_for("leader", lambda: (found := self.leader()) not in (None, but) and found, BACK)

    def finish(self, but=()):
        self.job.finish()
        for node in self.all:
            if node not in but:
                self.job.expect_exit(node, 0)
        self.job.expect_gone(but=[self.etcd.process])


@needs_etcd
class Backend(unittest.TestCase):
    def test_nodes_meet_by_etcd_alone_and_leave_nothing_in_it(self):
        with Job() as job:
            nodes = Nodes(job, 3, "3", "etcd-v2")
            first = job.round(0, 3)
            os.kill(first[1]["pid"], signal.SIGKILL)
            job.round(1, 3)
            nodes.finish()
            wait_for("empty etcd", lambda: nodes.etcd.kept() == {})

    def test_a_killed_leader_is_followed_by_another_node_and_the_job_goes_on(self):
        with Job() as job:
            nodes = Nodes(job, 3, "2:3")
            job.round(0, 3)
            leader = nodes.wait_for_leader()
            began = time.monotonic()
            leader.kill()
            nodes.wait_for_leader(but=leader)
            print(f"next leader after {time.monotonic() - began:.2f} s")
            second = job.round(1, 2)
            print(f"next round after {time.monotonic() - began:.2f} s")
            self.assertEqual({line["restart"] for line in second.values()}, {0}, "a lost node charges nothing")
            # The next one that comes finds the leader, and is taken in.
            nodes.all.append(nodes.start())
            job.round(2, 3)
            nodes.finish(but=[leader])
            wait_for("empty etcd", lambda: nodes.etcd.kept() == {})

    def test_a_leader_that_leaves_in_order_hands_over_at_once(self):
        with Job() as job:
            nodes = Nodes(job, 0, "2:3")
            nodes.all = [nodes.start("--lease", 50) for _ in range(3)]
            job.round(0, 3)
            leader = nodes.wait_for_leader()
            began = time.monotonic()
            leader.send_signal(signal.SIGTERM)
            job.round(1, 2)
            self.assertLess(time.monotonic() - began, 40)  # no lease is waited for
            self.assertIn(job.exit_code(leader), (143, -signal.SIGTERM))
            nodes.finish(but=[leader])

    def test_a_node_that_may_not_host_learns_of_the_leader(self):
        with Job() as job:
            nodes = Nodes(job, 1, "2")
            nodes.all.append(nodes.start(conf="is_host=0,last_call_timeout=15"))
            job.round(0, 2)
            self.assertIs(nodes.wait_for_leader(), nodes.all[0])
            nodes.finish()

    def test_the_daemons_ask_for_the_secret_and_the_leader_may_be_drained(self):
        with Job() as job:
            secret = job.directory / "secret"
            secret.write_text("the secret of this job")
            secret.chmod(0o600)
            nodes = Nodes(job, 3, "2:3", MUSTER_SECRET_FILE=str(secret))
            job.round(0, 3)
            stranger = job.spawn("muster", "--nnodes", "2:3", "--rdzv-backend", "etcd", "--rdzv-endpoint",
                                 f"127.0.0.1:{nodes.etcd.port}", "--rdzv-id", job.id, "--rdzv-conf", "is_host=0", "--no-python", "true")
            self.assertNotEqual(job.exit_code(stranger), 0)
            self.assertIn("MUSTER_SECRET_FILE", stranger.err.read_text())
            leader = nodes.wait_for_leader()
            command = job.spawn("muster", "drain", f"{os.uname().nodename}:{leader.pid}", "--job", job.id,
                                MUSTER_SECRET_FILE=str(secret))
            job.expect_exit(command, 0)
            job.round(1, 2)
            job.exit_code(leader)
            nodes.finish(but=[leader])

    def test_an_etcd_that_is_not_there_is_named(self):
        with Job() as job:
            node = job.spawn("muster", "--nnodes", 2, "--rdzv-backend", "etcd", "--rdzv-endpoint", "127.0.0.1:1", "--rdzv-conf",
                             "join_timeout=10", "--no-python", "true")
            job.expect_exit(node, 75)
            said = node.err.read_text()
            self.assertRegex(said, r"no round within .*etcd: 127\.0\.0\.1:1: Connection refused", said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
