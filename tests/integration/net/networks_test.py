"""Names and networks: launchers on hosts in network namespaces whose networks, names and name services are not as they
should be. Each case has two or three hosts that run an all_reduce over TCP; the cases run side by side.

    networks_test.py [CASE...]      prints how long each took from the start of the launchers to their end"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parents[2] / "support")]
from cluster_networks import BIN, GLOO, PORT, PYTHON, SHOW, WORKERS, Cluster, etcd_on, in_time, plain, run, wait_for  # noqa: E402
from hosts import ip, prepare, private  # noqa: E402
from own_processes import as_user  # noqa: E402
from store_cases import store_door_etcd, store_door_gloo, store_door_on_the_wire, store_door_two_rounds, store_relay_gloo  # noqa: E402
from torch_there import has_torch  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ASK_THREE_TIMES = """
import sys, time, urllib.request
answers = 0
while answers < 3:
    try:
        answers += urllib.request.urlopen(sys.argv[1], timeout=5).status == 200
    except OSError:
        time.sleep(0.01)  # between two looks
"""
LOCAL = "127.0.0.1 localhost\n::1 localhost\n"


def master(launcher):
    return re.search(r"master=(\S*)", launcher.out.read_text())[1]


def v6_only(cluster):
    nodes = plain(cluster, 3, "fd00:1::")
    return run(cluster, nodes, f"[fd00:1::1]:{PORT}", limit=5)[0]


def v6_link_local(cluster):
    nodes = plain(cluster, 2, "fe80::")
    return run(cluster, nodes, f"[fe80::1%eth0]:{PORT}", limit=5)[0]


def v6_musterd(cluster):
    nodes = plain(cluster, 2, "fd00:1::")
    nodes[0].start(BIN / "musterd", "--port", PORT, "--first-start")
    return run(cluster, nodes, f"[fd00:1::1]:{PORT}", limit=5)[0]


def v6_static(cluster):
    nodes = plain(cluster, 2, "fd00:1::")
    began = time.monotonic()
    launchers = [node.start(BIN / "muster", "--nnodes", 2, "--nproc-per-node", 1, "--node-rank", rank, "--master-addr",
                            "fd00:1::1", "--master-port", PORT, "--no-python", WORKERS / "context")
                 for rank, node in enumerate(nodes)]
    cluster.finish(launchers)
    cluster.summed(launchers)
    return time.monotonic() - began


def v6_etcd(cluster):
    """The rendezvous in an etcd at an IPv6 address; its leader is one of the agents' own daemons."""
    nodes = plain(cluster, 3, "fd00:1::")
    etcd_on(cluster, nodes[2], "fd00:1::3")
    return run(cluster, nodes[:2], "[fd00:1::3]:2379", "--rdzv-backend", "etcd", limit=60)[0]


def dual_stack(cluster):
    """The name has an address of each family; IPv6 is preferred, and the way there is a dead end."""
    nodes = [cluster.node(f"node{number}") for number in (1, 2, 3)]
    for number, node in enumerate(nodes, 1):
        node.interface("front", f"fd00:1::{number}/64", f"10.1.0.{number}/24")
        node.names(LOCAL + "fd00:1::1 node1\n10.1.0.1 node1\n")
        node.drop("iifname eth0 ip6 saddr fd00:1::/64 tcp dport != 0")
    took, launchers = run(cluster, nodes, f"node1:{PORT}", limit=4)
    _, shown = run(cluster, nodes, f"node1:{PORT}", limit=4, worker=SHOW)
    for launcher in shown:
        if master(launcher) != "10.1.0.1":
            raise AssertionError(f"{cluster.tag}: MASTER_ADDR\n{cluster.story()}")
    return took


def two_interfaces(cluster):
    nodes = [cluster.node(f"node{number}") for number in (1, 2, 3)]
    for number, node in enumerate(nodes, 1):
        node.interface("front", f"10.1.0.{number}/24")
        node.interface("back", f"10.2.0.{number}/24")
        node.names(LOCAL + "10.1.0.1 node1\n10.2.0.1 node1\n")
        node.drop("iifname eth0")
    return nodes


