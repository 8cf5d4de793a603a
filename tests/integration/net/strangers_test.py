"""Who may come to the ports of a job: hosts in network namespaces, one of which is a stranger's.

    strangers_test.py [CASE...]      prints how long each took"""
import pathlib
import re
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import probes  # noqa: E402
from cluster_networks import BIN, PORT, WORKERS  # noqa: E402
from hosts import ip, prepare, private  # noqa: E402
from networks_test import main, plain, wait_for  # noqa: E402
from store_cases import ear  # noqa: E402

KEY = "a key that no stranger has"
# Talks to the store as PyTorch's client does, and ends when its host has a file "go": 0 if the store has answered.
WORKER = [sys.executable, "-c", f"""
import os, pathlib, socket, sys, time
answer = b""
try:
    with socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), 60) as store:
        store.sendall({probes.VALIDATE + probes.PING!r})
        answer = store.recv(4, socket.MSG_WAITALL)
except OSError as failure:
    print(failure, file=sys.stderr)
print(f"store={{os.environ['MASTER_ADDR']}} {{os.environ['MASTER_PORT']}} answer={{answer.hex()}}", flush=True)
while answer and not pathlib.Path("go").exists():
    time.sleep(0.01)  # between two looks
sys.exit(answer != {probes.PONG!r})
"""]
SERVED = f"answer={probes.PONG.hex()}\n"


def served(launcher):
    return SERVED in launcher.out.read_text()


def store_of(launcher):
    return re.search(r"store=(\S+) (\d+)", launcher.out.read_text()).groups()


def probed(stranger, address, *ports):
    """What the stranger's probes heard: a list of (port, probe, answer)."""
    asked = stranger.start(sys.executable, probes.__file__, "net", address, *ports, IDENTITY=probes.identity_of(KEY, "net"))
    asked.wait(300)
    lines = [re.fullmatch(r"(\d+) (.*): ([0-9a-f]*)", line).groups() for line in asked.out.read_text().splitlines()]
    if asked.returncode != 0 or len(lines) != len(ports) * len(probes.PROBES):
        raise AssertionError(f"the probes failed: {asked.err.read_text()}")
    return [(port, name, bytes.fromhex(answer)) for port, name, answer in lines]


def expect_refusals(cluster, heard):
    answered = [f"port {port}, {name}: {answer[:60]}" for port, name, answer in heard
                if not probes.is_refusal(answer) and not probes.is_public(name, answer)]
    if answered:
        raise AssertionError(f"{cluster.tag}: a stranger was answered:\n" + "\n".join(answered) + f"\n{cluster.story()}")


def release(*nodes):
    for node in nodes:
        (node.folder / "go").touch()


def store_is_for_its_nodes(cluster):
    """The stranger hears nothing from the round's store, whatever it says; the nodes are served meanwhile."""
    nodes = plain(cluster, 3)
    began = time.monotonic()
    launchers = [node.muster(f"10.1.0.1:{PORT}", worker=WORKER) for node in nodes[:2]]
    wait_for(cluster, "answer of the store", lambda: all(map(served, launchers)))
    address, port = store_of(launchers[1])
    expect_refusals(cluster, probed(nodes[2], address, port))
    for _ in range(4):  # A probe waits for 1.5 s, and a busy machine may be late.
        again = dict((name, answer) for _, name, answer in probed(nodes[1], address, port))
        if again["c10d ping"] == probes.PONG:
            break
    else:
        raise AssertionError(f"{cluster.tag}: a node of the round was not served\n{cluster.story()}")
    wait_for(cluster, "word of the refusal", lambda: "it is no address of a node of this round" in cluster.story())
    release(*nodes)
    cluster.finish(launchers)
    return time.monotonic() - began


def spare_is_served_in_its_round(cluster):
    """A surplus node is a stranger to the running round's store; when it takes a lost node's place it is a client."""
    nodes = plain(cluster, 3)
    began = time.monotonic()
    launchers = [node.muster(f"10.1.0.1:{PORT}", worker=WORKER) for node in nodes[:2]]
    wait_for(cluster, "answer of the store", lambda: all(map(served, launchers)))
    launchers.append(nodes[2].muster(f"10.1.0.1:{PORT}", worker=WORKER))
    wait_for(cluster, "spare", lambda: "spare" in launchers[2].err.read_text())
    expect_refusals(cluster, probed(nodes[2], *store_of(launchers[1])))
    launchers[1].kill()
    wait_for(cluster, "answer to the spare", lambda: served(launchers[2]))
    release(*nodes)
    cluster.finish([launchers[0], launchers[2]])
    return time.monotonic() - began


