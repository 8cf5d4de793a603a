"""What a chaos run does to its job: each fault is drawn with its share, done through `muster fault` or by a signal."""
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from typing import Callable

from chaos_job import NODES, OWN_HOSTS, WORKERS


def order(job, *words):
    """muster fault; what it said, or that it was refused, which also is an answer in the midst of faults."""
    done = subprocess.run([job.build / "bin/muster", "fault", *map(str, words), "--job", job.tag], capture_output=True, text=True,
                          timeout=30)
    return done.stdout.strip() if done.returncode == 0 else f"refused: {done.stderr.strip()}"


def send(pid, number):
    try:
        os.kill(pid, number)
        return f"pid {pid}"
    except ProcessLookupError:
        return f"pid {pid} was gone already"


def later(seconds, action):
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()


class Chaos:
    """The faults of one job. `dice` decides everything that is drawn."""

    def __init__(self, job, dice):
        self.job, self.dice = job, dice
        self.stopped_agents = set()
        self.daemon_back_at = 0.0

    # ---- whom ----
    def rank(self):
        return self.dice.randrange(NODES * WORKERS)

    def node(self):
        """One that lives and is not stopped by us."""
        names = [name for name, one in self.job.agents.items() if one.process.poll() is None and name not in self.stopped_agents]
        return self.dice.choice(sorted(names)) if names else None

    def name(self, node):
        return f"{node if OWN_HOSTS else os.uname().nodename}:{self.job.agent_pid(node)}"

    def signal_one(self, pids_of, number):
        """To one process of a node that has such."""
        names = sorted(self.job.agents)
        self.dice.shuffle(names)
        pid = next((self.dice.choice(sorted(pids)) for name in names if (pids := pids_of(name))), None)
        return send(pid, number) if pid else "there is none"

    # ---- what ----
    def worker_killed(self):
        return order(self.job, "kill", "rank", self.rank())

    def worker_signalled(self):
        return self.signal_one(self.job.workers, signal.SIGKILL)

    def worker_stopped(self):
        return order(self.job, "stop", "rank", self.rank(), "--for", 2)

    def worker_stopped_for_good(self):
        return order(self.job, "stop", "rank", self.rank())

    def worker_slow(self):
        return order(self.job, "slow", "rank", self.rank(), "--for", 3, "--stopped", 80)

    def worker_without_memory(self):
        return order(self.job, "oom", "rank", self.rank())

    def agent_killed(self):
        node = self.node()
        return order(self.job, "kill", "node", self.name(node)) if node else "no agent"

    def agent_signalled(self):
        node = self.node()
        return f"{node}: {send(self.job.agent_pid(node), signal.SIGKILL)}" if node else "no agent"

    def agent_stopped(self):
        node = self.node()
        return order(self.job, "stop", "node", self.name(node), "--for", self.job.lease * 2) if node else "no agent"

    def agent_stopped_by_signal(self):
        node = self.node()
        if not node:
            return "no agent"
        pid = self.job.agent_pid(node)
        self.stopped_agents.add(node)

        def go_on():
            send(pid, signal.SIGCONT)
            self.stopped_agents.discard(node)
        told = send(pid, signal.SIGSTOP)
        later(self.job.lease * self.dice.choice([0.3, 1.5, 3]), go_on)
        return f"{node}: {told}"

    def agent_slow(self):
        node = self.node()
        return order(self.job, "slow", "node", self.name(node), "--for", 3, "--stopped", 80) if node else "no agent"

    def partition(self):
        node = self.node()
        length = self.job.lease * self.dice.choice([0.4, 2])
        return order(self.job, "partition", "node", self.name(node), "--for", length) if node else "no agent"

    def guardian_killed(self):
        node = self.node()
        guardian = self.job.guardian(node) if node else None
        return f"{node}: {send(guardian, signal.SIGKILL)}" if guardian else "no guardian"

    def daemon_killed(self):
        if self.job.daemon.process.poll() is not None:
            return "it was gone already"
        by_order = self.dice.random() < 0.5
        return order(self.job, "kill", "daemon") if by_order else send(self.job.daemon.process.pid, signal.SIGKILL)

    def daemon_stopped(self):
        return order(self.job, "stop", "daemon", "--for", 1)

    def standby_killed(self):
        return self.signal_one(self.job.standbys, signal.SIGKILL)

    def standby_stopped(self):
        """For good: the next restart does not wait for it."""
        return self.signal_one(self.job.standbys, signal.SIGSTOP)

    # ---- between faults ----
    def repair(self):
        """What an operator's service manager does: an agent that ended is started again after a second, the daemon too."""
        for name, one in list(self.job.agents.items()):
            if one.process.poll() is not None and self.job.result() is None:
                ended = getattr(one, "ended_at", None)
                if ended is None:
                    one.ended_at = time.monotonic()
                elif time.monotonic() > ended + 1:
                    self.job.start_node(name)
        if self.job.daemon.process.poll() is not None:
            if not self.daemon_back_at:
                self.daemon_back_at = time.monotonic() + 1
            elif time.monotonic() > self.daemon_back_at:
                self.daemon_back_at = 0.0
                self.job.start_daemon()


@dataclass
class Kind:
    name: str
    share: int
    once: Callable


KINDS = [
    Kind("worker killed (muster fault)", 3, Chaos.worker_killed),
    Kind("worker killed (signal)", 3, Chaos.worker_signalled),
    Kind("worker stopped for 2 s", 2, Chaos.worker_stopped),
    Kind("worker stopped for good", 2, Chaos.worker_stopped_for_good),
    Kind("worker slow for 3 s", 1, Chaos.worker_slow),
    Kind("worker out of memory", 1, Chaos.worker_without_memory),
    Kind("agent killed (muster fault)", 2, Chaos.agent_killed),
    Kind("agent killed (signal)", 2, Chaos.agent_signalled),
    Kind("agent stopped for two leases", 2, Chaos.agent_stopped),
    Kind("agent stopped (signal)", 2, Chaos.agent_stopped_by_signal),
    Kind("agent slow for 3 s", 1, Chaos.agent_slow),
    Kind("partition", 3, Chaos.partition),
    Kind("guardian killed", 2, Chaos.guardian_killed),
    Kind("daemon killed", 2, Chaos.daemon_killed),
    Kind("daemon stopped for 1 s", 1, Chaos.daemon_stopped),
]
WARM_KINDS = [
    Kind("standby process killed", 4, Chaos.standby_killed),
    Kind("standby process stopped", 4, Chaos.standby_stopped),
]
