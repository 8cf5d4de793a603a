"""The events of a job, replayed, give those fields of /status that are folds over events (rendezvous/events/EVENTS.md)."""
import datetime
import json
import os
import signal
import sys
import unittest

from events_test import events_of
from job import Job, wait_for
from status_test import status
from steps_test import WORKER

FAST = ("--lease", 5)
BUCKETS = ("waiting_nodes", "starting", "stepping", "unmeasured", "stopping", "reconfiguring", "queued", "loading_checkpoint")


class Replay:
    """What a reader of nothing but events knows. `time` is in seconds."""

    def __init__(self):
        self.id, self.phase, self.round, self.restarts_used = None, "gathering", -1, 0
        self.nodes = set()
        self.time = dict.fromkeys(BUCKETS, 0.0)
        self.pending = False
        self.bucket = "waiting_nodes"
        self.began = self.since = None

    def settle(self, bucket, now):
        self.time["unmeasured" if self.pending else self.bucket] += now - self.since
        self.bucket, self.since, self.pending = bucket, now, False

    def take(self, event):
        now = datetime.datetime.fromisoformat(event["time"].replace("Z", "+00:00")).timestamp()
        kind, data = event["type"].removeprefix("muster.").removesuffix(".v1"), event["data"]
        self.id = data["job"]
        if self.began is None:
            self.began = self.since = now
        if kind == "job.started":
            self.time["queued"] = data.get("queued_ms", 0) / 1000
            self.began -= self.time["queued"]
        elif kind == "node.joined":
            self.nodes.add((data["host"], data["pid"]))
        elif kind in ("node.lost", "node.left", "node.drained"):
            self.nodes.discard((data["host"], data["pid"]))
        elif kind in ("round.sealed", "round.resumed"):
            self.settle("starting", now)
            self.pending = True
            self.phase, self.round = "running", data["round"]
            self.restarts_used = data.get("restart_count", self.restarts_used)
        elif kind == "round.stepping":
            self.pending = False
            loading = min(data.get("loading_ms", 0) / 1000, now - self.since)
            self.time["loading_checkpoint"] += loading
            self.time["starting"] += now - self.since - loading
            self.bucket, self.since = "stepping", now
        elif kind == "round.ended":
            self.settle("reconfiguring" if data["reason"] in ("node_joined", "node_left") else "stopping", now)
            self.phase = "draining"
        elif kind == "round.drained":
            self.settle("waiting_nodes", now)
            self.phase = "gathering"
        elif kind == "job.ended":
            self.settle(self.bucket, now)
            self.phase = "over"


class ReplayTest(unittest.TestCase):
    def compare(self, job, what):
        """Once no event comes between two looks at the events, the page between them is of exactly these events."""
        def steady():
            before = events_of(job)
            page = json.loads(status(job, job.id, "--json").stdout)["jobs"][0]
            return (before, page) if events_of(job)[-1]["id"] == before[-1]["id"] else None
        events, page = wait_for("a page between two events", steady)
        replay = Replay()
        for event in events:
            replay.take(event)
        with self.subTest(what):
            for field in ("id", "phase", "round", "restarts_used"):
                self.assertEqual(page[field], getattr(replay, field), field)
            self.assertEqual({(node["host"], node["pid"]) for node in page["nodes"]}, replay.nodes)
            time = page["goodput"]
            open_time = time["wall_clock"] - (replay.since - replay.began)  # Since the last event that ends a bucket.
            told = {bucket: replay.time[bucket] + (not replay.pending and bucket == replay.bucket) * open_time for bucket in BUCKETS}
            told["pending"] = replay.pending * open_time
            if open_time < -0.2 or any(abs(time[bucket] - seconds) > 0.2 for bucket, seconds in told.items()):
                self.off.append((what, open_time, time, told))
        return replay

    def test_a_job_with_a_failure_a_lost_node_and_steps(self):
        # A daemon that stands still between its count and an event's time is off once.
        for _ in range(4):
            self.off = []
            self.run_job()
            if not self.off:
                return
        self.fail(f"the times differ: {self.off}")

    def run_job(self):
        with Job() as job:
            job.daemon()
            script = job.directory / "worker.py"
            script.write_text(WORKER)

            def node():
                return job.spawn("muster", "--nnodes", "1:2", "--nproc-per-node", 1, "--rdzv-backend", "c10d", "--rdzv-endpoint",
                                 f"127.0.0.1:{job.port}", "--rdzv-id", job.id, "--rdzv-conf", "last_call_timeout=60", "--max-restarts", 3, *FAST, "--no-python", sys.executable,
                                 script, job.directory)

            first = node()
            wait_for("gathering", lambda: "gathering" in status(job).stdout)
            self.compare(job, "gathering")
            second = node()
            for rank in (0, 1):
                wait_for("start of a worker", (job.directory / f"started-{rank}-0").exists)
            self.assertTrue(self.compare(job, "before the first step").pending)
            (job.directory / "step").write_text("10")
            wait_for("steps", lambda: "step 10" in status(job).stdout)
            self.assertEqual(self.compare(job, "stepping").bucket, "stepping")
            job.touch("fail")
            wait_for("next round", (job.directory / "started-1-1").exists)
            wait_for("steps of it", lambda: any("round.stepping" in one["type"] and one["data"]["round"] == 1 for one in events_of(job)))
            self.assertEqual(self.compare(job, "after a failure").restarts_used, 1)
            os.killpg(second.pid, signal.SIGKILL)
            wait_for("loss", lambda: any("node.lost" in event["type"] for event in events_of(job)))
            wait_for("third round", (job.directory / "started-0-2").exists, 120)
            self.assertEqual(self.compare(job, "after a loss").round, 2)
            (job.directory / "done").touch()
            job.expect_exit(first, 0)


if __name__ == "__main__":
    unittest.main()
