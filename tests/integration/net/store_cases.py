"""Cases of networks_test.py: the ways from a node to the workers' store of a round."""
import re
import sys
import time

from cluster_networks import BIN, GLOO, PORT, PYTHON, SHOW, WORKERS, etcd_on, plain, run, wait_for

# Asks the store of rank 0's node in clear text, and says whether it has answered.
KNOCK = """
import os, socket, sys
store = socket.create_connection((os.environ.get("MUSTER_STORE_ADDR") or os.environ["MASTER_ADDR"], int(sys.argv[1])), 60)
try:
    store.sendall(bytes([0, 0xCE, 0xF7, 0x85, 0x3C, 13, 1, 2, 3, 4]))  # VALIDATE and PING of PyTorch's client
    answer = store.recv(4)
except ConnectionError:
    answer = b""
print(f"rank {os.environ['RANK']}:", "answered" if answer else "closed", flush=True)
"""

# Counts the frames of this host's wire that have one of these texts in clear text, until there is a file "stop".
LISTEN = """
import pathlib, socket, sys
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
wire.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
wire.bind(("eth0", 3))
wire.settimeout(0.1)
print("listens", flush=True)
seen = named = 0
while True:
    last = pathlib.Path("stop").exists()
    try:
        while True:
            frame = wire.recv(1 << 17)
            seen += 1
            named += any(text.encode() in frame for text in sys.argv[1:])
    except TimeoutError:
        if last:
            break
print(seen, named, flush=True)
"""

# Knocks in each round. In the first one rank 1 is killed when its host has a file "go"; the others do an all_reduce.
TWO_ROUNDS = """
echo "round $MUSTER_ROUND master=$MASTER_ADDR"
"$0" -c "$1" "$2"
[ "$MUSTER_ROUND$RANK" != 01 ] || { until [ -e go ]; do sleep 0.01; done; exec "$0" -c "import os; os.kill(os.getpid(), 9)"; }
exec "$3"
"""


def ear(cluster, node, *texts):
    """Listens on the node's wire. What it returns ends it, and returns how many frames came and how many have a text."""
    stop = node.folder / "stop"
    stop.unlink(missing_ok=True)
    listener = node.start(sys.executable, "-c", LISTEN, *texts)
    wait_for(cluster, "ear", lambda: "listens" in listener.out.read_text())

    def heard():
        stop.touch()
        cluster.finish([listener])
        return map(int, listener.out.read_text().split()[1:])
    return heard


def store_relay_gloo(cluster):
    """The ranks meet through relays at loopback addresses, which must not become the ranks' own addresses."""
    nodes = plain(cluster, 3)
    took, _ = run(cluster, nodes, f"10.1.0.1:{PORT}", "--store-relay", limit=5)
    run(cluster, nodes, f"10.1.0.1:{PORT}", "--store-relay", limit=50, worker=[PYTHON, "-c", GLOO])
    _, shown = run(cluster, nodes, f"10.1.0.1:{PORT}", "--store-relay", limit=4, worker=SHOW)
    told = ["10.1.0.1 gloo=eth0\nstore=\n", *["127.0.0.1 gloo=eth0\nstore=10.1.0.1\n"] * 2]
    if any("master=" + line not in launcher.out.read_text() for launcher, line in zip(shown, told)):
        raise AssertionError(f"{cluster.tag}: MASTER_ADDR\n{cluster.story()}")
    return took


def store_door_gloo(cluster):
    """Other hosts reach the store through their node's relay alone, which proves the key of the round."""
    nodes = plain(cluster, 2)
    took, _ = run(cluster, nodes, f"10.1.0.1:{PORT}", "--store-door", limit=5)
    run(cluster, nodes, f"10.1.0.1:{PORT}", "--store-door", limit=50, worker=[PYTHON, "-c", GLOO])
    store = PORT + 7
    for option, told in ("--store-relay", "answered"), ("--store-door", "closed"):
        _, shown = run(cluster, nodes, f"10.1.0.1:{PORT}", option, "--store-port", store, limit=20,
                       worker=[sys.executable, "-c", KNOCK, store])
        lines = sorted(line for launcher in shown for line in launcher.out.read_text().splitlines() if line.startswith("rank "))
        if lines != ["rank 0: answered", f"rank 1: {told}"]:
            raise AssertionError(f"{cluster.tag}: {option}: {lines}\n{cluster.story()}")
    if "does not prove the key of the round, which --store-door and --wire-security encrypt ask of other hosts" not in shown[0].err.read_text():
        raise AssertionError(f"{cluster.tag}: the knock was not told\n{cluster.story()}")
    both = [nodes[0].muster(f"10.1.0.1:{PORT}", "--wire-security", "encrypt"), nodes[1].muster(f"10.1.0.1:{PORT}")]
    wait_for(cluster, "refusal of the node that came second", lambda: any(launcher.poll() is not None for launcher in both))
    refused = next(launcher for launcher in both if launcher.poll() is not None)
    if refused.poll() != 78 or "give the same --store-door and --wire-security on every node" not in refused.err.read_text():
        raise AssertionError(f"{cluster.tag}: no advice\n{cluster.story()}")
    return took


