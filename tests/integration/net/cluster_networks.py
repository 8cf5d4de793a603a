"""Small clusters in network namespaces: hosts with names, files and interfaces of their own, on bridges of their own.

Everything lies inside the private namespaces of scripts/bench/faults/hosts.py, so nothing is left behind."""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(REPOSITORY / "scripts/bench/faults"))
from hosts import ip  # noqa: E402
sys.path.insert(0, str(REPOSITORY / "tests/support"))
import own_processes  # noqa: E402, F401

BIN = pathlib.Path(os.environ["MUSTER_BIN"])
WORKERS = pathlib.Path(os.environ.get("MUSTER_WORKERS", BIN.parent / "worker_programs"))
PORT = 29400
DEADLINE = float(os.environ.get("NETWORKS_DEADLINE", "120"))
PYTHON = pathlib.Path(os.environ.get("MUSTER_TEST_PYTHON") or REPOSITORY / ".venv/bin/python")
# Python looks at all of PyTorch's objects several times as it ends, unless they are frozen.
GLOO = ("import gc, torch, torch.distributed as d; gc.freeze(); d.init_process_group('gloo'); t = torch.ones(1) * (d.get_rank() + 1); "
        "d.all_reduce(t); print('gloo', t.item(), flush=True); d.barrier(); d.destroy_process_group()")
SHOW = ["sh", "-c", 'echo "master=$MASTER_ADDR gloo=$GLOO_SOCKET_IFNAME"; echo "store=$MUSTER_STORE_ADDR"']


class Node:
    """One host: the network namespace `space`, a host name, and its own /etc/hosts and /etc/resolv.conf."""

    def __init__(self, cluster, name):
        self.cluster, self.name, self.space = cluster, name, f"{cluster.tag}-{name}"
        self.folder = cluster.folder / name
        self.folder.mkdir()
        self.running = []
        ip("netns", "add", self.space)
        ip("-n", self.space, "link", "set", "lo", "up")
        self.names("127.0.0.1 localhost\n::1 localhost\n")
        self.resolver("")

    def names(self, text):
        (self.folder / "hosts").write_text(text)

    def resolver(self, text):
        (self.folder / "resolv.conf").write_text(text)

    def interface(self, bridge, *addresses):
        """A wire to that bridge of the cluster; "fe80::1/64" and the like too. No waiting for duplicates."""
        device = f"eth{self.cluster.count(self)}"
        outer = self.outer = self.cluster.wire()
        ip("link", "add", outer, "type", "veth", "peer", "name", device, "netns", self.space)
        ip("link", "set", outer, "master", self.cluster.bridge(bridge), "up")
        ip("-n", self.space, "link", "set", device, "addrgenmode", "none")
        ip("-n", self.space, "link", "set", device, "up")
        for address in addresses:
            ip("-n", self.space, "addr", "add", address, "dev", device, *(["nodad"] if ":" in address else []))
        return device

    def drop(self, what):
        """A rule of nftables: what comes in or goes out is dropped without a word. `what`: "iifname eth0", "ip6 ..."."""
        for hook, rule in (("input", what), ("output", what.replace("iifname", "oifname").replace("saddr", "daddr"))):
            done = subprocess.run(["ip", "netns", "exec", self.space, "nft", "-f", "-"], capture_output=True, text=True, input=(
                f"table inet cut_{hook} {{\nchain everything {{\ntype filter hook {hook} priority 0; {rule} drop;\n}}\n}}\n"))
            if done.returncode != 0:
                raise RuntimeError(f"nft on {self.name}: {done.stderr.strip()}")

    def start(self, *command, **environment):
        """Starts it there, under the host's name and with its files, by a mount namespace of its own."""
        script = ('hostname "$0" && mount --bind "$1/hosts" /etc/hosts && mount --bind "$1/resolv.conf" /etc/resolv.conf '
                  '&& shift && exec "$@"')
        kept = {key: value for key, value in os.environ.items()
                if not key.startswith(("PET_", "MUSTER_", "SLURM_", "TORCHELASTIC_", "GLOO_"))}
        number = len(self.running)
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.space, "unshare", "--uts", "--mount", "--propagation", "private", "sh", "-c", script,
             self.name, str(self.folder), *map(str, command)],
            stdin=subprocess.DEVNULL, stdout=open(self.folder / f"{number}.out", "wb"), cwd=self.folder, start_new_session=True,
            stderr=open(self.folder / f"{number}.err", "wb"), env={
                **kept, "OMP_NUM_THREADS": "1", "TMPDIR": str(self.folder), "HOME": str(self.folder), "MUSTER_KEY": "the key of the test",
                **environment})
        process.out, process.err = self.folder / f"{number}.out", self.folder / f"{number}.err"
        self.running.append(process)
        return process

    def muster(self, endpoint, *options, nodes=2, worker=None, **environment):
        """A launcher with one worker, the C++ one (an all_reduce over TCP) unless another is given."""
        return self.start(BIN / "muster", "--nnodes", nodes, "--nproc-per-node", 1, "--rdzv-backend", "c10d", "--rdzv-id", "net",
                          "--rdzv-endpoint", endpoint, *options, "--no-python", *(worker or [WORKERS / "context"]), **environment)


