"""A job whose rendezvous is three hosts, each with an etcd member and a musterd that keeps its state there."""
import json
import random
import time
import urllib.request

from cluster import PORT, Cluster, Failed, Watch
from hosts import Hosts

NODES = ["node1", "node2", "node3", "node4"]
REPLICAS = ["replica1", "replica2", "replica3"]
CLIENT, PEER = 2379, 2380
TUNED = ("--heartbeat-interval", "50", "--election-timeout", "250")
LEASE = 5


class Replicas(Cluster):
    """Four nodes of two workers, and the replicas; a context manager, with the hosts."""

    def __init__(self, lab, etcd_options=()):
        self.network = Hosts([*NODES, *REPLICAS])
        super().__init__(lab.build, self.network)
        self.etcd_options = etcd_options
        self.etcds, self.daemons = {}, {}

    def __enter__(self):
        self.network.__enter__()
        try:
            for host in REPLICAS:
                self.start_etcd(host)
            self.until("etcd's leader", self.etcd_leader)
            for host in REPLICAS:
                self.daemons[host] = self.spawn(
                    host, "musterd", "--port", PORT, "--first-start", "--advertise", f"{self.hosts.address(host)}:{PORT}", "--state",
                    "etcd://" + ",".join(f"{self.hosts.address(one)}:{CLIENT}" for one in REPLICAS))
            self.until("leading musterd", self.leader)
            for host in NODES:
                self.start_node(host, "4")
            self.first = self.round(0, 8)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        super().__exit__()
        self.network.__exit__()

    def endpoint(self):
        return ",".join(f"{self.hosts.address(host)}:{PORT}" for host in REPLICAS)

    def start_etcd(self, host):
        def url(one, port):
            return f"http://{self.hosts.address(one)}:{port}"
        state = "existing" if host in self.etcds else "new"
        self.etcds[host] = self.spawn(
            host, "/usr/bin/env", "etcd", "--name", host, "--data-dir", f"{self.scratch.name}/{host}",
            "--listen-client-urls", url(host, CLIENT), "--advertise-client-urls", url(host, CLIENT),
            "--listen-peer-urls", url(host, PEER), "--initial-advertise-peer-urls", url(host, PEER), "--initial-cluster",
            ",".join(f"{one}={url(one, PEER)}" for one in REPLICAS), "--initial-cluster-state", state, *self.etcd_options)

    # ---- looking ----
    def ask_etcd(self, host, path, **body):
        request = urllib.request.Request(f"http://{self.hosts.address(host)}:{CLIENT}/v3/{path}", data=json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=1) as answer:
            return json.load(answer)

    def etcd_leader(self):
        """The host of etcd's own leader, as all members agree; None while they do not."""
        members, leaders = {}, set()
        for host in REPLICAS:
            try:
                told = self.ask_etcd(host, "maintenance/status")
            except (OSError, ValueError):
                return None
            members[told["header"]["member_id"]] = host
            leaders.add(told.get("leader", "0"))
        return members.get(leaders.pop()) if len(leaders) == 1 else None

    def leader(self, among=REPLICAS):
        """The host whose musterd leads."""
        for host in among:
            told = self.status(host)
            if told and not told.get("standby"):
                self.told = told
                return host
        return None

    def move_etcd_leader(self, to):
        """Until etcd's own leader is on that host."""
        def there():
            now = self.etcd_leader()
            if now is None or now == to:
                return now == to
            try:
                target = self.ask_etcd(to, "maintenance/status")["header"]["member_id"]
                self.ask_etcd(now, "maintenance/transfer-leadership", targetID=target)
            except OSError:
                pass  # it changes already, or is slow to answer
            return False
        self.until(f"leader of etcd on {to}", there)
        time.sleep(1)  # a new leader of etcd prolongs all leases; by then they have been kept alive as usual

    def all_back(self, host):
        return self.leader([host]) is not None and self.all_run(self.told)


def replica_gone(with_etcd_leader, options=()):
    """The host of the leading musterd falls silent and dies; etcd's own leader with it, or not."""
    def once(lab):
        with Replicas(lab, options) as job:
            victim = job.until("word of who leads", job.leader)
            job.move_etcd_leader(victim if with_etcd_leader else random.choice([host for host in REPLICAS if host != victim]))
            if job.until("word of who leads", job.leader) != victim:
                raise Failed(f"the lead moved with etcd's\n{job.story()}")
            workers = Watch([one["pid"] for one in job.first.values()])
            others = [host for host in REPLICAS if host != victim]
            since = time.monotonic()
            job.hosts.cut(victim)
            for pid in job.processes(victim):
                Cluster.kill(pid)
            leader = job.until("next leader", lambda: job.leader(others))
            led = time.monotonic() - since
            job.until("return of four agents", lambda: job.all_back(leader))
            back = time.monotonic() - since
            return {"next leader": led, "all agents back": back,
                    "workers ended": job.disturbed_in(job.first, 1.1 * LEASE) or workers.some_gone()}
    return once


def member_gone_and_back(with_etcd_leader, options=()):
    """One etcd member is killed, etcd's own leader or one of the others, and started again 3 s later."""
    def once(lab):
        with Replicas(lab, options) as job:
            leader, etcd_leader = job.until("word of who leads", job.leader), job.until("leader of etcd", job.etcd_leader)
            victim = etcd_leader if with_etcd_leader else random.choice([host for host in REPLICAS if host != etcd_leader])
            workers = Watch([one["pid"] for one in job.first.values()])
            job.etcds[victim].process.kill()
            job.etcds[victim].process.wait()
            disturbed = job.disturbed_in(job.first, 3)
            job.start_etcd(victim)
            disturbed = disturbed or job.disturbed_in(job.first, 1.1 * LEASE) or workers.some_gone()
            return {"workers ended": disturbed, "another daemon leads": job.until("leading musterd", job.leader) != leader}
    return once
