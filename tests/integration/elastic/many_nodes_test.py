"""A daemon that stands still for longer than the lease beside a job of many nodes.

All nodes lose the daemon together, so none may stop its workers: they agree in a tree that all of them have lost it. What happened is printed in
any case. MUSTER_TEST_NODES, MUSTER_TEST_PAUSE and MUSTER_TEST_LEASE (seconds) set the size; scripts/bench/scale runs it with 200 nodes.
"""
import collections
import json
import os
import re
import signal
import time
import unittest
import urllib.request

from job import Job, wait_for

NODES = int(os.environ.get("MUSTER_TEST_NODES", 120))
PAUSE = float(os.environ.get("MUSTER_TEST_PAUSE", 24))
LEASE = float(os.environ.get("MUSTER_TEST_LEASE", 12))  # of it a node may stand still for a quarter while the others rely on its word
RUNS = ("running", 0)
START = 300  # seconds for all launchers to meet, on a slow machine
LOAD = ("--lease", LEASE, "--rdzv-lost-timeout", max(60, 3 * PAUSE))


class ManyNodes(unittest.TestCase):
    def test_no_node_stops_its_workers_while_all_have_lost_the_daemon(self):
        with Job() as job:
            daemon = job.daemon()
            begun = time.monotonic()
            nodes = [job.node(*LOAD, nnodes=NODES, nproc=1) for _ in range(NODES)]
            wait_for(f"{NODES} workers in round 0", lambda: len(job.starts(round=0)) == NODES, START)
            wait_for("round 0 in the daemon's status", lambda: self.round_of(job) == RUNS, START)
            print(f"{NODES} nodes run after {time.monotonic() - begun:.0f} s; the daemon stands still for {PAUSE} s", flush=True)
            os.kill(daemon.pid, signal.SIGSTOP)
            try:
                time.sleep(PAUSE)  # the fault itself: so long the daemon stands still
            finally:
                os.kill(daemon.pid, signal.SIGCONT)
            resumed = time.monotonic()
            # Every node has spoken to the daemon again, or the round has ended.
            wait_for("an answer of the daemon", lambda: self.round_of(job) is not None, START)
            self.wait_two_leases(job, resumed)
            story = self.what_happened(job, nodes, daemon)
            print(json.dumps(story, indent=1), flush=True)
            job.finish()
            codes = collections.Counter(job.exit_code(node, START) for node in nodes)
            print(f"exit codes of the launchers: {dict(codes)}", flush=True)
            job.expect_gone(but=[daemon])
            self.assertEqual((story["nodes_that_stopped_workers"], story["phase_and_round"], dict(codes)),
                             (0, RUNS, {0: NODES}))

    @staticmethod
    def wait_two_leases(job, since):
        """Until the workers of a lost node would be replaced (1.1 lease), or the next round has begun."""
        def over():
            return time.monotonic() > since + 2 * LEASE or job.starts(round=1)
        wait_for("two leases, or round 1", over, START)

    @staticmethod
    def round_of(job):
        try:
            status = json.load(urllib.request.urlopen(f"http://127.0.0.1:{job.port}/status", timeout=60))
        except OSError:
            return None
        return next(((entry["phase"], entry["round"]) for entry in status["jobs"] if entry["id"] == job.id), None)

    def what_happened(self, job, nodes, daemon):
        def first(text, words):
            return next((line for line in text.splitlines() if words in line), None)
        said = [node.err.read_text() for node in nodes]
        fenced = [line for line in (first(text, "killing the workers at once") for text in said) if line]
        ended = collections.Counter(line for line in (first(text, "round 0 ended") for text in said) if line)
        stopped = [re.sub(r"\d+", "N", line) for line in fenced]
        return {
            "nodes": NODES, "paused_s": PAUSE, "lease_s": LEASE,
            "nodes_that_stopped_workers": len(fenced),
            "their_reasons": dict(collections.Counter(stopped).most_common(3)),
            "nodes_told_of_the_rounds_end": sum(ended.values()),
            "its_reasons": dict(ended.most_common(3)),
            "workers_of_round_1": len(job.starts(round=1)),
            "phase_and_round": self.round_of(job),
            "daemon_log": [line for line in daemon.err.read_text().splitlines() if "round" in line][-5:],
        }


if __name__ == "__main__":
    unittest.main(verbosity=2)
