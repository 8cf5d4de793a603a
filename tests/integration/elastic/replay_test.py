"""The events of a job, replayed, give its /status (rendezvous/events/EVENTS.md): the whole document, but for samples."""
import collections
import datetime
import json
import os
import signal
import sys
import unittest

from events_test import events_of, get
from job import Job, wait_for
from status_test import status
from steps_test import WORKER

FAST = ("--lease", 5)
BUCKETS = ("waiting_nodes", "starting", "stepping", "data_wait", "hung", "unmeasured", "stopping", "reconfiguring", "queued",
           "loading_checkpoint", "checkpoint_blocked", "detecting")
# What agents report of a moment, and a sentence about the other fields.
SAMPLES = {"step_seconds", "samples_per_second", "exposed_communication", "straggler_cost", "slowest_rank", "checkpoints", "goodput"}
NODE_SAMPLES = {"connected", "silent_ms", "overdue", "waiting", "gpus", "standbys", "unhealthy"}


def numbers(ranges):
    """Of "1-3,7"."""
    return [one for part in ranges.split(",") for first, last in [(part.split("-") * 2)[:2]] for one in range(int(first), int(last) + 1)]


class Replay:
    """What a reader of nothing but events knows. `time` is in seconds."""

    def __init__(self, events):
        self.job = {"phase": "gathering", "round": -1, "restarts_used": 0, "waiting_for": ""}
        self.nodes, self.newest, self.rounds, self.cause = {}, {}, collections.Counter(), "start"
        self.time = dict.fromkeys((*BUCKETS, "lost_work"), 0.0) | {"lost_steps": 0}
        self.pending = self.hangs = False
        self.bucket = "waiting_nodes"
        self.began = self.since = self.told = self.open = self.left = None
        for event in events:
            self.take(datetime.datetime.fromisoformat(event["time"].replace("Z", "+00:00")).timestamp(),
                      event["type"].removeprefix("muster.").removesuffix(".v1"), event["data"])

    def take(self, now, kind, data):
        """All that an event says of a job; `data` is what programs read of it."""
        self.job["id"] = data["job"]
        for fact in ("nodes_min", "nodes_max", "restarts_max", "waiting_for", "step", "expected_hosts"):
            self.job |= {fact: data[fact]} if fact in data else {}
        self.job["restarts_used"] = data.get("restart_count", self.job["restarts_used"])
        if kind == "job.waiting":
            self.job["waiting_for"] = data.get("waiting_for", "")
        if kind.startswith("round.") or kind.startswith("hang.") or kind.startswith("job."):
            self.count(now, kind, data)
            getattr(self, kind.replace(".", "_"), lambda data: None)(data)
        elif kind.startswith("node."):
            self.node(kind, data)
        elif kind == "checkpoint.committed":
            self.newest["committed"] = data["checkpoint_step"]

    def node(self, kind, data):
        node = data.get("node")
        if kind == "node.joined":
            self.nodes[node] = {fact: data[fact] for fact in ("host", "pid", "slots", "role")} | {"place": "waiting"}
        elif kind in ("node.gone", "node.left"):
            del self.nodes[node]
        elif kind == "node.lost":
            self.nodes[node]["place"] = "lost"
        elif kind == "node.left_out":
            self.nodes[node]["left_out"] = True
        elif kind == "node.taken_back":
            self.nodes[node].pop("left_out", None)

    def round_sealed(self, data):
        self.job |= {"phase": "running", "round": data["round"], "waiting_for": ""}
        self.job.pop("step", None)
        self.newest.pop("committed", None)
        self.rounds[self.cause] += 1
        base = 0
        for node in self.nodes.values():
            for fact in ("group_rank", "rank_base"):
                node.pop(fact, None)
        for rank, number in enumerate(numbers(data["members"])):
            self.nodes[number] |= {"place": "running", "group_rank": rank, "rank_base": base}
            base += self.nodes[number]["slots"]

    def round_resumed(self, data):
        self.job |= {"phase": "running", "round": data["round"]}

    def round_ended(self, data):
        self.job["phase"], self.cause = "ending" if "outcome" in data else "draining", data["reason"]
        for node in self.nodes.values():
            node["place"] = "draining" if node["place"] == "running" else node["place"]

    def round_drained(self, data):
        self.job["phase"] = "gathering"
        self.newest["drained"] = data.get("checkpoint_step", -1)
        for node in self.nodes.values():
            node["place"] = "waiting"

    def job_ended(self, data):
        self.job |= {"phase": "over", "waiting_for": "agents to acknowledge the end"}

    # ---- how the time was spent ----

    def add(self, bucket, until):
        self.time[bucket] = self.time.get(bucket, 0.0) + until - self.since
        if self.open and bucket == "stepping":
            self.open["stepping"] += until - self.since
        self.since = until

    def settle(self, bucket, now):
        self.add("unmeasured" if self.pending else self.bucket, now)
        self.bucket, self.pending = bucket, False

    def is_open(self):
        """No event says yet what the time since the last one of steps was."""
        return self.pending or self.bucket == "stepping"

    def divide(self, data, until):
        """Between training and the rest, by what the rest has grown."""
        spent = {name == "checkpoint" and "checkpoint_blocked" or f"section:{name}": ms for name, ms in data.get("section_ms", {}).items()}
        spent |= {"data_wait": data.get("data_wait_ms", 0)}
        if self.bucket == "stepping" and not self.pending:
            for bucket, ms in spent.items():
                grown = (ms - self.told.get(bucket, 0)) / 1000 if self.told is not None else 0
                if grown > 0 and self.since < until:
                    self.add(bucket, min(self.since + grown, until))
            self.add("stepping", until)
        self.told = spent

    def before(self, now, ms):
        return max(self.since, now - ms / 1000)

    def count_lost(self, first):
        left, self.left = self.left, None
        if left and first >= 0:
            done = left["last"] - left["first"] + 1
            lost = min(max(left["last"] - first + 1, 0), done)
            self.time["lost_work"] += left["stepping"] * lost / done
            self.time["lost_steps"] += lost

    def after_checkpoint(self):
        return self.left["checkpoint"] + 1 if self.left and self.left["checkpoint"] >= 0 else -1

    def leave(self, data):
        if self.open and self.open["first"] is not None:
            self.count_lost(self.after_checkpoint())
            self.left = self.open | {"last": max(self.open["first"], self.open["last"], data.get("step", -1)),
                                     "checkpoint": data.get("checkpoint_step", -1)}
        self.open = None

    def count(self, now, kind, data):
        if self.began is None:
            self.began = self.since = now
        if kind == "job.started":
            self.time["queued"] = data.get("queued_ms", 0) / 1000
            self.began -= self.time["queued"]
        elif kind in ("round.sealed", "round.resumed"):
            self.settle("starting", now)
            self.pending, self.hangs, self.told = True, False, None
            self.leave({})
            self.open = {"first": None, "last": -1, "stepping": 0.0}
        elif kind == "round.stepping":
            if self.pending:
                self.add("loading_checkpoint", min(self.since + data.get("section_ms", {}).get("checkpoint", 0) / 1000, now))
            self.add("starting" if self.pending else self.bucket, now)
            self.pending, self.bucket = False, "hung" if self.hangs else "stepping"
            self.divide(data, now)
            if self.open["first"] is None:
                self.open["first"] = data.get("first_step", data["step"])
                self.count_lost(data.get("first_step", -1))
        elif kind == "round.progress":
            self.divide(data, now)
        elif kind == "hang.suspected":
            self.hangs = True
            if self.bucket == "stepping" and not self.pending:
                self.divide(data, self.before(now, data.get("hung_ms", 0)))
                self.bucket = "hung"
        elif kind == "hang.over":
            self.hangs = False
            if self.bucket == "hung":
                self.settle("stepping", now)
            self.divide(data, now)
        elif kind == "round.ended":
            failed_at = self.before(now, data.get("detecting_ms", 0)) if self.is_open() else now
            self.divide(data, failed_at)
            self.settle("detecting", failed_at)
            self.settle("reconfiguring" if data["reason"] in ("node_joined", "node_left") else "stopping", now)
            self.open["last"] = data.get("step", -1)
        elif kind == "round.drained":
            self.settle("waiting_nodes", now)
            self.leave(data)
        elif kind == "job.ended":
            self.divide(data, now)
            self.settle(self.bucket, now)
            if data["outcome"] != "succeeded":
                self.leave(data)
            self.count_lost(self.after_checkpoint())

    # ---- the document ----

    def status(self):
        newest = max(self.newest.values(), default=-1)
        nodes = [{name: value for name, value in node.items() if name != "left_out" or node["place"] == "waiting"}
                 for node in self.nodes.values()]
        left = {"restarts_left": self.job["restarts_max"] - self.job["restarts_used"]}
        return self.job | left | ({"checkpoint_step": newest} if newest >= 0 else {}), nodes

    def metrics(self):
        """The series that count rounds, restarts and nodes."""
        series = {f'phase{{,phase="{self.job["phase"]}"}}': 1, 'nodes{,state="running"}': 0, "restarts_total{}": self.job["restarts_used"],
                  "restarts_left{}": self.job["restarts_max"] - self.job["restarts_used"]}
        series |= {f'nodes_wanted{{,bound="{bound}"}}': self.job[f"nodes_{bound}"] for bound in ("min", "max")}
        series |= {f'rounds_total{{,reason="{reason}"}}': count for reason, count in self.rounds.items()}
        for node in self.nodes.values():
            state = f'nodes{{,state="{node["place"]}"}}'
            series[state] = series.get(state, 0) + 1
        return series

    def seen(self):
        return [bucket for bucket, seconds in self.time.items() if seconds > 0]

    def times(self, wall_clock):
        """By now: the time since the last event that ends a bucket is in the open one."""
        open_time = wall_clock - (self.since - self.began)
        told = self.time | {"pending": self.is_open() * open_time, "wall_clock": wall_clock}
        told[self.bucket] += (not self.is_open()) * open_time
        return open_time, told


