"""muster doctor between nodes: in network namespaces, a planted fault of one node is named on every node, and nothing else.

    pairs_test.py [CASE...]"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import traceback

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "net"), str(TESTS.parent / "support")]
from cluster_networks import BIN, PORT, WORKERS, Cluster, wait_for  # noqa: E402
from hosts import prepare, private, wrong_clock  # noqa: E402

STORE = 29600
# What the nodes meet by stays; what they test is cut.
BETWEEN_RANKS = f"tcp sport != {{ {PORT}, {STORE} }} tcp dport != {{ {PORT}, {STORE} }}"
ONLY_PAIRS = "names,network,firewall,system,pci,kernel-log,disks,gpus,settings"


def words(count):
    """muster doctor between `count` nodes; the looks at the node itself are another test's."""
    return [BIN / "muster", "doctor", "--nnodes", count, "--rdzv-endpoint", f"10.1.0.1:{PORT}", "--json", "--skip", ONLY_PAIRS]


def start(cluster, count, *options, expected=None):
    """muster doctor on `count` hosts n0, n1, ... of one network."""
    nodes = [cluster.node(f"n{number}") for number in range(count)]
    for number, node in enumerate(nodes, 1):
        node.interface("front", f"10.1.0.{number}/24")
    return nodes, lambda: [
        node.start(*words(expected or count), "--out", node.folder, "--plot", node.folder / "links.svg", *options, "--", "--store-port", STORE)
        for node in nodes]


def start_by_srun(cluster, count, came):
    """muster doctor --level 2 as tasks of a step of `count` hosts, of which only the first `came` start; n0 has two tasks."""
    nodes, _ = start(cluster, count)
    names = "".join(f"10.1.0.{number} n{number - 1}\n" for number in range(1, count + 1))
    for number, task in [(0, 1)] + [(number, 0) for number in range(came)]:
        nodes[number].names(f"127.0.0.1 localhost\n{names}")
        nodes[number].start(BIN / "muster", "doctor", "--level", 2, "--json", "--skip", ONLY_PAIRS, "--wait", 15, "--", "--store-port", STORE,
                            SLURM_JOB_ID="4711", SLURM_STEP_ID="0", SLURM_PROCID=str(number), SLURM_NODEID=str(number), SLURM_LOCALID=str(task),
                            SLURM_STEP_NODELIST=f"n[0-{count - 1}]" if count > 1 else "n0")
    surplus, *tasks = [process for node in nodes for process in node.running]
    assert surplus.wait(60) == 0 and "task 1 on n0 exits" in surplus.err.read_text(), cluster.story()
    return tasks


def answers(cluster, processes, deadline=90):
    """(exit code, findings above information) of each, after all have ended."""
    end = time.monotonic() + deadline
    for process in processes:
        process.wait(max(0.1, end - time.monotonic()))
    found = []
    for process in processes:
        text = process.out.read_text()
        assert text.startswith("{"), cluster.story()
        all_of = json.loads(text)["findings"]
        found.append((process.returncode, [one for one in all_of if one["level"] != "info"], all_of))
    return found


def expect(cluster, answered, code, check, what, measured):
    for got, findings, _ in answered:
        assert (got, [one["check"] for one in findings]) == (code, [check]), cluster.story()
        assert what in findings[0]["what"] and measured in findings[0]["measured"], findings


def clean(cluster):
    nodes, go = start(cluster, 4)
    for got, findings, all_of in answers(cluster, go()):
        assert (got, findings) == (0, []), cluster.story()
        assert any(one["check"] == "links" and " MB/s, " in one["measured"] for one in all_of), all_of
    assert "differ" not in cluster.story() and " warning " not in cluster.story(), cluster.story()
    for node in nodes:
        assert sorted((node.folder / "passing_nodes.txt").read_text().split()) == ["n0", "n1", "n2", "n3"]
        assert (node.folder / "failing_nodes.txt").read_text() == ""
        assert (node.folder / "links.svg").read_text().count("#2e7d32") >= 4


def a_parent_that_ignores_its_children(cluster):
    """muster doctor inherits that SIGCHLD is ignored."""
    nodes, _ = start(cluster, 2)
    for node in nodes:
        node.start("env", "--ignore-signal=CHLD", *words(2), "--", "--store-port", STORE)
    for got, findings, _ in answers(cluster, [node.running[0] for node in nodes]):
        assert (got, findings) == (0, []), cluster.story()


def large_packets_are_lost(cluster):
    nodes, go = start(cluster, 6)
    nodes[4].drop(f"{BETWEEN_RANKS} meta length > 1300")
    answered = answers(cluster, go())
    expect(cluster, answered, 2, "node-links", "n4 (rank", "small messages pass, but large ones do not")
    assert (nodes[0].folder / "failing_nodes.txt").read_text() == "n4\n"