def dead_end_at_the_host(cluster):
    """The endpoint's name has two addresses, and the first one is a dead end; so is one of the store's, on the same host."""
    nodes = two_interfaces(cluster)
    took, _ = run(cluster, nodes, f"node1:{PORT}", limit=4)
    _, shown = run(cluster, nodes, f"node1:{PORT}", limit=4, worker=SHOW)
    for launcher in shown:  # on the host too: the address at which the others came
        if "master=10.2.0.1 gloo=eth1" not in launcher.out.read_text():
            raise AssertionError(f"{cluster.tag}: MASTER_ADDR\n{cluster.story()}")
    return took


def no_way_between_two(cluster, *networks):
    """Three hosts on each of these networks. All reach the first host, where the store is, but the others reach each other
    elsewhere: their packets at the first network's first address get lost."""
    nodes = [cluster.node(f"node{number}") for number in (1, 2, 3)]
    for number, node in enumerate(nodes, 1):
        for name, prefixes in networks:
            node.interface(name, *(f"{prefix}{number}/{64 if ':' in prefix else 24}" for prefix in prefixes))
    first = networks[0][1][0]
    nodes[1].drop(f"iifname eth0 {'ip6' if ':' in first else 'ip'} saddr {first}3")
    return nodes


def ranks_by_second_network(cluster):
    """The ranks of node2 and node3 find each other at the address that they are told second."""
    nodes = no_way_between_two(cluster, ("front", ["10.1.0."]), ("back", ["10.2.0."]))
    return run(cluster, nodes, f"10.1.0.1:{PORT}", limit=5)[0]


def ranks_by_second_network_v6(cluster):
    nodes = no_way_between_two(cluster, ("front", ["fd00:1::"]), ("back", ["fd00:2::"]))
    return run(cluster, nodes, f"[fd00:1::1]:{PORT}", limit=5)[0]


def ranks_by_other_family(cluster):
    """IPv6 reaches the store; between node2 and node3 only IPv4 gets through, on the same interface."""
    nodes = no_way_between_two(cluster, ("front", ["fd00:1::", "10.1.0."]))
    return run(cluster, nodes, f"[fd00:1::1]:{PORT}", limit=5)[0]


def ranks_past_a_bridge(cluster):
    """Each host has a bridge for containers with the same address, which the user's choice puts second: whoever tries it
    finds the own host."""
    nodes = no_way_between_two(cluster, ("front", ["10.1.0."]), ("back", ["10.2.0."]))
    for node in nodes:
        ip("-n", node.space, "link", "add", "docker0", "type", "bridge")
        ip("-n", node.space, "addr", "add", "172.17.0.1/16", "dev", "docker0")
        ip("-n", node.space, "link", "set", "docker0", "up")
    took, launchers = in_time(cluster, 5, lambda: [node.muster(f"10.1.0.1:{PORT}", nodes=3, MUSTER_IFNAME="eth0,docker0,eth1")
                                                   for node in nodes])
    cluster.summed(launchers)
    # The hosts are of one kernel, so memory could be shared but for their networks, as between containers.
    if "communicator world uses TCP: ranks of one host have different network namespaces" not in cluster.story():
        raise AssertionError(f"{cluster.tag}: not told why it is TCP\n{cluster.story()}")
    return took


