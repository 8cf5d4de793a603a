"""What happens to a job is told as events: by the daemon's port, and in the files of musterd --events."""
import json
import os
import re
import signal
import socket
import unittest
import urllib.error
import urllib.request

from job import Job, wait_for

FAST = ("--lease", 5)  # a process of a busy machine may stand still for seconds


def get(job, target):
    with urllib.request.urlopen(f"http://127.0.0.1:{job.port}{target}", timeout=60) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def events_of(job, name=None, after=0):
    return [json.loads(line) for line in get(job, f"/api/v1/jobs/{name or job.id}/events?after={after}")[1].splitlines()]


def types(events):
    return [event["type"].removeprefix("muster.").removesuffix(".v1") for event in events]


def without_prefix(line):
    """Of a log line of any level, or a notice: what it says."""
    return re.sub(r"^.*?muster(: |d? \w+ |\[[^]]*\] \w+ )", "", line)


def about_peer(line):
    """A warning that a peer has caused: one a minute is an event."""
    return re.search(r" port \d+: ", line)


class Events(unittest.TestCase):
    def test_the_port_and_the_files_tell_the_same_story(self):
        with Job() as job:
            folder = job.directory / "events"
            daemon = job.daemon("--events", folder)
            nodes = [job.node(*FAST, "--max-restarts", 1) for _ in range(2)]
            first = job.round(0, 4)
            os.kill(first[3]["pid"], signal.SIGKILL)
            job.round(1, 4)
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)
            events = wait_for("end of the job in the events",
                              lambda: (found := events_of(job)) and types(found)[-1] == "job.ended" and found)
            told = types(events)
            expected = ["job.started", "node.joined", "node.joined", "round.sealed", "worker.failed", "round.ended",
                        "round.drained", "round.sealed", "job.ended"]
            self.assertEqual([one for one in told if one in expected], expected, told)
            self.assertEqual([int(event["sequence"]) for event in events], list(range(1, len(events) + 1)))
            for event in events:  # CloudEvents 1.0
                self.assertEqual(event["specversion"], "1.0")
                self.assertEqual(event["source"], f"muster:/job/{job.id}")
                self.assertRegex(event["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")
                self.assertTrue(event["data"]["text"])
            by_type = dict(zip(told, events))
            self.assertEqual(by_type["round.ended"]["data"]["reason"], "worker_failed")
            self.assertEqual(by_type["job.ended"]["data"]["outcome"], "succeeded")
            failed = by_type["worker.failed"]
            self.assertEqual(failed["subject"], "rank/3")
            self.assertEqual((failed["data"]["kind"], failed["data"]["pid"]), ("killed", first[3]["pid"]))
            self.assertGreaterEqual(failed["data"]["uncertainty_ms"], 0)  # of its time by the daemon's clock
            # Every line of the log about the job is an event, with the same sentence.
            log = [line for line in daemon.err.read_text().splitlines() if f"job '{job.id}'" in line]
            texts = {event["data"]["text"] for event in events}
            self.assertTrue(log)
            self.assertEqual([line for line in log if not any(text in line for text in texts)], [])
            # A reader goes on where it was.
            self.assertEqual(events_of(job, after=len(events) - 2), events[-2:])
            self.assertEqual(events_of(job, after=events[-3]["id"]), events[-2:])
            gap, *others = events_of(job, after="4711%2F3")
            self.assertEqual((gap["type"], others), ("muster.events.dropped.v1", events))
            self.assertEqual(events_of(job, after=gap["id"]), events)
            # A thread of the daemon writes them; at the daemon's end it has 5 s.
            wait_for("end of the job in the file", lambda: events[-1]["id"] in (folder / "events.jsonl").read_text())
            job.launchers[0].terminate()
            job.expect_exit(daemon, 0)
            written = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
            self.assertEqual([event for event in written if event["data"].get("job") == job.id], events)
            # So is every other line that the daemon says.
            notes = [event for event in written if event["type"] in ("muster.daemon.started.v1", "muster.daemon.note.v1")]
            self.assertEqual([event["type"] for event in notes].count("muster.daemon.started.v1"), 1)
            self.assertEqual([int(event["sequence"]) for event in notes], list(range(1, len(notes) + 1)))
            told = {event["data"]["text"] for event in written}
            said = daemon.out.read_text().splitlines() + [without_prefix(line) for line in daemon.err.read_text().splitlines() if not about_peer(line)]
            self.assertIn("stopped by SIGTERM", said)
            self.assertLessEqual(set(said), told)

    def test_an_unknown_job_and_a_wrong_question_are_answered_with_what_to_write(self):
        with Job() as job:
            job.daemon()
            for target, code, text in (("/api/v1/jobs/none%20here/events", 404, "no events of a job 'none here'"),
                                       ("/api/v1/jobs/x/events?after=later", 400, "after is no id or number: 'later'"),
                                       ("/api/v1/jobs/x%2/events", 400, "two hexadecimal digits"),
                                       ("/api/v1/jobs/x", 404, "/api/v1/jobs/JOB/events")):
                with self.subTest(target), self.assertRaises(urllib.error.HTTPError) as raised:
                    get(job, target)
                self.assertEqual(raised.exception.code, code)
                self.assertIn(text, raised.exception.read().decode())

    def test_a_directory_that_cannot_be_made_is_refused_before_the_daemon_serves(self):
        with Job() as job:
            daemon = job.spawn("musterd", "--port", 0, "--events", job.directory / "missing" / "events")
            job.expect_exit(daemon, 78)
            self.assertIn("--events: create the directory of events", daemon.err.read_text())

    def test_a_directory_that_another_daemon_writes_to_is_refused(self):
        with Job() as job:
            folder = job.directory / "events"
            first = job.daemon("--events", folder)
            second = job.spawn("musterd", "--port", job.port, "--events", folder)
            job.expect_exit(second, 78)
            self.assertIn(f"--events: another musterd writes its events to {folder}", second.err.read_text())
            wait_for("note of the first daemon", lambda: "listening on" in (folder / "events.jsonl").read_text())
            first.kill()
            first.wait()
            first_note, = (folder / "events.jsonl").read_text().splitlines()
            job.daemon("--events", folder)
            wait_for("note of the next daemon", lambda: (folder / "events.jsonl").read_text().startswith(first_note + "\n{"))

    def test_a_full_disk_does_not_delay_the_job(self):
        with Job() as job:
            folder = job.directory / "events"
            folder.mkdir()
            (folder / "events.jsonl").symlink_to("/dev/full")
            daemon = job.daemon("--events", folder)
            node = job.node(*FAST, nnodes="1")
            job.round(0, 2)
            job.finish()
            job.expect_exit(node, 0)
            wait_for("end in the events", lambda: types(events_of(job))[-1] == "job.ended")
            wait_for("warning", lambda: "the job continues without them" in daemon.err.read_text())
            self.assertEqual(daemon.err.read_text().count("the job continues without them"), 1)


class NodeEvents(unittest.TestCase):
    def test_a_launcher_writes_its_own_events_and_those_of_its_daemon(self):
        with Job() as job:
            pattern = job.directory / "%j-%h.jsonl"
            node = job.node(*FAST, "--max-restarts", 1, "--events", pattern, nnodes="1")
            first = job.round(0, 2)
            os.kill(first[1]["pid"], signal.SIGKILL)
            second = job.round(1, 2)
            job.finish()
            job.expect_exit(node, 0)
            file = job.directory / f"{job.id}-{os.uname().nodename}.jsonl"
            events = [json.loads(line) for line in file.read_text().splitlines()]
            here = f"muster:/job/{job.id}/node/{os.uname().nodename}"
            own = [event for event in events if event["source"] == here]
            self.assertEqual([int(event["sequence"]) for event in own], list(range(1, len(own) + 1)))
            expected = ["round.assigned", "worker.started", "worker.started", "worker.failed", "worker.stopped", "round.assigned",
                        "worker.started", "worker.started", "worker.succeeded", "worker.succeeded", "job.ended"]
            self.assertEqual([one for one in types(own) if one in expected], expected)
            failed = next(event for event in own if event["type"] == "muster.worker.failed.v1")
            self.assertEqual((failed["subject"], failed["data"]["pid"], failed["data"]["round"]), ("rank/1", first[1]["pid"], 0))
            started = [event["data"]["pid"] for event in own if event["type"] == "muster.worker.started.v1"]
            self.assertEqual(sorted(started), sorted(line["pid"] for line in [*first.values(), *second.values()]))
            self.assertEqual(own[-1]["data"]["outcome"], "succeeded")
            self.assertIn("round.sealed", types([event for event in events if event["source"] == f"muster:/job/{job.id}"]))
            said = [event["data"]["text"] for event in own if event["type"] == "muster.node.progress.v1"]
            printed = [without_prefix(line) for line in node.err.read_text().splitlines() if " muster" in line and not about_peer(line)]
            self.assertTrue([line for line in printed if line.startswith("round 0 ended")])
            self.assertEqual([line for line in printed if line not in said], [])
            self.assertEqual([line for line in printed if said.count(line) > 1], [])
            # Also what the log's level drops.
            self.assertTrue([line for line in said if line.startswith("OMP_NUM_THREADS is not set")])

    def test_a_launcher_that_cannot_launch_writes_the_end(self):
        with Job() as job, socket.create_server(("127.0.0.1", job.port)):
            file = job.directory / "events.jsonl"
            node = job.node("--rdzv-conf", "is_host=1", "--events", file, nnodes="1")
            job.expect_exit(node, 78)
            *others, last = [json.loads(line) for line in file.read_text().splitlines()]
            self.assertEqual((last["type"], last["data"]["outcome"]), ("muster.job.ended.v1", "not_launched"), last)
            self.assertIn("cannot serve the rendezvous", last["data"]["text"])
            self.assertNotIn(last["data"]["text"], [event["data"]["text"] for event in others])

    def test_a_pattern_or_a_file_that_cannot_be_is_refused(self):
        with Job() as job:
            for file, told in (("%x", "a file name; %h, %j, %p and %% in it are replaced"), ("missing/events", "--events: write events to ")):
                node = job.node("--events", file, nnodes="1")
                job.expect_exit(node, 2)
                self.assertIn(told, node.err.read_text())

    def test_torchruns_lines_come_with_its_handler(self):
        with Job() as job:
            node = job.node(*FAST, "--event-log-handler", "console", nnodes="1")
            job.round(0, 2)
            job.finish()
            job.expect_exit(node, 0)
            lines = [json.loads(line) for line in node.err.read_text().splitlines() if line.startswith('{"name":"torchelastic.')]
            self.assertEqual([line["name"].rsplit(".", 1)[1] for line in lines], ["START", "START", "SUCCEEDED", "SUCCEEDED", "SUCCEEDED"])
            self.assertEqual([line["source"] for line in lines], ["WORKER"] * 4 + ["AGENT"])
            ranks = [line["metadata"]["global_rank"] for line in lines]
            self.assertEqual((sorted(ranks[:2]), ranks[2:]), ([0, 1], [0, 1, None]))  # workers start in any order
            self.assertEqual(json.loads(lines[2]["metadata"]["metadata"])["local_rank"], [0])


if __name__ == "__main__":
    unittest.main()