def a_firewall_between_ranks(cluster):
    nodes, go = start(cluster, 5)
    nodes[2].drop(BETWEEN_RANKS)
    expect(cluster, answers(cluster, go()), 2, "node-links", "n2 (rank", "no connection")


def a_node_that_never_comes(cluster):
    _, go = start(cluster, 3, "--wait", 15, expected=4)  # time enough for the three to start
    expect(cluster, answers(cluster, go()), 3, "nodes-missing", "nodes that came", "3")


def a_task_of_srun_that_never_comes(cluster):
    answered = answers(cluster, start_by_srun(cluster, 3, came=2))
    expect(cluster, answered, 3, "nodes-missing", "nodes that came", "2")
    assert any(one["check"] == "links" for one in answered[0][2]), answered[0]


def clean_tasks_of_srun(cluster):
    for got, findings, all_of in answers(cluster, start_by_srun(cluster, 3, came=3)):
        assert (got, findings, [one["check"] for one in all_of]) == (0, [], ["links"]), cluster.story()


def one_task_of_srun(cluster):
    expect(cluster, answers(cluster, start_by_srun(cluster, 1, came=1)), 3, "nodes", "nodes", "one node has no pair")


def two_clocks_that_differ(cluster):
    """Of two nodes nothing shows whose is wrong."""
    nodes, _ = start(cluster, 2)
    wrong = wrong_clock(cluster.folder, -3600)[0]
    for number, node in enumerate(nodes):
        node.start(*words(2), "--", "--store-port", STORE, **(wrong if number == 1 else {}))
    answered = answers(cluster, [node.running[0] for node in nodes])
    expect(cluster, answered, 1, "node-clock", "n1 (rank", "the clock of the second is ")
    assert "n0 (rank" in answered[0][1][0]["what"], answered[0]


def limits_of_rank_0_count(cluster):
    """A clock that they allow, and a link that is slow by them alone. The other node has no file."""
    nodes, _ = start(cluster, 2)
    limits = cluster.folder / "limits"
    limits.write_text("clock-ms = 7200000\nlink-slow-percent = 1000\n")
    wrong = wrong_clock(cluster.folder, -3600)[0]
    for number, node in enumerate(nodes):
        node.start(*words(2), *([] if number == 1 else ["--limits", limits]), "--", "--store-port", STORE, **(wrong if number == 1 else {}))
    for got, findings, _ in answers(cluster, [node.running[0] for node in nodes]):
        assert (got, {one["check"] for one in findings}) == (3, {"node-undecided"}), cluster.story()
        assert all(one["measured"].startswith("slow: ") for one in findings), findings


def a_node_with_another_mtu(cluster):
    nodes, go = start(cluster, 4)
    subprocess.run(["ip", "-n", nodes[2].space, "link", "set", "eth0", "mtu", "1400"], check=True)
    expect(cluster, answers(cluster, go()), 1, "node-mtu", "n2 (rank", "MTU 1400")


def a_slow_node(cluster):
    nodes, go = start(cluster, 5)
    nodes[3].drop(f"{BETWEEN_RANKS} limit rate over 400 kbytes/second")
    for got, findings, _ in answers(cluster, go()):
        assert (got, [one["check"] for one in findings]) == (2, ["node-links"]), cluster.story()
        assert "n3 (rank" in findings[0]["what"], findings


def a_path_between_two_nodes(cluster):
    """Where no pair was these two, a group shows it."""
    nodes, go = start(cluster, 5)
    nodes[1].drop(f"{BETWEEN_RANKS} ip saddr 10.1.0.4")
    for got, findings, _ in answers(cluster, go()):
        assert got == 1 and len(findings) == 1 and findings[0]["check"] in ("node-path", "nodes-together"), cluster.story()
        assert "n1 (rank" in findings[0]["what"] and "n3 (rank" in findings[0]["what"], findings


def second_networks(nodes):
    """Another interface of each node, with IPv4 and IPv6, and an interface that leads nowhere: Docker's bridge, with an address it gave itself."""
    for number, node in enumerate(nodes, 1):
        node.interface("back", f"10.2.0.{number}/24", f"fd00:2::{number}/64")
        node.interface(f"inside{number}", "172.17.0.1/16", f"169.254.0.{number}/16")


def clean_networks(cluster):
    nodes, go = start(cluster, 4)
    second_networks(nodes)
    for got, findings, all_of in answers(cluster, go()):
        assert (got, findings, [one["check"] for one in all_of]) == (0, [], ["links"]), cluster.story()