def ranks_told_what_was_tried(cluster):
    """The user wants the first network only, by the very name that the agent would give gloo: both ranks say what was tried."""
    nodes = no_way_between_two(cluster, ("front", ["10.1.0."]), ("back", ["10.2.0."]))
    began = time.monotonic()
    launchers = [node.muster(f"10.1.0.1:{PORT}", nodes=3, worker=[WORKERS / "context", "meet"], GLOO_SOCKET_IFNAME="eth0")
                 for node in nodes]
    for launcher in launchers:
        if launcher.wait(120) == 0:
            raise AssertionError(f"{cluster.tag}: exit code 0\n{cluster.story()}")
    text = "".join(launcher.err.read_text() for launcher in launchers)
    caller, called = re.search(r"rank 2 \(pid \d+ on (node[23])\) cannot be reached: 10.1.0.[23] port \d+: no answer\.", text), re.search(
        r"rank 1 \(pid \d+ on (node[23])\) did not connect to this rank at 10.1.0.[23] port \d+\.", text)
    if not caller or not called or caller[1] == called[1]:
        raise AssertionError(f"{cluster.tag}: not told\n{cluster.story()}")
    return time.monotonic() - began


def mpirun_addresses(cluster):
    """mpirun's host tells its addresses: a dead end, one that every host has, where another's server listens, and the way."""
    nodes = two_interfaces(cluster)
    for node in nodes:
        ip("-n", node.space, "link", "add", "docker0", "type", "bridge")
        ip("-n", node.space, "addr", "add", "172.17.0.1/16", "dev", "docker0")
        ip("-n", node.space, "link", "set", "docker0", "up")
    job = b"mpi-7"
    port = 2_166_136_261  # FNV-1a, as launcher/scheduler/mpi_process.cpp chooses it
    for byte in job:
        port = (port ^ byte) * 16_777_619 % 2 ** 32
    port = 20_480 + port % 8_192
    stranger = nodes[1].start(sys.executable, "-u", "-m", "http.server", port, "--bind", "172.17.0.1")
    wait_for(cluster, "server", lambda: "Serving" in stranger.out.read_text())
    took, _ = in_time(cluster, 4, lambda: [
        node.start(BIN / "muster", "--no-python", *SHOW, OMPI_COMM_WORLD_RANK=str(rank), OMPI_COMM_WORLD_SIZE="3",
                   OMPI_COMM_WORLD_LOCAL_RANK="0", OMPI_COMM_WORLD_LOCAL_SIZE="1", OMPI_MCA_ess_base_jobid="7",
                   OMPI_MCA_orte_hnp_uri="8.0;tcp://10.1.0.1,172.17.0.1,10.2.0.1:39397") for rank, node in enumerate(nodes)])
    if "GET" in stranger.err.read_text() or "400" in stranger.err.read_text():
        raise AssertionError(f"{cluster.tag}: asked the stranger\n{cluster.story()}")
    return took


def watched_daemon(cluster):
    """Monitoring asks the host's daemon by a network of its own, more often than agents come."""
    nodes = [cluster.node(f"node{number}") for number in (1, 2)]
    for number, node in enumerate(nodes, 1):
        node.interface("back", f"10.2.0.{number}/24")
    watcher = cluster.node("watcher")
    for node, address in ((nodes[0], "10.1.0.1/24"), (watcher, "10.1.0.9/24")):
        node.interface("front", address)
    began = time.monotonic()
    launchers = [nodes[0].muster(f"10.2.0.1:{PORT}", "--node-rank", 0, worker=SHOW)]
    asked = watcher.start(sys.executable, "-c", ASK_THREE_TIMES, f"http://10.1.0.1:{PORT}/healthz")
    cluster.finish([asked])
    launchers.append(nodes[1].muster(f"10.2.0.1:{PORT}", "--node-rank", 1, worker=SHOW))
    cluster.finish(launchers)
    if "master=10.2.0.1 gloo=eth0" not in launchers[0].out.read_text():
        raise AssertionError(f"{cluster.tag}: MASTER_ADDR\n{cluster.story()}")
    return time.monotonic() - began