def page_between_events(job):
    """Once no event comes between two looks at the events, the page between them is of exactly these events."""
    def steady():
        before = events_of(job)
        page = json.loads(status(job, job.id, "--json").stdout)["jobs"][0]
        metrics = get(job, "/metrics")[1]
        return (before, page, metrics) if events_of(job)[-1]["id"] == before[-1]["id"] else None
    return wait_for("a page between two events", steady)


class ReplayTest(unittest.TestCase):
    def compare(self, job, what):
        events, page, metrics = page_between_events(job)
        replay = Replay(events)
        told, nodes = replay.status()
        seen = [{key: value for key, value in node.items() if key not in NODE_SAMPLES} for node in page.pop("nodes")]
        for node in seen:  # A spare waits; a node whose workers have all exited 0 is one of a running round.
            node["place"] = {"parked": "waiting", "succeeded": "running"}.get(node["place"], node["place"])
        with self.subTest(what):
            self.assertEqual({key: value for key, value in page.items() if key not in SAMPLES}, told)
            self.assertCountEqual(seen, nodes)
            series = {line[len("muster_job_"):].split()[0].replace(f'job="{job.id}"', ""): float(line.split()[1]) for line in
                      metrics.replace('state="parked"', 'state="waiting"').splitlines() if line.startswith("muster_job_")}
            told = replay.metrics()
            families = {name.split("{")[0] for name in told}
            self.assertEqual({name: value for name, value in series.items() if name.split("{")[0] in families}, told)
            time = page["goodput"]
            time.pop("text")
            open_time, told = replay.times(time["wall_clock"])
            self.assertEqual(set(time), set(told))
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

            def stepping(number):
                return any("round.stepping" in one["type"] and one["data"]["round"] == number for one in events_of(job))

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
            wait_for("steps of it", lambda: stepping(1))
            self.assertEqual(self.compare(job, "after a failure").time["lost_steps"], 1)  # step 10, once more
            spare = node()
            wait_for("spare", lambda: sum("node.joined" in one["type"] for one in events_of(job)) == 3)
            job.touch("sections")
            wait_for("time in both", lambda: {"section:evaluation", "checkpoint_blocked"} <= set(self.compare(job, "with a spare").seen()))
            (job.directory / "sections").unlink()
            os.killpg(second.pid, signal.SIGSTOP)  # It is lost when its lease is over.
            wait_for("loss", lambda: any("node.gone" in event["type"] for event in events_of(job)))
            wait_for("steps of the third round", lambda: stepping(2), 120)
            self.assertGreater(self.compare(job, "after a loss").time["detecting"], 3)
            os.killpg(spare.pid, signal.SIGTERM)
            wait_for("its end", lambda: any("node.left" in event["type"] for event in events_of(job)))
            wait_for("steps of a round of one node", lambda: stepping(3), 120)
            self.compare(job, "after a node has left")
            (job.directory / "done").touch()
            job.expect_exit(first, 0)


if __name__ == "__main__":
    unittest.main()