class Cluster:
    """A context manager; `tag` names it among those that run at the same time."""

    def __init__(self, tag):
        self.tag, self.nodes, self.bridges, self.wires, self.counts = tag, {}, {}, 0, {}
        self.scratch = tempfile.TemporaryDirectory(prefix=f"muster-net-{tag}-")
        self.folder = pathlib.Path(self.scratch.name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for node in self.nodes.values():
            for process in node.running:
                if process.poll() is None:
                    process.kill()
                process.wait()
            for pid in subprocess.run(["ip", "netns", "pids", node.space], capture_output=True, text=True).stdout.split():
                try:
                    os.kill(int(pid), 9)
                except ProcessLookupError:
                    pass
            ip("netns", "del", node.space)
        for bridge in self.bridges.values():
            ip("link", "del", bridge)
        self.scratch.cleanup()

    def node(self, name):
        self.nodes[name] = Node(self, name)
        return self.nodes[name]

    def count(self, node):
        self.counts[node] = self.counts.get(node, -1) + 1
        return self.counts[node]

    def wire(self):
        self.wires += 1
        return f"{self.tag}w{self.wires}"

    def bridge(self, name):
        if name not in self.bridges:
            self.bridges[name] = f"{self.tag}b{len(self.bridges)}"
            ip("link", "add", self.bridges[name], "type", "bridge")
            ip("link", "set", self.bridges[name], "up")
        return self.bridges[name]

    def story(self):
        text = ""
        for node in self.nodes.values():
            for process in node.running:
                text += f"--- {node.name}: {process.returncode}\n{process.out.read_text()}{process.err.read_text()}"
        return text

    def finish(self, processes, deadline=DEADLINE):
        """Seconds until all of them have ended with 0."""
        began = time.monotonic()
        for process in processes:
            try:
                code = process.wait(max(0.1, deadline - (time.monotonic() - began)))
            except subprocess.TimeoutExpired:
                raise AssertionError(f"{self.tag}: still running after {deadline} s\n{self.story()}") from None
            if code != 0:
                raise AssertionError(f"{self.tag}: exit code {code}\n{self.story()}")
        return time.monotonic() - began

    def usual(self):
        """Seconds that a job takes just now whose network is as it should be."""
        with Cluster(f"{self.tag}u") as other:
            nodes = [other.node(f"node{number}") for number in (1, 2)]
            for number, node in enumerate(nodes, 1):
                node.interface("front", f"10.1.0.{number}/24")
            return other.finish([node.muster(f"10.1.0.1:{PORT}") for node in nodes])

    def summed(self, processes):
        """All workers have the sum of rank + 1 over the job, and it came over TCP."""
        count = len(processes)
        for process in processes:
            text = process.out.read_text()
            if f"world={count} " not in text or f"sum={count * (count + 1) // 2} transport=tcp" not in text:
                raise AssertionError(f"{self.tag}: no sum over TCP\n{self.story()}")


def plain(cluster, count, network="10.1.0."):
    """Hosts with one interface each: node1 has 10.1.0.1, and so on."""
    nodes = [cluster.node(f"node{number}") for number in range(1, count + 1)]
    for number, node in enumerate(nodes, 1):
        node.interface("front", f"{network}{number}/24" if "." in network else f"{network}{number}/64")
    return nodes


def in_time(cluster, limit, start):
    """Starts launchers that end with 0 within `limit`, or on a machine that is busy with other tests within eight times what a job takes
    that lacks what this case is about. Again where that is not so: what is waited for is so each time."""
    for _ in range(4):
        began = time.monotonic()
        launchers = start()
        cluster.finish(launchers)
        took = time.monotonic() - began
        if took <= limit or took <= 8 * cluster.usual():
            return took, launchers
    raise AssertionError(f"{cluster.tag}: took {took:.2f} s, more than {limit} s\n{cluster.story()}")


def run(cluster, nodes, endpoint, *options, limit, worker=None):
    """Starts all launchers at once, whose ranks are in the order of `nodes`; each worker has the sum."""
    took, launchers = in_time(cluster, limit, lambda: [
        node.muster(endpoint, "--node-rank", rank, *options, nodes=len(nodes), worker=worker) for rank, node in enumerate(nodes)])
    if worker is None:
        cluster.summed(launchers)
    return took, launchers


def wait_for(cluster, what, condition, deadline=120):
    end = time.monotonic() + deadline
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{cluster.tag}: no {what}\n{cluster.story()}")
        time.sleep(0.01)  # between two looks


def etcd_on(cluster, node, address):
    """An etcd of one member, ready."""
    host = f"[{address}]" if ":" in address else address
    clients, peers = f"http://{host}:2379", f"http://{host}:2380"
    etcd = node.start("etcd", "--data-dir", node.folder / "etcd", "--listen-client-urls", clients, "--advertise-client-urls", clients,
                      "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}")
    wait_for(cluster, "etcd", lambda: "ready to serve client requests" in etcd.err.read_text())