def dead_end_at_the_store(cluster):
    """The node of rank 0 reaches the daemon by a network that the other node has no way to: its packets there get lost."""
    daemon, store, other = (cluster.node(name) for name in ("daemon", "node1", "node2"))
    daemon.interface("front", "10.1.0.9/24")
    daemon.interface("back", "10.2.0.9/24")
    store.interface("front", "10.1.0.1/24")
    store.interface("back", "10.2.0.1/24")
    other.interface("back", "10.2.0.2/24")
    # A router that knows nothing of it.
    ip("-n", other.space, "route", "add", "default", "via", "10.2.0.9")
    store.names(LOCAL + "10.1.0.9 daemon\n")
    other.names(LOCAL + "10.2.0.9 daemon\n")
    musterd = daemon.start(BIN / "musterd", "--port", PORT, "--first-start")
    wait_for(cluster, "musterd", lambda: "listening" in musterd.out.read_text() + musterd.err.read_text())
    took, launchers = in_time(cluster, 4, lambda: [node.muster(f"daemon:{PORT}", "--node-rank", rank)
                                                   for rank, node in enumerate((store, other))])
    cluster.summed(launchers)
    shown = [node.muster(f"daemon:{PORT}", "--node-rank", rank, worker=SHOW) for rank, node in enumerate((store, other))]
    cluster.finish(shown)
    if master(shown[1]) != "10.2.0.1":
        raise AssertionError(f"{cluster.tag}: MASTER_ADDR\n{cluster.story()}")
    return took


def debian_names(cluster):
    """Each host's own name is 127.0.1.1 to itself."""
    nodes = plain(cluster, 3)
    for node in nodes:
        node.names(LOCAL + f"127.0.1.1 {node.name}.cluster {node.name}\n" +
                   "".join(f"10.1.0.{number} node{number}.cluster\n" for number in (1, 2, 3) if node.name != f"node{number}"))
    return run(cluster, nodes, f"node1.cluster:{PORT}", limit=5)[0]


def all_at_once_gloo(cluster):
    """PyTorch starts for seconds, so it meets all of it in one run: own names that are 127.0.1.1, a first interface that is a
    dead end, and a slow name service for all that is in no file."""
    nodes = two_interfaces(cluster)[:2]
    for node in nodes:
        node.names(LOCAL + f"127.0.1.1 {node.name}\n" + ("" if node.name == "node1" else "10.1.0.1 node1\n10.2.0.1 node1\n"))
    slow_resolver_for(cluster, nodes, "10.2.0.")
    took, launchers = run(cluster, nodes, f"node1:{PORT}", limit=50, worker=[PYTHON, "-c", GLOO])
    for launcher in launchers:
        if "gloo 3.0" not in launcher.out.read_text():
            raise AssertionError(f"{cluster.tag}: no sum\n{cluster.story()}")
    return took


def local_name(cluster):
    """--local-addr is a name, also on the node of rank 0, which knows by itself which interface that is."""
    nodes = plain(cluster, 2)
    for node in nodes:
        node.names(LOCAL + "10.1.0.1 ib1\n10.1.0.2 ib2\n")
    began = time.monotonic()
    launchers = [node.muster(f"10.1.0.1:{PORT}", "--node-rank", number - 1, "--local-addr", f"ib{number}", worker=SHOW)
                 for number, node in enumerate(nodes, 1)]
    cluster.finish(launchers)
    if [re.search("master=.*", launcher.out.read_text())[0] for launcher in launchers] != ["master=ib1 gloo=eth0",
                                                                                         "master=10.1.0.1 gloo=eth0"]:
        raise AssertionError(f"{cluster.tag}: MASTER_ADDR or the interface\n{cluster.story()}")
    return time.monotonic() - began


def wrong_own_name(cluster):
    """The endpoint's host finds a stranger's address under its own name, where nobody answers."""
    nodes = plain(cluster, 2)
    nodes[0].names(LOCAL + "10.1.0.77 node1\n")
    nodes[1].names(LOCAL + "10.1.0.1 node1\n")
    return run(cluster, nodes, f"node1:{PORT}", limit=5)[0]


def no_names(cluster):
    """No name resolves, not even a host's own; the endpoint is its full name on the host itself, and an address elsewhere."""
    nodes = plain(cluster, 2)
    nodes[1].names(LOCAL + "10.1.0.1 node1.cluster.example\n")
    return run(cluster, nodes, f"node1.cluster.example:{PORT}", limit=5)[0]


