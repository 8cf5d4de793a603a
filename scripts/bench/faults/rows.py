"""The faults: what is done to a cluster, what is measured, and what it should be."""
import contextlib
import os
import random
import re
import signal
import struct
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from cluster import Cluster, Failed, Watch
from hosts import Hosts, wrong_clock
from replicas import TUNED, member_gone_and_back, replica_gone
from torchrun import TorchrunCluster

NODES = ["node1", "node2", "node3", "node4"]
SAFE = "two rounds at once"
GONE, OTHERS = "its workers gone", "survivors in a new round"
MINORITY, MAJORITY = "minority stopped", "majority in a new round"


@dataclass
class Row:
    """One fault. `once` does it to a fresh cluster and returns {measure: seconds, or 0 and 1 for "never" and "it did"}."""
    name: str
    what: str
    targets: dict  # measure -> the largest value that is allowed; None: only told
    once: Callable
    runs: int = 100
    needs: str = ""  # what must be there: "sqlite", "etcd"
    peer: bool = False  # torchrun can finish it too


@dataclass
class Lab:
    """What all rows share."""
    build: Path
    torchrun: Path | None = None  # in muster's place

    def job(self, hosts, **settings):
        if self.torchrun:
            return TorchrunCluster(self.build, hosts, torchrun=self.torchrun, **settings)
        return Cluster(self.build, hosts, **settings)


class Four:
    """Four nodes of two workers and a daemon on a fifth host, in their first round."""

    def __init__(self, lab, nnodes="2:4", network="veth", on_host=None, wait=True, **settings):
        self.hosts = Hosts([*NODES, "daemon"], network)
        self.lab, self.nnodes, self.on_host, self.wait, self.settings = lab, nnodes, on_host or {}, wait, settings

    def __enter__(self):
        self.hosts.__enter__()
        self.job = self.lab.job(self.hosts, **self.settings)
        try:
            self.job.start_daemon("--first-start")
            for host in NODES:
                self.job.start_node(host, self.nnodes, **self.on_host.get(host, {}))
            self.first = self.job.round(0, 8) if self.wait else {}
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.job.__exit__()
        self.hosts.__exit__()

    def workers_of(self, host):
        there = set(self.job.processes(host))
        return [one["pid"] for one in self.first.values() if one["pid"] in there]

    def next_round(self, count, since):
        """(seconds until the last of `count` workers of round 1 ran, when the first of them ran)"""
        found = self.job.round(1, count)
        return max(one["at"] for one in found.values()) - since, min(one["at"] for one in found.values())


def worker_killed(lab):
    with Four(lab) as four:
        victim = random.choice(list(four.first.values()))["pid"]
        since = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        return {"all agents know": four.job.all_know(four.job.ended, NODES, since) - since}


def agent_killed(lab):
    with Four(lab) as four:
        host = random.choice(NODES)
        left = Watch(pid for pid in four.job.processes(host))
        since = time.monotonic()
        four.job.agents[host].process.kill()
        know = four.job.all_know(four.job.ended, [one for one in NODES if one != host], since)
        gone = left.all_gone()
        if four.job.processes(host):
            raise Failed(f"processes are left on {host}\n{four.job.story()}")
        return {"all agents know": know - since, "nothing left on its node": gone - since}


def left_out(lose, gone, others, count=1, **settings):
    """A row: `lose` takes `count` nodes away. Measured are the end of their workers (`gone`), and the new round of the others."""
    def once(lab):
        with Four(lab, **settings) as four:
            away = random.sample(NODES, count)
            workers = Watch([pid for host in away for pid in four.workers_of(host)])
            since = time.monotonic()
            lose(four, away)
            running, first = four.next_round(8 - 2 * count, since)
            ended = workers.all_gone()
            return {gone: ended - since, others: running, SAFE: first < ended}
    return once


def stop_agents(four, away):
    for host in away:
        four.job.agents[host].process.send_signal(signal.SIGSTOP)


def cut(four, away):
    """From all nodes but one another."""
    for host in away:
        four.hosts.cut(host, but=away)


def cut_one_way(four, away):
    outbound = random.choice([True, False])
    for host in away:
        four.hosts.cut(host, inbound=not outbound, outbound=outbound)


