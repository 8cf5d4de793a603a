"""One muster job over several hosts: starts it, watches what its agents and workers say, and knows every process of it.

All times are CLOCK_MONOTONIC in seconds, which all namespaces share: a worker writes it as its first act, and an agent's
line counts from the moment at which it could be read here.
"""
import functools
import json
import os
import re
import select
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import uuid
from pathlib import Path

from measuring import Failed, carrying, clean_environment

DEADLINE = 60.0
PORT = 29400
KEY = "the key of this bench"


class Speaker:
    """A process and the lines that it and its workers print, each with its time; `told` hears each one with the name."""

    def __init__(self, name, process, told=lambda *_: None):
        self.name, self.process, self.lines, self.told = name, process, [], told
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    def listen(self):
        for line in iter(self.process.stdout.readline, b""):
            entry = (time.monotonic(), line.decode(errors="replace").rstrip())
            self.lines.append(entry)
            self.told(self.name, *entry)

    def heard(self, pattern, since=0.0):
        """When it first said a line that matches; None if it has not."""
        return next((at for at, line in list(self.lines) if at >= since and re.search(pattern, line)), None)


class Cluster:
    ended = r"round 0 ended"  # what every agent says when the first round is over
    count = "round"  # what a worker's line counts starts by
    stamp = "%Y-%m-%dT%H:"  # how an agent's line begins

    def __init__(self, build, hosts, workers=2, resident=48, options=(), job_options=(), daemon="daemon", state=None,
                 worker=None, environment=None):
        self.build, self.hosts, self.workers, self.resident = Path(build), hosts, workers, resident
        self.options, self.daemon_host, self.state = [*options, *job_options], daemon, state
        self.worker, self.environment = worker, environment or {}
        self.tag = uuid.uuid4().hex
        self.scratch = tempfile.TemporaryDirectory(prefix="muster faults ")
        self.log = Path(self.scratch.name) / "starts.log"
        self.log.touch()
        self.agents, self.daemon, self.everybody = {}, None, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in self.processes():
            self.kill(pid)
        for speaker in self.everybody:
            speaker.process.wait(60)
        self.scratch.cleanup()

    # ---- starting ----
    def spawn(self, host, program, *arguments, **environment):
        process = subprocess.Popen(
            self.hosts.command(host, [self.build / "bin" / program, *arguments]), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=self.scratch.name,
            env=clean_environment(FAULTS_TAG=f"{self.tag} {host}.", ELASTIC_LOG=str(self.log), TMPDIR=self.scratch.name,
                                  HOME=self.scratch.name, MUSTER_KEY=KEY) | self.environment | environment)
        speaker = Speaker(host, process)
        self.everybody.append(speaker)
        return speaker

    def start_daemon(self, *options):
        state = ["--state", self.state.replace("DIR", self.scratch.name)] if self.state else []
        self.daemon = self.spawn(self.daemon_host, "musterd", "--port", PORT, "--log-level", "info", *state, *options)
        self.until("listening musterd", lambda: self.daemon.heard("listening"))

    def start_node(self, host, nnodes, **environment):
        self.agents[host] = self.spawn(
            host, "muster", "--nnodes", nnodes, "--nproc-per-node", self.workers, "--rdzv-backend", "c10d",
            "--rdzv-endpoint", self.endpoint(), "--rdzv-id", "faults",
            "--local-addr", self.hosts.address(host), "--max-restarts", "3", "--log-level", "info", "--shutdown-timeout", "5",
            "--rdzv-conf", "last_call_timeout=60", *self.options, "--no-python", *self.program(), **environment)
        return self.agents[host]

    def program(self):
        return self.worker or [self.build / "worker_programs" / "elastic", "--resident", self.resident, "--until", "done"]

    def endpoint(self):
        return f"{self.hosts.address(self.daemon_host)}:{PORT}"

    @staticmethod
    def kill(pid):
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            pass

    # ---- looking ----
    def until(self, what, condition, deadline=DEADLINE):
        """What the condition gives. The looks become rarer: each time is known to half a percent, or to 2 ms."""
        began = time.monotonic()
        while not (value := condition()):
            waited = time.monotonic() - began
            if waited > deadline:
                raise Failed(f"no {what} within {deadline:g} s\n{self.story()}")
            time.sleep(max(0.002, waited / 200))
        return value

    def starts(self, number):
        """The workers' start lines of a round: dictionaries, with `at` in seconds."""
        found = []
        for line in self.log.read_text().splitlines():
            one = dict(re.findall(r"(\w+)=(\S+)", line))
            if line.startswith("start ") and "at" in one and one[self.count] == str(number):
                found.append({**one, "rank": int(one["rank"]), "pid": int(one["pid"]), "at": int(one["at"]) / 1e9})
        return found

    def round(self, number, count, deadline=DEADLINE):
        """Waits for `count` workers of a round; their lines by rank."""
        def running():
            if self.agents and all(one.process.poll() is not None for one in self.agents.values()):
                raise Failed(f"every agent has ended before round {number}\n{self.story()}")
            found = self.starts(number)
            return len(found) >= count and found
        found = self.until(f"round {number} of {count} workers", running, deadline)
        return {one["rank"]: one for one in found}

    def all_know(self, pattern, hosts, since, deadline=DEADLINE):
        """When the last of the hosts' agents said a line that matches."""
        self.until(f"word of '{pattern}' from {', '.join(hosts)}",
                   lambda: all(self.agents[host].heard(pattern, since) for host in hosts), deadline)
        return max(self.agents[host].heard(pattern, since) for host in hosts)

    def disturbed_in(self, first, seconds):
        """Whether a worker of that round ended or any node was given up within that time. Shows what everybody said then: nobody
        expects it."""
        watch = Watch([one["pid"] for one in first.values()])
        end = time.monotonic() + seconds
        while not (disturbed := watch.some_gone() or any(agent.heard(self.ended) for agent in self.agents.values())) and time.monotonic() < end:
            time.sleep(0.05)  # between two looks
        if disturbed:
            print(self.story(), file=sys.stderr)
        return disturbed

    @staticmethod
    def all_run(status):
        """Whether four nodes run, by what a daemon tells."""
        nodes = status["jobs"][0]["nodes"] if status and status["jobs"] else []
        return len(nodes) == 4 and all(one["connected"] and one["place"] == "running" for one in nodes)

    def processes(self, host=None):
        """Pids of everything that carries the job's tag (on that host), zombies left out."""
        return carrying(f"FAULTS_TAG={self.tag} {f'{host}.' if host else ''}")

    def status(self, host=None):
        """What a daemon (default: the only one) tells at /status; None where it does not answer."""
        request = urllib.request.Request(f"http://{self.hosts.address(host or self.daemon_host)}:{PORT}/status",
                                         headers={"Authorization": f"Bearer {self.status_token}"})
        try:
            with urllib.request.urlopen(request, timeout=2) as answer:
                return json.load(answer)
        except (OSError, ValueError):
            return None

    @functools.cached_property
    def status_token(self):
        return subprocess.run([self.build / "bin/musterd", "--status-token"], env={**os.environ, "MUSTER_KEY": KEY}, text=True,
                              capture_output=True, check=True).stdout.strip()

    def story(self):
        parts = [self.log.read_text()]
        for one in self.everybody:
            parts.append(f"--- {one.name}, exit {one.process.poll()}")
            parts += [f"{at:.3f} {line}" for at, line in one.lines]
        return "\n".join(parts)


class Watch(threading.Thread):
    """Ends of processes, seen through their pidfds at the moment they happen."""

    def __init__(self, pids):
        super().__init__(daemon=True)
        pids = list(pids)
        self.watched, self.open, self.ends = len(pids), set(), []
        self.poll = select.poll()  # not select(): a program of many runs has descriptors beyond 1,023
        for pid in pids:
            try:
                fd = os.pidfd_open(pid)
            except ProcessLookupError:  # before we could look
                self.ends.append(time.monotonic())
                continue
            self.open.add(fd)
            self.poll.register(fd, select.POLLIN)
        self.start()

    def run(self):
        while self.open:
            for fd, _ in self.poll.poll():
                self.ends.append(time.monotonic())
                self.poll.unregister(fd)
                self.open.discard(fd)
                os.close(fd)

    def all_gone(self, deadline=DEADLINE):
        """Waits for the end of all; when the last of them ended."""
        self.join(deadline)
        if self.is_alive():
            raise Failed(f"{self.watched - len(self.ends)} of {self.watched} processes live after {deadline:g} s")
        return max(self.ends)

    def some_gone(self):
        if not self.is_alive() and len(self.ends) < self.watched:
            raise Failed("nobody watches the processes any more")
        return bool(self.ends)
