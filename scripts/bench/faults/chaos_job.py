"""The job of a chaos run: launchers of four nodes and a spare, a daemon, a training; all on this host.

Each node has a host name of its own where we may give it one (root: a UTS namespace). What everybody says is kept with its
time in file order; times are CLOCK_MONOTONIC."""
import os
import re
import signal
import subprocess
import tempfile
import threading
import urllib.request
import uuid
from pathlib import Path

from cluster import Speaker
from measuring import carrying, clean_environment, free_port, wait_for

NODES, WORKERS = 4, 2
OWN_HOSTS = os.geteuid() == 0 and subprocess.run(["unshare", "--uts", "true"], stderr=subprocess.DEVNULL).returncode == 0
GOING_ON = re.compile(r"world (\d+): (?:training from the start|continuing from .* of step (\d+))")


def stands_by(pid):
    """What a standby process prints is kept in memory until it is a worker."""
    try:
        return os.readlink(f"/proc/{pid}/fd/1").startswith("/memfd:muster-standby-")
    except OSError:
        return False


def was_standby(pid):
    """Whether this worker is a warm one, which keeps its command line."""
    try:
        return b"stand_by()" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


class ChaosJob:
    """Use it as a context manager. `command_in` gives for the job's folder what a launcher runs, after options of its own."""

    def __init__(self, build, command_in, lease, **environment):
        self.build, self.lease, self.environment = Path(build), lease, environment
        self.scratch = tempfile.TemporaryDirectory(prefix="muster-chaos-")
        self.folder = Path(self.scratch.name)
        self.command = command_in(self.folder)
        self.port, self.tag = free_port(), uuid.uuid4().hex
        self.agents, self.daemon, self.everybody = {}, None, []
        self.begun = []  # (time, step) of each round whose training has begun
        self.ended = []  # (time, line) of rounds that have ended, as any agent said it first
        self.log = open(self.folder / "story.log", "w", buffering=1)
        self.lock = threading.Lock()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for one in self.everybody:
            one.process.wait(20)
            one.thread.join(5)
        self.log.close()
        self.scratch.cleanup()

    def hear(self, name, at, line):
        with self.lock:
            self.log.write(f"{at:.3f} {name}: {line}\n")
            if found := GOING_ON.search(line):
                self.begun.append((at, int(found[2] or 0)))
            if re.search(r"round \d+ ended", line) and name.startswith("node"):
                self.ended.append((at, line))

    # ---- starting ----
    def spawn(self, name, program, *arguments):
        command = [str(self.build / "bin" / program), *map(str, arguments)]
        if OWN_HOSTS and name.startswith("node"):
            command = ["unshare", "--uts", "sh", "-c", f"hostname {name} && exec \"$@\"", "sh", *command]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   cwd=self.folder, start_new_session=True,
                                   env=clean_environment(CHAOS_TAG=self.tag, TMPDIR=str(self.folder), **self.environment))
        speaker = Speaker(name, process, self.hear)
        self.everybody.append(speaker)
        return speaker

    def start_daemon(self, *options):
        self.daemon = self.spawn("daemon", "musterd", "--bind", "127.0.0.1", "--port", self.port, "--state", f"sqlite:{self.folder}/state.db",
                                 "--events", self.folder / "events", "--allow-faults", *options)
        self.until("listening musterd", lambda: any("listening" in line for _, line in self.daemon.lines), 20)

    def start_node(self, name):
        self.agents[name] = self.spawn(
            name, "muster", "--nnodes", NODES, "--spares", 1, "--nproc-per-node", WORKERS, "--rdzv-backend", "c10d",
            "--rdzv-endpoint", f"127.0.0.1:{self.port}", "--rdzv-id", self.tag, "--rdzv-conf",
            "last_call_timeout=3,join_timeout=300", "--local-addr", "127.0.0.1", "--lease", self.lease, "--max-restarts", 100000,
            "--max-stalled-restarts", 20, "--hang-timeout", 6, "--shutdown-timeout", 5, "--allow-faults", "--checkpoint-dir",
            self.folder / "checkpoints", *self.command)

    def start(self):
        self.start_daemon("--first-start")
        for index in range(NODES + 1):
            self.start_node(f"node{index}")
        self.until("training", lambda: self.begun, 120)

    # ---- looking ----
    def until(self, what, condition, deadline):
        return wait_for(what, condition, deadline, pause=0.02)

    def processes(self):
        """Pids of everything that carries the job's tag, zombies left out."""
        return carrying(f"CHAOS_TAG={self.tag}")

    def children(self, pid):
        try:
            return [int(one) for task in Path(f"/proc/{pid}/task").iterdir() for one in (task / "children").read_text().split()]
        except OSError:
            return []

    def agent_pid(self, name):
        """unshare and sh exec into muster, so it is the process that was started."""
        return self.agents[name].process.pid

    def guardian(self, name):
        found = self.children(self.agent_pid(name))
        return found[0] if found else None

    def guarded(self, name):
        guardian = self.guardian(name)
        return self.children(guardian) if guardian else []

    def workers(self, name):
        return [pid for pid in self.guarded(name) if not stands_by(pid)]

    def standbys(self, name):
        """Of --warm-workers, those included that still import."""
        return [pid for pid in self.guarded(name) if stands_by(pid)]

    def warm_workers(self):
        return sum(was_standby(pid) for name in self.agents for pid in self.workers(name))

    def result(self):
        """What rank 0 said of the final weights; None if it has not."""
        for one in self.everybody:
            for _, line in one.lines:
                if found := re.search(r"weights (\S+)", line):
                    return found[1]
        return None

    def lost_steps(self):
        """By the daemon's metrics, which a job that is over keeps. None: it has none."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=20) as answer:
            found = re.search(rf'muster_job_lost_steps_total{{job="{self.tag}"}} (\d+)', answer.read().decode())
        return int(found[1]) if found else None

    def events(self):
        """The lines of the daemon's events."""
        return (self.folder / "events/events.jsonl").read_text().splitlines()

    def story(self, lines=60):
        with self.lock:
            return "\n".join((self.folder / "story.log").read_text().splitlines()[-lines:])
