"""Three daemons that share their state in a real etcd: whoever leads may go, and no worker notices."""
import contextlib
import json
import os
import signal
import time
import unittest
import urllib.error
import urllib.request

from etcd_server import Etcd, needs_etcd
from job import Job, free_port, wait_for

FAST = ("--lease", 15)  # an election takes two to five seconds, on a busy machine more
BACK = 60.0  # s


def status(port):
    with contextlib.suppress(OSError, ValueError):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=2) as answer:
            return json.load(answer)
    return {}


def health(port):
    with contextlib.suppress(OSError):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as refused:
            return f"{refused.code} {refused.read().decode()}"
    return ""


class Cluster:
    """One etcd member and three daemons of one job."""

    def __init__(self, job, *etcd_options):
        self.job = job
        self.etcd = Etcd(job, options=etcd_options).wait_until_healthy()
        self.ports = [free_port() for _ in range(3)]
        self.daemons = [self.start(port) for port in self.ports]
        self.endpoints = ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def start(self, port):
        return self.job.spawn("musterd", "--port", port, "--first-start", "--state",
                              f"etcd://127.0.0.1:{self.etcd.port}", "--advertise", f"127.0.0.1:{port}")

    def leader(self):
        """Index of the daemon that leads, None while there is none."""
        for i, port in enumerate(self.ports):
            told = status(port)
            if "jobs" in told and not told.get("standby"):
                return i
        return None

    def wait_for_leader(self, but=None):
        return wait_for("leader", lambda: [one for one in [self.leader()] if one not in (None, but)], BACK)[0]

    def all_back(self):
        leader = self.leader()
        jobs = status(self.ports[leader]).get("jobs", []) if leader is not None else []
        return len(jobs) == 1 and len(jobs[0]["nodes"]) == 2 and all(node["connected"] for node in jobs[0]["nodes"])

    def nodes(self, *options):
        return [self.job.spawn("muster", "--nnodes", 2, "--nproc-per-node", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint",
                               self.endpoints, "--rdzv-id", self.job.id, *FAST, *options, "--no-python",
                               os.environ["MUSTER_WORKERS"] + "/elastic", "--until", "done") for _ in range(2)]


@needs_etcd
class SharedState(unittest.TestCase):
    def takeover(self, how):
        with Job() as job:
            cluster = Cluster(job)
            first_leader = cluster.wait_for_leader()
            nodes = cluster.nodes("--max-restarts", 3)
            first = job.round(0, 4)
            os.kill(first[1]["pid"], signal.SIGKILL)
            second = job.round(1, 4)
            began = time.monotonic()
            cluster.daemons[first_leader].send_signal(how)
            cluster.wait_for_leader(but=first_leader)
            led = time.monotonic() - began
            wait_for("agents that are back", cluster.all_back, BACK)
            print(f"{how.name}: next leader after {led:.2f} s, agents back after {time.monotonic() - began:.2f} s")
            self.assertLessEqual({line["pid"] for line in second.values()}, set(job.processes()))
            os.kill(second[2]["pid"], signal.SIGKILL)
            third = job.round(2, 4)
            self.assertEqual({line["restart"] for line in third.values()}, {2})
            cluster.daemons[first_leader].send_signal(signal.SIGCONT)
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)
            job.expect_gone(but=[cluster.etcd.process, *cluster.daemons])

    def test_no_worker_notices_that_the_leader_was_killed(self):
        self.takeover(signal.SIGKILL)

    def test_no_worker_notices_that_the_leader_ended_in_order(self):
        self.takeover(signal.SIGTERM)

    def test_a_leader_that_was_stopped_for_longer_than_its_lease_leads_no_more(self):
        self.takeover(signal.SIGSTOP)

    def test_no_worker_notices_that_etcd_was_away_for_a_while(self):
        with Job() as job:
            cluster = Cluster(job)
            cluster.wait_for_leader()
            nodes = cluster.nodes()
            first = job.round(0, 4)
            cluster.etcd.stop()
            wait_for("daemons that do not lead", lambda: cluster.leader() is None, BACK)
            cluster.etcd.go_on()
            cluster.wait_for_leader()
            wait_for("agents that are back", cluster.all_back, BACK)
            self.assertLessEqual({line["pid"] for line in first.values()}, set(job.processes()))
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)
            job.expect_gone(but=[cluster.etcd.process, *cluster.daemons])

    def test_a_full_etcd_is_named_and_the_job_goes_on_when_it_has_room(self):
        with Job() as job:
            cluster = Cluster(job, "--quota-backend-bytes", str(2 << 20))
            cluster.wait_for_leader()
            nodes = cluster.nodes("--max-restarts", 3, "--rdzv-lost-timeout", 250)
            first = job.round(0, 4)
            leader = cluster.wait_for_leader()
            cluster.etcd.fill()
            os.kill(first[1]["pid"], signal.SIGKILL)
            cluster.ports.append(free_port())
            cluster.daemons.append(cluster.start(cluster.ports[-1]))  # it cannot even become a candidate
            for which in (leader, -1):
                told = wait_for("refused writes", lambda: "space exceeded" in (said := health(cluster.ports[which])) and said, BACK)
                self.assertRegex(told, "^503 .*etcd's database is full .*etcdctl alarm disarm")
                wait_for("the reason in the status", lambda: "space exceeded" in status(cluster.ports[which]).get("state_stalled", {}).get("why", ""))
            for node in nodes:
                wait_for("the reason in the node's words", lambda: "space exceeded" in node.err.read_text())
            cluster.etcd.make_room()
            second = job.round(1, 4)
            self.assertEqual({line["restart"] for line in second.values()}, {1})
            for port in cluster.ports:
                wait_for("healthy daemon", lambda: health(port) == "ok\n", BACK)
            for which in (leader, -1):
                said = wait_for("word of the room", lambda: (t := cluster.daemons[which].err.read_text()).count("etcd accepts writes again") and t)
                for words in ("etcd's database is full", "etcd accepts writes again"):
                    self.assertEqual(said.count(words), 1, said)
                self.assertNotRegex(said, "HTTP status (429|503)")  # It was not taken for an etcd that is away.
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)
            job.expect_gone(but=[cluster.etcd.process, *cluster.daemons])


if __name__ == "__main__":
    unittest.main(verbosity=2)