def one_address_of_a_node_is_a_dead_end(cluster):
    nodes, go = start(cluster, 5)
    second_networks(nodes)
    nodes[3].drop(f"{BETWEEN_RANKS} ip saddr 10.2.0.0/24")
    expect(cluster, answers(cluster, go()), 1, "node-network", "n3 (rank", "no connection")
    for node in nodes:
        assert " in network 10.2.0.0/24" in node.running[0].out.read_text()
        assert (node.folder / "failing_nodes.txt").read_text() == ""


def full_packets_vanish_by_ipv6(cluster):
    nodes, go = start(cluster, 5)
    second_networks(nodes)
    nodes[3].drop(f"ip6 saddr fd00:2::/64 {BETWEEN_RANKS} meta length > 1300")
    expect(cluster, answers(cluster, go()), 1, "node-network", "n3 (rank", "small messages pass, but large ones do not")


def a_path_of_one_network(cluster):
    """Two networks, of which one does not lead from n1 to n3. Where no pair was these two, the group is named."""
    nodes, go = start(cluster, 4)
    second_networks(nodes)
    nodes[1].drop(f"{BETWEEN_RANKS} ip saddr 10.2.0.4")
    for got, findings, _ in answers(cluster, go()):
        assert (got, [one["check"] for one in findings]) == (1, ["node-network"]), cluster.story()
        assert "n1 (rank" in findings[0]["what"] and "n3 (rank" in findings[0]["what"], findings


def a_network_loses_full_packets(cluster):
    """Between all nodes, as by a switch whose MTU is smaller."""
    nodes, go = start(cluster, 3)
    second_networks(nodes)
    for node in nodes:
        node.drop(f"{BETWEEN_RANKS} ip saddr 10.2.0.0/24 meta length > 1300")
    expect(cluster, answers(cluster, go()), 1, "node-network", "10.2.0.0/24", "between no two nodes: small messages pass")


def limit_connections(node, beyond="reject with tcp reset", always=""):
    """At most 8 connections between ranks at a time, of both directions. Ranks have 5 to each other one: with 3 nodes they are too many.
    `always` is a rule for all packets."""
    rules = f"table inet cut {{\nchain limited {{\n{BETWEEN_RANKS} ct state new ct count over 8 {beyond}\n{always}\n}}\n"
    for hook in ("input", "output"):
        rules += f"chain {hook} {{\ntype filter hook {hook} priority 0; jump limited;\n}}\n"
    subprocess.run(["ip", "netns", "exec", node.space, "nft", "-f", "-"], input=rules + "}\n", text=True, check=True)


def a_limit_of_connections(cluster):
    nodes, go = start(cluster, 8)
    limit_connections(nodes[3])
    answered = answers(cluster, go())
    expect(cluster, answered, 1, "nodes-together", "n3 (rank", "in a group of ")
    assert ", " not in answered[0][1][0]["what"], answered[0]
    assert (nodes[0].folder / "failing_nodes.txt").read_text() == "n3\n"


def two_racks_that_do_not_reach_each_other(cluster):
    nodes, go = start(cluster, 6)
    for node in nodes[3:]:
        node.drop(f"{BETWEEN_RANKS} ip saddr {{ 10.1.0.1, 10.1.0.2, 10.1.0.3 }}")
    answered = answers(cluster, go(), deadline=180)
    expect(cluster, answered, 2, "nodes-apart", "nodes n", "do not reach each other: no connection")
    racks = {tuple(sorted(part.removeprefix("nodes ").split(", "))) for part in answered[0][1][0]["what"].split("; ")}
    assert racks == {("n0", "n1", "n2"), ("n3", "n4", "n5")}, racks
    assert sorted((nodes[0].folder / "passing_nodes.txt").read_text().split()) in map(list, racks)


def a_node_with_another_build(cluster):
    nodes, _ = start(cluster, 4)
    for node in nodes:
        before = [] if node is not nodes[3] else ["sh", "-c", 'mount --bind "$0" "$1" && shift && exec "$@"',
                                                   WORKERS / "pairs_of_another_build", BIN / "muster-pairs"]
        node.start(*before, *words(4), "--", "--store-port", STORE)
    expect(cluster, answers(cluster, [node.running[0] for node in nodes]), 3, "node-build", "other (rank ", "install the same build of muster")


def processes_of(node):
    """(pid, name, number of threads) of each on the host."""
    for pid in subprocess.run(["ip", "netns", "pids", node.space], capture_output=True, text=True).stdout.split():
        process = pathlib.Path("/proc", pid)
        try:
            yield int(pid), (process / "comm").read_text().strip(), len(os.listdir(process / "task"))
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile, also between opening and reading


def tests_a_pair(node):
    """The pid of the host's muster-pairs once it tests a pair, which is the first that it has a thread for; else None."""
    return next((pid for pid, name, threads in processes_of(node) if name == "muster-pairs" and threads > 1), None)