def static_store_is_for_its_nodes(cluster):
    """The store is at the daemon's port: with a key it serves the nodes of the round, and says nothing to the stranger."""
    nodes = plain(cluster, 3)
    began = time.monotonic()
    launchers = [node.start(BIN / "muster", "--nnodes", 2, "--nproc-per-node", 1, "--node-rank", rank, "--master-addr", "10.1.0.1",
                            "--master-port", PORT, "--no-python", *WORKER, MUSTER_KEY=KEY, HOME=str(node.folder))
                 for rank, node in enumerate(nodes[:2])]
    wait_for(cluster, "answer of the store", lambda: all(map(served, launchers)))
    expect_refusals(cluster, probed(nodes[2], "10.1.0.1", PORT))
    release(*nodes)
    cluster.finish(launchers)
    return time.monotonic() - began


def behind_nat(cluster):
    """node3 reaches musterd and the store through a router, under two addresses; nobody can know the second one."""
    front, router, daemon, inside = (cluster.node(name) for name in ("node1", "router", "daemon", "node3"))
    front.interface("front", "10.1.0.1/24")
    router.interface("inside", "10.9.0.1/24")
    for bridge, network in (("front", "10.1.0."), ("back", "10.2.0.")):
        router.interface(bridge, f"{network}9/24")
        daemon.interface(bridge, f"{network}5/24")
    inside.interface("inside", "10.9.0.3/24")
    ip("-n", inside.space, "route", "add", "default", "via", "10.9.0.1")
    subprocess.run(["ip", "netns", "exec", router.space, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward && nft -f -"],
                   check=True, text=True, input="table ip nat {\nchain out {\ntype nat hook postrouting priority 100;\n"
                                                'iifname "eth0" masquerade\n}\n}\n')
    daemon.start(BIN / "musterd", "--port", PORT, "--first-start")
    began = time.monotonic()

    def run(*options):
        launchers = [front.muster(f"10.1.0.5:{PORT}", "--node-rank", 0, *options, worker=WORKER),
                     inside.muster(f"10.2.0.5:{PORT}", "--node-rank", 1, worker=WORKER)]
        # The first node's worker may be stopped before it has said a word: the other one's failure ends the round.
        wait_for(cluster, "word of the store", lambda: "answer=" in launchers[1].out.read_text())
        return launchers

    first, second = run()
    if served(second) or first.wait(120) == 0 or second.wait(120) == 0:
        raise AssertionError(f"{cluster.tag}: a client from an unknown address was served\n{cluster.story()}")
    if not re.search(r"connection from 10\.1\.0\.9 (port \d+ )?refused: .*--allow-from", first.err.read_text()):
        raise AssertionError(f"{cluster.tag}: not told what to do\n{cluster.story()}")
    launchers = run("--allow-from", "10.1.0.9")
    release(front, inside)
    cluster.finish(launchers)
    return time.monotonic() - began


def allow_from_closes_every_port(cluster):
    """--allow-from without the stranger's network: not even a refusal of musterd, or of a port of metrics, reaches it."""
    nodes = plain(cluster, 2)
    ports = [PORT + i for i in range(4)]
    for musterd, metrics, sources in ((PORT, PORT + 2, "10.1.0.128/25"), (PORT + 1, PORT + 3, "10.1.0.0/25")):
        nodes[0].start(BIN / "musterd", "--port", musterd, "--allow-from", sources)
        nodes[0].start(BIN / "muster", "--standalone", "--metrics-listen", f"0.0.0.0:{metrics}", "--allow-from", sources, "--no-python",
                       WORKERS / "elastic", "--until", "done")
    began = time.monotonic()
    wait_for(cluster, "ports", lambda: listeners(nodes[0]) >= set(ports))
    for _ in range(4):  # A probe waits for 1.5 s, and a busy machine may be late.
        heard = {(port, name): answer for port, name, answer in probed(nodes[1], "10.1.0.1", *ports)}
        if any(answer for (port, _), answer in heard.items() if int(port) in (PORT, PORT + 2)):
            raise AssertionError(f"{cluster.tag}: a stranger was answered: {heard}\n{cluster.story()}")
        if all(heard[str(port), "metrics"].startswith(b"HTTP/1.1 401 ") for port in (PORT + 1, PORT + 3)):
            break
    else:
        raise AssertionError(f"{cluster.tag}: one that may come was refused: {heard}\n{cluster.story()}")
    return time.monotonic() - began


def listeners(node):
    """The TCP ports at which something listens on this host, but those of loopback."""
    table = subprocess.run(["ip", "netns", "exec", node.space, "cat", "/proc/net/tcp", "/proc/net/tcp6"], capture_output=True,
                           text=True, check=True).stdout
    found = set()
    for line in table.splitlines():
        fields = line.split()
        if fields[3] != "0A":
            continue
        address, port = fields[1].split(":")
        if not address.endswith(("0100007F", "00000000000000000000000001000000")):
            found.add(int(port, 16))
    return found


def expect_no_answer(cluster, stranger, *nodes):
    """Each port of these nodes is probed from the stranger's host."""
    for number, node in enumerate(nodes, 1):
        ports = listeners(node)
        if not ports:
            raise AssertionError(f"{cluster.tag}: no listeners on {node.name}\n{cluster.story()}")
        expect_refusals(cluster, probed(stranger, f"10.1.0.{number}", *sorted(ports)))


def no_listener_answers_a_stranger(cluster):
    """Two nodes with a key and nothing else set: first ranks that talk over TCP, then a job that is to end well."""
    nodes = plain(cluster, 3)
    began = time.monotonic()

    def start(*worker):
        return [node.muster(f"10.1.0.1:{PORT}", worker=worker, MUSTER_KEY=KEY, HOME=str(node.folder)) for node in nodes[:2]]

    launchers = start(WORKERS / "context", "reduce")
    wait_for(cluster, "all_reduce", lambda: all("pid=" in one.out.read_text() for one in launchers))
    expect_no_answer(cluster, nodes[2], *nodes[:2])
    if any(one.poll() is not None for one in launchers):
        raise AssertionError(f"{cluster.tag}: the probes ended the job\n{cluster.story()}")
    for one in launchers:
        one.terminate()
    for one in launchers:
        one.wait(120)
    launchers = start(*WORKER)
    wait_for(cluster, "answer of the store", lambda: all(map(served, launchers)))
    expect_no_answer(cluster, nodes[2], *nodes[:2])
    release(*nodes[:2])
    cluster.finish(launchers)
    return time.monotonic() - began


def viewers_of_logs_need_the_key(cluster):
    """muster logs on a host that is no node of the job: with the key it gets the lines of all nodes, also of the one that has the
    round's store; without it, no line."""
    nodes = plain(cluster, 3)
    began = time.monotonic()
    launchers = [node.muster(f"10.1.0.1:{PORT}", "--log-dir", node.folder / "logs", "-t", 3, worker=WORKER) for node in nodes[:2]]
    wait_for(cluster, "answer of the store", lambda: all(map(served, launchers)))

    def logs(**environment):
        shown = nodes[2].start(BIN / "muster", "logs", "net", "--rdzv-endpoint", f"10.1.0.1:{PORT}", "--all", **environment)
        return shown.wait(120), shown.out.read_text(), shown.err.read_text()

    code, out, err = logs()
    if code != 0 or sorted(line[:10] for line in out.splitlines()) != ["[0]: store", "[1]: store"]:
        raise AssertionError(f"{cluster.tag}: with the key: {code} {out} {err}\n{cluster.story()}")
    code, out, err = logs(MUSTER_KEY="another key of sixteen bytes and more")
    if code == 0 or out:
        raise AssertionError(f"{cluster.tag}: with another key: {code} {out} {err}\n{cluster.story()}")
    release(*nodes)
    cluster.finish(launchers)
    return time.monotonic() - began


def logs_of_a_job_without_a_key(cluster):
    """muster logs with a key, of a job without one: it asks daemon and agents in clear text, but only with --insecure."""
    nodes, began = plain(cluster, 3), time.monotonic()
    launchers = [node.muster(f"10.1.0.1:{PORT}", "--insecure", "--log-dir", node.folder / "logs", "-t", 3, worker=WORKER, MUSTER_KEY="")
                 for node in nodes[:2]]
    wait_for(cluster, "answer of the store", lambda: all(map(served, launchers)))
    for options, lines in ((), []), (("--insecure",), ["[0]: store", "[1]: store"]):
        shown = nodes[2].start(BIN / "muster", "logs", "net", "--rdzv-endpoint", f"10.1.0.1:{PORT}", "--all", *options)
        code, out = shown.wait(120), shown.out.read_text()
        if (code == 0) != bool(lines) or sorted(line[:10] for line in out.splitlines()) != lines:
            raise AssertionError(f"{cluster.tag}: {options} {code} {out} {shown.err.read_text()}\n{cluster.story()}")
    release(*nodes)
    cluster.finish(launchers)
    return time.monotonic() - began


def status_is_asked_for_by_tls(cluster):
    """muster status of another host's daemon: an attacker on the path reads neither the token nor the page. Another key, and that of one
    job, get no page; where the daemon has no key, the command that has one asks in clear text only if it is told to."""
    nodes, began = plain(cluster, 2), time.monotonic()
    daemon = nodes[0].start(BIN / "musterd", "--port", PORT, "--first-start")
    nodes[0].start(BIN / "musterd", "--port", PORT + 1, "--insecure", "--first-start", MUSTER_KEY="")
    wait_for(cluster, "daemons", lambda: {PORT, PORT + 1} <= set(listeners(nodes[0])))

    def status(port=PORT, *options, **environment):
        shown = nodes[1].start(BIN / "muster", "status", "--json", *options, "--rdzv-endpoint", f"10.1.0.1:{port}", **environment)
        return shown.wait(120), shown.out.read_text(), shown.err.read_text()

    heard = ear(cluster, nodes[1], "Bearer", '"jobs"')
    code, out, err = status()
    seen, named = heard()
    if code != 0 or '"jobs"' not in out or seen < 6 or named:
        raise AssertionError(f"{cluster.tag}: {named} of {seen} frames, {code} {out} {err}\n{cluster.story()}")
    key = nodes[1].start(BIN / "muster", "key", "--job=net")
    key.wait(120)
    for wrong in "another key of sixteen bytes and more", key.out.read_text().strip():
        code, out, err = status(MUSTER_KEY=wrong)
        if code == 0 or out or "it has another secret than this node" not in err or "one job is not enough" not in err:
            raise AssertionError(f"{cluster.tag}: another key: {code} {out} {err}\n{cluster.story()}")
    # Who looks again and again does not begin with the key that was refused: the daemon logs each of those.
    line, pages = "it proves no key that is accepted here", 12
    wait_for(cluster, "word of the refusals", lambda: line in daemon.err.read_text())  # its log has a thread of its own
    before = daemon.err.read_text().count(line)
    screen = nodes[1].start(BIN / "muster", "status", "--json", "--watch=0.1", "--rdzv-endpoint", f"10.1.0.1:{PORT}",
                            MUSTER_KEY="another key of sixteen bytes and more", MUSTER_KEY_OLD="the key of the test")
    wait_for(cluster, "pages", lambda: screen.out.read_text().count('"jobs"') >= pages)
    if daemon.err.read_text().count(line) - before > pages // 2:
        raise AssertionError(f"{cluster.tag}: a refusal for each look\n{cluster.story()}")
    code, out, err = status(MUSTER_KEY="")
    if code == 0 or out or "it has a secret; set MUSTER_SECRET_FILE" not in err:
        raise AssertionError(f"{cluster.tag}: no key: {code} {out} {err}\n{cluster.story()}")
    code, out, err = status(PORT + 1)
    if code == 0 or out or "it has no secret, and this node has one" not in err or "--insecure" not in err:
        raise AssertionError(f"{cluster.tag}: daemon without a key: {code} {out} {err}\n{cluster.story()}")
    code, out, err = status(PORT + 1, MUSTER_INSECURE="1")
    if code == 0 or out:
        raise AssertionError(f"{cluster.tag}: the launcher's variable: {code} {out} {err}\n{cluster.story()}")
    code, out, err = status(PORT + 1, "--insecure")
    if code != 0 or '"auth":"none"' not in out.replace(" ", ""):
        raise AssertionError(f"{cluster.tag}: insecure: {code} {out} {err}\n{cluster.story()}")
    return time.monotonic() - began


if __name__ == "__main__":
    private()
    prepare()
    sys.exit(main((store_is_for_its_nodes, static_store_is_for_its_nodes, spare_is_served_in_its_round, behind_nat,
                   allow_from_closes_every_port, no_listener_answers_a_stranger, viewers_of_logs_need_the_key,
                   logs_of_a_job_without_a_key, status_is_asked_for_by_tls)))