def bad_network(seconds):
    def once(lab):
        with Four(lab, network="tap") as four:
            four.hosts.switch.delay, four.hosts.switch.loss = 0.2, 0.05
            return {"false alarms": four.job.disturbed_in(four.first, seconds)}
    return once


def daemon_restarted(state):
    def once(lab):
        with Four(lab, state=state) as four:
            workers = Watch([one["pid"] for one in four.first.values()])
            since = time.monotonic()
            four.job.daemon.process.kill()
            four.job.daemon.process.wait()
            time.sleep(max(0.0, since + 1.0 - time.monotonic()))  # for so long there is no daemon: part of the fault
            restarted = time.monotonic()
            four.job.start_daemon()
            four.job.until("return of four agents", lambda: four.job.all_run(four.job.status()))
            reached = time.monotonic() - restarted
            ended = four.job.disturbed_in(four.first, 1.5 * 5) or workers.some_gone()  # a lease and a half: who was not taken back would be judged in it
            return {"all agents back": reached, "workers ended": ended}
    return once


def first_node_gone(lab):
    with Four(lab) as four:
        host = next(host for host in NODES if four.first[0]["pid"] in set(four.job.processes(host)))
        since = time.monotonic()
        four.hosts.cut(host)
        for pid in four.job.processes(host):
            with contextlib.suppress(ProcessLookupError):  # a worker ends with its guardian
                os.kill(pid, signal.SIGKILL)
        return {"next round runs": four.next_round(6, since)[0]}


def eight_restarted(lab):
    with Hosts(["node1", "daemon"]) as hosts, lab.job(hosts, workers=8) as job:
        job.start_daemon("--first-start")
        job.start_node("node1", "1")
        victim = random.choice(list(job.round(0, 8).values()))["pid"]
        since = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        return {"all 8 of the next round run": max(one["at"] for one in job.round(1, 8).values()) - since}


def clock_set(lab):
    """The wall clock of one node is an hour late, jumps two ahead, and is put right; nothing may come of it."""
    with tempfile.TemporaryDirectory() as scratch:
        variables, shift = wrong_clock(Path(scratch), -3600)
        host = random.choice(NODES)
        with Four(lab, on_host={host: variables}) as four:
            # That it is seen: an agent's lines carry the wall clock.
            hour = time.strftime(four.job.stamp, time.gmtime(time.time() - 3600))
            if not four.job.agents[host].heard(hour):
                raise Failed(f"the stand-in for the clock had no effect\n{four.job.story()}")
            disturbed = False
            for hours in (1, 0):
                with shift.open("r+b") as file:
                    file.write(struct.pack("q", hours * 3600))
                disturbed = disturbed or four.job.disturbed_in(four.first, 1.5 * 5)
            return {"anything happened": disturbed}


def said_by_all(job, pattern):
    """What matches it in the lines of all nodes."""
    return [match for host in NODES for _, line in list(job.agents[host].lines) if (match := re.search(pattern, line))]


def rank_stopped(lab):
    """A rank stops in the midst of its collectives: the errors of all survivors and the verdict of every node have to name it."""
    deadline = 10
    worker = [lab.build / "bin/bench_death_rank", 32, deadline]
    with Four(lab, worker=worker, wait=False) as four:
        job = four.job
        job.until("eight ranks that reduce", lambda: len(said_by_all(job, r"^\d+ \d+ ready")) == 8)
        ready = {int(match[1]): int(match[2]) for match in said_by_all(job, r"^(\d+) (\d+) ready")}
        time.sleep(random.uniform(0.05, 0.3))  # somewhere in a collective
        victim = random.choice(list(ready))
        since = time.monotonic()
        os.kill(ready[victim], signal.SIGSTOP)
        failed = r"^\d+ failed (\d+) (.*)"
        job.until("failure of all survivors", lambda: len(said_by_all(job, failed)) == 7, deadline + 20)
        ended = r"round 0 ended: (.*)"
        verdict = job.all_know(ended, NODES, since)
        survivors = said_by_all(job, failed)
        named = [re.search(r"rank (\d+)", match[2]) for match in survivors]
        judged = [re.match(r"rank (\d+) on \S+ failed: ", match[1]) for match in said_by_all(job, ended)]
        return {"named, beyond the deadline": max(int(match[1]) / 1e9 for match in survivors) - since - deadline,
                "every node's verdict, beyond it": verdict - since - deadline,
                "another rank named": any(match is None or int(match[1]) != victim for match in named + judged)}