def name_server(cluster, number, bridge, network, *names):
    """At 53 or 54 of that network; without names it answers nothing."""
    server = cluster.node(f"dns{number}")
    server.interface(bridge, f"{network}{number}/24")
    started = server.start(sys.executable, HERE / "name_server.py", f"{network}{number}", *(names or ["silent"]))
    wait_for(cluster, "name server", lambda: "ready" in started.out.read_text())
    return started


def slow_resolver_for(cluster, nodes, network, *names, bridge="back"):
    """5 s a look-up: that is when the C library gives the first name server up and asks the second."""
    name_server(cluster, 53, bridge, network)
    name_server(cluster, 54, bridge, network, *(names or ["nobody=192.0.2.1"]))
    for node in nodes:
        node.resolver(f"nameserver {network}53\nnameserver {network}54\n")


def with_slow_resolver(cluster, *names):
    nodes = plain(cluster, 2)
    slow_resolver_for(cluster, nodes, "10.1.0.", *names, bridge="front")
    return nodes


def dead_resolver(cluster):
    """With addresses nobody asks it, but for the preflight, which looks at names beside the join."""
    nodes = plain(cluster, 2)
    resolver = name_server(cluster, 53, "front", "10.1.0.")
    for node in nodes:
        node.resolver("nameserver 10.1.0.53\n")
    took, _ = run(cluster, nodes, f"10.1.0.1:{PORT}", "--preflight=off", limit=5)
    if "asked" in resolver.out.read_text():
        raise AssertionError(f"{cluster.tag}: somebody asked it\n{cluster.story()}")
    return took


def slow_resolver(cluster):
    """The host knows its own name; the other node waits for one look-up, and not for a second."""
    nodes = with_slow_resolver(cluster, "node1=10.1.0.1")
    took, _ = run(cluster, nodes, f"node1:{PORT}", limit=9)
    return took


def slow_resolver_etcd(cluster):
    """Its name costs one look-up as well, though two parts of the launcher want its address."""
    nodes = with_slow_resolver(cluster, "keys=10.1.0.2")
    etcd_on(cluster, nodes[1], "10.1.0.2")
    return run(cluster, nodes, "keys:2379", "--rdzv-backend", "etcd", limit=9)[0]


def told_what_was_tried(cluster):
    """Nobody is there: each address and its answer are in the sentence."""
    nodes = plain(cluster, 2)
    nodes[1].names(LOCAL + "10.1.0.1 head\n10.1.0.77 head\n10.9.9.9 head\n")
    began = time.monotonic()
    launcher = nodes[1].muster(f"head:{PORT}", "--rdzv-conf", "join_timeout=15")
    launcher.wait(120)
    text = launcher.err.read_text()
    for wanted in ("10.1.0.1: Connection refused", r"10.1.0.77: (No route to host|no answer)", "10.9.9.9: Network is unreachable", "Check that"):
        if not re.search(wanted, text):
            raise AssertionError(f"{cluster.tag}: no {wanted!r}\n{cluster.story()}")
    return time.monotonic() - began


def killed_on_another_host(cluster):
    """A worker is killed in an all_reduce: within a second the ranks on the other hosts have an error that names it."""
    nodes = plain(cluster, 3)
    for _ in range(4):  # A busy machine is not late each time.
        took = killed_in_an_all_reduce(cluster, nodes)
        if took <= 1:
            return took
    raise AssertionError(f"{cluster.tag}: not all were told within 1 s, or of another first failure\n{cluster.story()}")


