"""What the tests of muster logs share."""
import contextlib
import datetime
import http.server
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import threading
import urllib.request

from job import BIN, tcp_sockets, wait_for


def logs(job, *words, **extra):
    return subprocess.run([BIN / "muster", "logs", *map(str, words)], capture_output=True, text=True, timeout=120, env=job.environment(**extra))


def of_job(job, *words, **extra):
    """Of the running job, as its daemon names its nodes. Asks up to five times where an answer of a busy machine was late."""
    for left in range(4, -1, -1):
        shown = logs(job, job.id, "--rdzv-endpoint", f"127.0.0.1:{job.port}", *words, **extra)
        is_late = re.search("no answer within|does not answer within|the deadline passed", shown.stderr) or re.search("(?m)^~", shown.stdout)
        if not is_late or left == 0:
            return shown
        print("asked again:", shown.stdout, shown.stderr, file=sys.stderr)


def agents(job):
    with urllib.request.urlopen(f"http://127.0.0.1:{job.port}/api/v1/jobs/{job.id}/agents", timeout=60) as page:
        return json.load(page)


def ranks_with_stacks(shown):
    """The ranks of all groups of `muster logs --stacks`, each of which has frames."""
    ranks = set()
    for listed in re.findall(r"(?m)^ranks? ([\d,-]+) on .* \(pid \d+\):\n +\S", shown.stdout):
        for piece in listed.split(","):
            first, _, last = piece.partition("-")
            ranks |= set(range(int(first), int(last or first) + 1))
    return ranks


def is_connected(process, port):
    """The process is connected to this port of this host."""
    sockets = tcp_sockets(port, "01", remote=True)
    with contextlib.suppress(FileNotFoundError):  # one was closed meanwhile
        return any(os.readlink(file) in sockets for file in pathlib.Path(f"/proc/{process.pid}/fd").iterdir())
    return False


def wait_until_followed(job, viewer):
    """Waits until the viewer is connected to every node of round 1. The last look at round 0 may show the first lines of round 1, too."""
    def is_followed():
        page = agents(job)
        return page["round"] == 1 and page["nodes"] and all(is_connected(viewer, node["port"]) for node in page["nodes"])
    wait_for("the connections of round 1", is_followed, deadline=120)


def is_open(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Front(http.server.ThreadingHTTPServer):
    """Gives the daemon's answers, or refuses each question for a job's nodes, or gives these another name."""
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            front = self.server
            asks_for_nodes = self.path.endswith("/agents")
            if front.refuses and asks_for_nodes:
                front.refused += 1
                self.send_error(front.refuses)
                return
            with urllib.request.urlopen(f"http://127.0.0.1:{front.behind}{self.path}", timeout=60) as page:
                body = page.read()
            if front.host and asks_for_nodes:
                answer = json.loads(body)
                for node in answer["nodes"]:
                    node["host"] = front.host
                body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)

        def version_string(self):
            return "muster"

        def log_message(self, *_):
            pass

    def __init__(self, behind):
        super().__init__(("127.0.0.1", 0), self.Handler)
        self.behind, self.refuses, self.refused, self.host = behind, None, 0, None
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


def wait_for_lines(job, pattern, count):
    """So many lines of workers are in files: the launcher writes there what it reads from them."""
    wait_for(f"{count} lines in files", lambda: sum(len(re.findall(pattern, file.read_text())) for file in job.directory.rglob("std*.log")) == count,
             deadline=120)


def late_ones(lines):
    """Of lines with their times: how many came a second or more after the one before. A fold shows these again."""
    times = [datetime.datetime.strptime(line.removeprefix("~").split()[0], "%H:%M:%S.%f") for line in lines]
    return sum((after - before).total_seconds() >= 1 for before, after in zip(times, times[1:]))