def store_door_on_the_wire(cluster):
    """The runtime's own client speaks through the door, too: without it an attacker on the path reads the names of its keys.
    --wire-security encrypt closes the door by itself."""
    began, nodes = time.monotonic(), plain(cluster, 2)
    for options, is_clear in ((), True), (["--store-relay"], True), (["--store-door"], False), (["--wire-security", "encrypt"], False):
        heard = ear(cluster, nodes[1], "muster/net/")
        run(cluster, nodes, f"10.1.0.1:{PORT}", *options, limit=120)
        seen, named = heard()
        if seen < 20 or (named > 0) != is_clear:
            raise AssertionError(f"{cluster.tag}: {options}: {named} of {seen} frames\n{cluster.story()}")
    return time.monotonic() - began


def door_rounds(cluster, nodes, endpoint, *options, meanwhile):
    """A round fails while its ranks use the door; `meanwhile` comes before. The next one has a store and a door of its own, at
    the same port."""
    began, store = time.monotonic(), PORT + 7
    launchers = [node.muster(endpoint, "--store-door", "--store-port", store, "--max-restarts", 1, *options,
                             worker=["sh", "-c", TWO_ROUNDS, sys.executable, KNOCK, store, WORKERS / "context"]) for node in nodes]

    def knocks(rank):
        return re.findall(rf"rank {rank}: (\w+)", "".join(launcher.out.read_text() for launcher in launchers))

    wait_for(cluster, "knocks of the first round", lambda: knocks(0) and knocks(1))
    meanwhile()
    for node in nodes:
        (node.folder / "go").touch()
    cluster.finish(launchers)
    cluster.summed(launchers)
    if knocks(0) != ["answered"] * 2 or knocks(1) != ["closed"] * 2:
        raise AssertionError(f"{cluster.tag}: {knocks(0)}, {knocks(1)}\n{cluster.story()}")
    masters = [line for launcher in launchers for line in re.findall(r"round (\d+) master=(\S+)", launcher.out.read_text())]
    # Rank 0 is on the node that came first, and has its own address.
    if not any(sorted(masters) == sorted((number, master) for number in "01" for master in (first, "127.0.0.1"))
               for first in ("10.1.0.1", "10.1.0.2")):
        raise AssertionError(f"{cluster.tag}: {masters}\n{cluster.story()}")
    return time.monotonic() - began


def store_door_two_rounds(cluster):
    nodes = plain(cluster, 2)
    return door_rounds(cluster, nodes, f"10.1.0.1:{PORT}", meanwhile=lambda: None)


def store_door_etcd(cluster):
    """The daemon that sealed the first round is killed. The one that takes over from etcd gives the next round its key."""
    *nodes, host = plain(cluster, 3)
    etcd_on(cluster, host, "10.1.0.3")
    daemons = [host.start(BIN / "musterd", "--port", port, "--first-start", "--state", "etcd://10.1.0.3:2379", "--advertise",
                          f"10.1.0.3:{port}", "--log-level", "info") for port in (PORT, PORT + 1)]

    def leaders():
        def leads(said):
            return said.rfind("this daemon is the leader") > said.rfind("no longer the leader")
        return [daemon for daemon in daemons if daemon.poll() is None and leads(daemon.err.read_text())]

    def take_over():
        old, = leaders()
        old.kill()
        old.wait()  # until it has ended, leaders() still returns it
        wait_for(cluster, "new leader", lambda: leaders())

    wait_for(cluster, "leader", leaders)
    return door_rounds(cluster, nodes, f"10.1.0.3:{PORT},10.1.0.3:{PORT + 1}", "--lease", 20, meanwhile=take_over)
