"""Cases of networks_test.py: the ways from a node to the workers' store of a round."""
import sys

from cluster_networks import GLOO, PORT, PYTHON, SHOW, plain, run, wait_for

# Asks the store of rank 0's node in clear text, and says whether it has answered.
KNOCK = """
import os, socket, sys
store = socket.create_connection((os.environ.get("MUSTER_STORE_ADDR") or os.environ["MASTER_ADDR"], int(sys.argv[1])), 10)
try:
    store.sendall(bytes([0, 0xCE, 0xF7, 0x85, 0x3C, 13, 1, 2, 3, 4]))  # VALIDATE and PING of PyTorch's client
    answer = store.recv(4)
except ConnectionError:
    answer = b""
print(f"rank {os.environ['RANK']}:", "answered" if answer else "closed", flush=True)
"""


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
    if "does not prove the key of the round, which --store-door asks of other hosts" not in shown[0].err.read_text():
        raise AssertionError(f"{cluster.tag}: the knock was not told\n{cluster.story()}")
    both = [nodes[0].muster(f"10.1.0.1:{PORT}", "--store-door"), nodes[1].muster(f"10.1.0.1:{PORT}")]
    wait_for(cluster, "refusal of the node that came second", lambda: any(launcher.poll() is not None for launcher in both))
    refused = next(launcher for launcher in both if launcher.poll() is not None)
    if refused.poll() != 78 or "give the same --store-door on every node" not in refused.err.read_text():
        raise AssertionError(f"{cluster.tag}: no advice\n{cluster.story()}")
    return took