def killed_in_an_all_reduce(cluster, nodes):
    """Seconds until the last of the survivors was told."""
    launchers = [node.muster(f"10.1.0.1:{PORT}", nodes=3, worker=[WORKERS / "context", "reduce"]) for node in nodes]
    wait_for(cluster, "all_reduce", lambda: all("pid=" in launcher.out.read_text() for launcher in launchers))
    pid, = (found[1] for one in launchers if (found := re.search(r"rank=1 pid=(\d+)\n", one.out.read_text())))
    killed = time.monotonic()  # the clock of the workers, too
    os.kill(int(pid), signal.SIGKILL)
    for launcher in launchers:
        launcher.wait(120)
    told = [found for one in launchers if (found := re.search(r"failed at ([\d.]+): (.*)", one.out.read_text()))]
    took = max((float(one[1]) - killed for one in told), default=0)
    # One survivor may hear of the other's end, which this death caused, before it sees the death itself.
    named = [one for one in told if "rank 1" in one[2]]
    first = all("first failure: rank 1 " in one.err.read_text() for one in launchers)
    if len(told) != 2 or not named:
        raise AssertionError(f"{cluster.tag}: killed at {killed:.3f}, and not all were told\n{cluster.story()}")
    # A death has the time at which its own node saw it: on a busy host that can be after a survivor's end.
    return took if first else float("inf")


def copied_names(cluster):
    """The endpoint's host is 127.0.1.1 on a node of another name, whose /etc/hosts was copied: it is told of it."""
    nodes = plain(cluster, 2)
    nodes[1].names(LOCAL + "127.0.1.1 node1\n")
    began = time.monotonic()
    launcher = nodes[1].muster(f"node1:{PORT}", "--rdzv-conf", "join_timeout=8")
    launcher.wait(120)
    if not re.search("'node1' of --rdzv-endpoint is 127.0.1.1 here.*its own name is 'node2'", launcher.err.read_text()):
        raise AssertionError(f"{cluster.tag}: not told\n{cluster.story()}")
    return time.monotonic() - began


def port_without_the_right(cluster):
    """As a user who may not bind port 80."""
    node, = plain(cluster, 1)
    os.chmod(cluster.folder, 0o777)
    began = time.monotonic()
    launcher = node.start(*as_user(65534), "sh", "-c",
                          f'exec "{BIN}/muster" --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint '
                          'node1:80 --no-python true', HOME="/nowhere")
    launcher.wait(120)
    lines = launcher.err.read_text().strip().splitlines()
    if len(lines) != 1 or "port 80" not in lines[0] or "1024" not in lines[0]:
        raise AssertionError(f"{cluster.tag}: not one clear line\n{cluster.story()}")
    return time.monotonic() - began


CASES = (slow_resolver, slow_resolver_etcd, all_at_once_gloo, v6_only, v6_link_local, v6_musterd, v6_static, v6_etcd, dual_stack,
         ranks_by_second_network, ranks_by_second_network_v6, ranks_by_other_family, ranks_past_a_bridge, ranks_told_what_was_tried,
         store_relay_gloo, store_door_gloo, store_door_on_the_wire, store_door_two_rounds, store_door_etcd, dead_end_at_the_host, dead_end_at_the_store, mpirun_addresses, watched_daemon, debian_names, local_name, wrong_own_name,
         no_names, dead_resolver, told_what_was_tried, copied_names, port_without_the_right, killed_on_another_host)


def lacks(case):
    """What the case needs and this machine has not; in CI all must be there."""
    if case.__name__.endswith("etcd") and shutil.which("etcd") is None:
        return "etcd"
    if case.__name__.endswith("gloo") and not has_torch(PYTHON):
        return "PyTorch"
    return None


def one(number, case):
    if (what := lacks(case)) and os.environ.get("CI") != "true":
        return f"skipped: {what} is missing"
    with Cluster(f"n{number}") as cluster:
        return f"{case(cluster):.2f} s"


def main(all_cases=CASES):
    wanted = sys.argv[1:]
    cases = [case for case in all_cases if not wanted or case.__name__ in wanted]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=6) as pool:
        running = {case: pool.submit(one, number, case) for number, case in enumerate(cases)}
        for case, outcome in running.items():
            try:
                print(f"{case.__name__}: {outcome.result()}", flush=True)
            except Exception as failure:  # a case that fails must not hide the others
                failed += 1
                print(f"{case.__name__}: FAILED: {failure}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    private()
    prepare()
    sys.exit(main())
