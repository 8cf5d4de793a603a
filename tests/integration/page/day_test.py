"""The page, left open for a day: its memory does not grow.

A stand-in for the daemon plays the day as fast as the page reads it. What it says is what a real musterd said of a real
job, with other steps and times. By 12 hours the page has as many events as it keeps, and the hours after them must cost nothing."""
import http.server
import itertools
import json
import os
import sys
import threading
import time
import unittest

from browser import CHROMIUM, Browser
from served_test import UI, Job, open_stream, read_until

HOUR = 3600
GROWTH_MAX = 1.05
NOISE = 100_000  # What the heap of one and the same page differs by from run to run.
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}


def recorded(job):
    """What a viewer hears first: type and data of each message."""
    link, text = open_stream(job, f"/api/v1/stream?job={job.id}")
    with link:
        text = read_until(link, text, lambda text: b"muster.round.sealed.v1" in text and text.endswith(b"\n\n"))
    parts = [part.split(b"\ndata: ") for part in text.split(b"\r\n\r\n", 1)[1].split(b"\n\n") if b"\ndata: " in part]
    return [(kind.removeprefix(b"event: ").decode(), json.loads(data)) for kind, data in parts]


class Daemon(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, job):
        super().__init__(("127.0.0.1", 0), Answer)
        self.job = job.id
        self.first = recorded(job)
        self.last = dict(self.first)
        self.began = time.time()
        self.numbers = itertools.count(1)
        self.seconds = itertools.count(1)
        self.played = 0
        self.until = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def second(self):
        """The messages of one second of the day."""
        self.played = now = next(self.seconds)
        job, jobs, nodes = self.last["job"], self.last["jobs"], self.last["nodes"]
        rows = {key: {**row, "step": now} for key, row in jobs["rows"].items()}
        yield "jobs", {"rows": rows}
        yield "job", {**job, "step": now}
        yield "nodes", {"rows": {key: {**row, "silent_ms": now % 1000} for key, row in nodes["rows"].items()}}
        if now % 10 == 0:
            number = next(self.numbers)
            at = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(self.began + now))
            yield "happened", {**self.last["happened"], "id": f"day/{number}", "sequence": f"{number:011}", "time": at,
                               "type": "muster.round.progress.v1",
                               "data": {"job": self.job, "round": 0, "step": now, "text": f"job '{self.job}': second {now} is over"}}


class Answer(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        path = self.path.split("?")[0]
        if path == "/api/v1/stream":
            return self.stream()
        file = UI / ("index.html" if path == "/" else path.removeprefix("/page/"))
        self.send_response(200 if file.is_file() else 404)
        self.send_header("Content-Type", TYPES.get(file.suffix, "text/plain"))
        self.end_headers()
        self.wfile.write(file.read_bytes() if file.is_file() else b"")

    def stream(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        daemon = self.server
        try:
            self.say(daemon.first)
            while True:
                if daemon.played < daemon.until:
                    self.say(message for _ in range(min(10, daemon.until - daemon.played)) for message in daemon.second())
                else:
                    self.say([("clock", {"now_ms": int(time.time() * 1000)})])
                    time.sleep(0.2)  # the daemon's word, so that the page does not take it for dead
        except OSError:
            pass

    def say(self, messages):
        self.wfile.write("".join(f"event: {kind}\ndata: {json.dumps(data)}\n\n" for kind, data in messages).encode())


@unittest.skipUnless(CHROMIUM, "chromium is not installed (scripts/setup --tests)")
class Day(unittest.TestCase):
    def memory(self, page, daemon, hours):
        """Bytes of the page's heap and its DOM nodes after so many hours."""
        daemon.until = hours * HOUR
        page.wait_for(f"second {hours * HOUR} is over", seconds=240)
        for _ in range(3):
            page.call("HeapProfiler.collectGarbage")
        return page.call("Runtime.getHeapUsage")["usedSize"], page.call("Memory.getDOMCounters")["nodes"]

    def test_a_day_costs_the_page_no_memory(self):
        with Job() as job, Browser() as browser:
            job.daemon()
            job.node("--lease", 10, nnodes="1", nproc=1)
            job.round(0, 1)
            daemon = Daemon(job)
            page = browser.page(f"http://127.0.0.1:{daemon.server_address[1]}/#/jobs/{job.id}")
            page.call("Network.disable")  # it would keep what the stream has sent
            page.wait_for("Round 0 runs on 1 node.")
            early, later = self.memory(page, daemon, 12), self.memory(page, daemon, 24)
            print(f"heap and nodes after 12 h: {early}, after 24 h: {later}")
            self.assertLessEqual(later[0], early[0] * GROWTH_MAX + NOISE)
            self.assertLessEqual(later[1], early[1] * GROWTH_MAX)
            self.assertEqual(page.complaints(), [])
            job.finish()


if __name__ == "__main__":
    if not CHROMIUM and os.environ.get("CI") == "true":
        sys.exit("chromium is not installed: run scripts/setup --tests")
    unittest.main()