def stopped(cluster, node, which):
    """Stops a process of the host for good while its muster-pairs tests a pair."""
    wait_for(cluster, "test of a pair", lambda: tests_a_pair(node))
    os.kill(which(node), signal.SIGSTOP)


def a_worker_that_hangs(cluster):
    """The others report it; on its own node no result is there. Nobody waits for it until it goes on."""
    nodes, go = start(cluster, 4)
    processes = go()
    stopped(cluster, nodes[3], tests_a_pair)
    answered = answers(cluster, processes)
    expect(cluster, answered[:3], 2, "node-links", "n3 (rank", "did not answer")
    expect(cluster, answered[3:], 3, "nodes", "nodes", "muster-pairs on this node did not answer")
    assert (nodes[0].folder / "failing_nodes.txt").read_text() == "n3\n"


def launcher_of_the_test(node):
    """The muster that muster doctor has started, by /proc/self/exe."""
    return next(pid for pid, name, _ in processes_of(node) if name == "exe")


def a_launcher_that_is_stopped(cluster):
    """On its own node it is killed and reported; the others lose the node, and report that."""
    nodes, go = start(cluster, 4)
    processes = go()
    stopped(cluster, nodes[3], launcher_of_the_test)
    answered = answers(cluster, processes)
    expect(cluster, answered[3:], 3, "nodes", "nodes", "was stopped (SIGSTOP), and was killed after 10 s")
    for got, findings, _ in answered[:3]:  # they may have had the result before they lost it
        assert all(one["what"].startswith(("n3 (rank", "nodes that came")) for one in findings), cluster.story()
        assert (got == 0) == (not findings), cluster.story()
    wait_for(cluster, "end of all processes on n3", lambda: not list(processes_of(nodes[3])))


def launched(cluster, nodes, *options, spares=0, deadline=90):
    """What each node of a job prints, which tests its links first. The settings of the first node differ from the others'."""
    jobs = [node.start(BIN / "muster", "--nnodes", len(nodes) - spares, "--spares", spares, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"10.1.0.1:{PORT}",
                       "--rdzv-id", "night", "--store-port", STORE, "--preflight=pairs", *options, "--no-python", "/bin/true", NCCL_ALGO="Tree" if node is nodes[0] else "Ring")
            for node in nodes]
    end = time.monotonic() + deadline
    said = []
    for one in jobs:
        assert one.wait(max(0.1, end - time.monotonic())) == 0, cluster.story()
        said.append(one.err.read_text())
    return said


def a_job_names_its_bad_node(cluster):
    nodes, _ = start(cluster, 5)
    nodes[2].drop(BETWEEN_RANKS)
    for node, said in zip(nodes, launched(cluster, nodes, "--max-restarts", 0, "--log-level", "info", spares=1)):
        lines = [line for line in said.splitlines() if "preflight: critical: node-" in line]
        assert len(lines) == 1 and "node-links: n2 (rank" in lines[0], said
        # It parks, and the spare has its place.
        is_sick = "this node is sick, and takes part in no round: --preflight: node-links: no connection;" in said
        assert (is_sick, "round 0: group rank" in said) == ((True, False) if node is nodes[2] else (False, True)), cluster.story()


def a_job_on_good_links(cluster):
    nodes, _ = start(cluster, 3)
    for said in launched(cluster, nodes, "--log-level", "info"):
        assert "node-" not in said and " between nodes" in said, said
        assert said.count("versions of the NCCL variables differ: ") == 1, said


CASES = [a_job_names_its_bad_node, a_job_on_good_links, clean, a_parent_that_ignores_its_children, large_packets_are_lost, a_firewall_between_ranks, a_node_that_never_comes, a_task_of_srun_that_never_comes,
         clean_tasks_of_srun, one_task_of_srun, two_clocks_that_differ, limits_of_rank_0_count, a_node_with_another_mtu, a_slow_node,
         a_path_between_two_nodes, a_limit_of_connections, clean_networks, one_address_of_a_node_is_a_dead_end,
         full_packets_vanish_by_ipv6, a_path_of_one_network, a_network_loses_full_packets, a_node_with_another_build, a_worker_that_hangs, a_launcher_that_is_stopped,
         two_racks_that_do_not_reach_each_other]


def main():
    private()
    prepare()
    chosen = [case for case in CASES if not sys.argv[1:] or case.__name__ in sys.argv[1:]]
    for number, case in enumerate(chosen):
        began = time.monotonic()
        # A rank that stands still for the 3 s that one message may take is named: not what was planted, but no wrong finding.
        for attempt in range(3):
            try:
                with Cluster(f"p{number}") as cluster:
                    case(cluster)
                break
            except AssertionError:
                if attempt == 2:
                    raise
                traceback.print_exc()
        print(f"{case.__name__}: {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