ROWS = [
    Row("worker-killed", "worker SIGKILLed", {"all agents know": 0.05}, worker_killed, peer=True),
    Row("agent-killed", "agent SIGKILLed", {"all agents know": 0.1, "nothing left on its node": 2}, agent_killed),
    Row("agent-stopped", "agent SIGSTOPped", {GONE: 4.5, OTHERS: 6, SAFE: 0}, left_out(stop_agents, GONE, OTHERS)),
    Row("node-silent", "link dropped, lease 5 s", {OTHERS: 6, GONE: 4.5, SAFE: 0},
        left_out(cut, GONE, OTHERS, options=["--lease", 5])),
    Row("node-silent-1", "link dropped, lease 1 s", {OTHERS: 2, GONE: 0.9, SAFE: 0},
        left_out(cut, GONE, OTHERS, options=["--lease", 1])),
    Row("partition", "two nodes of four cut off together",
        {MINORITY: 4.5, MAJORITY: 6, SAFE: 0}, left_out(cut, MINORITY, MAJORITY, count=2)),
    Row("one-way", "one node cut in one direction", {MINORITY: 4.5, MAJORITY: 6, SAFE: 0},
        left_out(cut_one_way, MINORITY, MAJORITY)),
    Row("daemon-memory", "daemon SIGKILLed, restarted 1 s later, memory state",
        {"all agents back": 2, "workers ended": 0}, daemon_restarted(None)),
    Row("daemon-sqlite", "the same, SQLite state", {"all agents back": 2, "workers ended": 0},
        daemon_restarted("sqlite:DIR/state.db"), needs="sqlite"),
    Row("replica-gone", "host of the leading daemon gone, 3 etcd members",
        {"next leader": 3, "all agents back": 5, "workers ended": 0}, replica_gone(False), needs="etcd"),
    Row("replica-gone-etcd", "the same, etcd's own leader with it",
        {"next leader": 7, "all agents back": 9, "workers ended": 0}, replica_gone(True), needs="etcd"),
    Row("replica-gone-tuned", "host of the leading daemon gone, etcd tuned",
        {"next leader": 2.5, "all agents back": 4.5, "workers ended": 0}, replica_gone(False, TUNED), needs="etcd"),
    Row("replica-gone-etcd-tuned", "the same, etcd's own leader with it",
        {"next leader": 2.5, "all agents back": 4.5, "workers ended": 0}, replica_gone(True, TUNED), needs="etcd"),
    Row("etcd-member-back", "one of three etcd members gone, and back after 3 s",
        {"workers ended": 0, "another daemon leads": 0}, member_gone_and_back(False), needs="etcd"),
    # An election of etcd's may cost the leading daemon its lease (state/ETCD.md, "How long a failover takes"): told, but
    # no fault as long as no worker ends for it.
    Row("etcd-leader-back", "the same, etcd's own leader", {"workers ended": 0, "another daemon leads": None},
        member_gone_and_back(True), needs="etcd"),
    Row("etcd-leader-back-tuned", "the same, etcd tuned", {"workers ended": 0, "another daemon leads": None},
        member_gone_and_back(True, TUNED), needs="etcd"),
    Row("rank-0-gone", "node of rank 0 gone, external daemon", {"next round runs": 6}, first_node_gone),
    Row("eight-restarted", "restart of 8 workers on one node", {"all 8 of the next round run": 0.3}, eight_restarted, peer=True),
    Row("rank-stopped", "a rank stops in a collective, deadline 10 s",
        {"named, beyond the deadline": 2, "every node's verdict, beyond it": 4, "another rank named": 0}, rank_stopped),
    Row("clock-set", "clock of one node set +-1 hour", {"anything happened": 0}, clock_set, peer=True),
    Row("bad-network", "5 % loss and 200 ms delay each way, 10 minutes", {"false alarms": 0}, bad_network(600), runs=3, peer=True),
]
