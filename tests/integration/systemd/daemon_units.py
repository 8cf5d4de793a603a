"""musterd.service, musterd.socket and muster.slice as an administrator would have them."""
import os
import shutil
import subprocess
import unittest

import booted
from units_case import STAYING

# Asks the daemon until the end of its input; says when it has asked once, and at the end how often it was refused, and how
# often it got no answer.
ASK = """
import select, socket, sys
refused = unanswered = asked = 0
while not asked or not select.select([sys.stdin], [], [], 0)[0]:
    try:
        with socket.create_connection(("127.0.0.1", 29400), 60) as peer:
            peer.sendall(b"GET /healthz HTTP/1.0\\r\\n\\r\\n")
            unanswered += not peer.recv(99).startswith(b"HTTP/1.1 200")
    except ConnectionRefusedError:
        refused += 1
    except OSError:
        unanswered += 1
    asked += 1
    if asked == 1: print("asks", flush=True)
print(refused, unanswered)
"""
TRY_UNTIL_REFUSED = """
import socket
while True:
    try:
        with socket.create_connection(("127.0.0.1", 29400), 120) as peer:
            peer.recv(1)
    except ConnectionRefusedError:
        break
    except ConnectionResetError:
        pass
print("refused")
"""
ALL_OF_ETCD = """
import base64, json, urllib.request
ask = json.dumps({"key": "AA==", "range_end": "AA=="}).encode()
for one in json.load(urllib.request.urlopen("http://127.0.0.1:2379/v3/kv/range", ask))["kvs"]:
    print(base64.b64decode(one["key"]), base64.b64decode(one.get("value", "")))
"""
# Holds one thread, the loop's, as a debugger does; lets its end be seen by its parent.
HOLD = """
import ctypes, os, sys
PTRACE_ATTACH = 16
pid = int(sys.argv[1])
assert ctypes.CDLL(None).ptrace(PTRACE_ATTACH, pid, 0, 0) == 0
print("held", flush=True)
while os.WIFSTOPPED(os.waitpid(pid, 0)[1]): pass
"""
# The daemon says every 4 s that it runs: it may stand still for a moment.
WATCHED = "[Service]\nWatchdogSec=8\n"
# What it answers beyond loopback.
OUTSIDE = """
import http.client
for path in "/healthz", "/status":
    peer = http.client.HTTPConnection("10.5.0.1", 29400, timeout=60)
    peer.request("GET", path)
    print(path, peer.getresponse().status)
"""
# As OPERATING.md has it.
OPEN = "[Socket]\nListenStream=\nListenStream=29400\n"


class DaemonUnits:
    """For a class of units_case.Booted."""

    def outer_network(self):
        """An address beyond loopback, 10.5.0.1."""
        self.systemd.run("sh", "-ec", "ip link add outer0 type veth peer name outer1; ip addr add 10.5.0.1/24 dev outer0; "
                         "ip link set outer0 up; ip link set outer1 up")
        self.addCleanup(self.systemd.run, "ip", "link", "del", "outer0")

    def test_socket_daemon_and_agent_start_in_this_order(self):
        agent = self.job("order", STAYING, start=False)
        # In one transaction, as at a boot.
        self.systemd.write(f"{booted.UNITS}/both.target", f"[Unit]\nWants=musterd.service {agent}\n")
        self.systemd.systemctl("daemon-reload")
        self.systemd.systemctl("start", "both.target")
        self.systemd.until("an agent", lambda: self.systemd.show(agent, "ActiveState") == "active")
        order = [int(self.systemd.show(unit, "ActiveEnterTimestampMonotonic"))
                 for unit in ("musterd.socket", "musterd.service", agent)]
        self.assertEqual(order, sorted(order))
        self.assertGreater(order[0], 0)
        self.assertIn("serving", self.systemd.show("musterd.service", "StatusText"))
        self.until_workers(agent)
        self.systemd.until("status", lambda: "1 agent " in self.systemd.show("musterd.service", "StatusText"))

    def test_the_daemon_is_ready_when_it_serves_and_not_before(self):
        # Without a socket that systemd holds, and with a configuration that comes late.
        self.systemd.run("mkfifo", "/run/test/late.conf")
        client = self.systemd.folder / "ask_once.py"
        client.write_text("import urllib.request as r\nassert r.urlopen('http://127.0.0.1:29400/healthz').status == 200\n")
        self.drop_in("musterd.service", f"[Unit]\nRequires=\n[Service]\nSockets=\nExecStart=\nDynamicUser=no\n"
                     f"ExecStart={booted.BIN}/musterd --config /run/test/late.conf\n"
                     f"ExecStartPost=+/usr/bin/python3 /run/test/shared/ask_once.py\n")
        self.systemd.run("sh", "-c", f"sed -i /musterd.socket/d {booted.UNITS}/musterd.service")
        self.addCleanup(self.systemd.write, f"{booted.UNITS}/musterd.service",
                        (self.systemd.folder / "units/musterd.service").read_text())
        self.systemd.systemctl("daemon-reload")
        self.systemd.systemctl("start", "--no-block", "musterd.service")
        writer = subprocess.Popen(self.systemd.inside("sh", "-c", "exec 3>/run/test/late.conf; echo met; read go; "
                                                      "printf 'state = memory\\nbind = 127.0.0.1\\n' >&3"), text=True,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(lambda: (writer.kill(), writer.communicate()))
        self.assertEqual(writer.stdout.readline(), "met\n")
        # The daemon reads its configuration now: whatever it has said so far has been heard.
        self.assertEqual(self.systemd.show("musterd.service", "ActiveState", "SubState"), ["activating", "start"])
        writer.stdin.write("go\n")
        writer.stdin.flush()
        self.systemd.until("readiness", lambda: self.systemd.show("musterd.service", "ActiveState") != "activating")
        self.assertEqual(self.systemd.show("musterd.service", "ActiveState", "NRestarts"), ["active", "0"])

    def test_a_stopped_daemon_is_ended_and_comes_back_and_no_worker_ends(self):
        self.drop_in("musterd.service", WATCHED)
        self.systemd.systemctl("start", "musterd.service")
        agent = self.job("watched", STAYING)
        workers = self.until_workers(agent)
        self.until_said("round 0 sealed", _SYSTEMD_UNIT="musterd.service", MUSTER_JOB="watched")
        stopped = self.main_pid("musterd.service")
        self.systemd.run("kill", "-STOP", stopped)
        self.systemd.until("a new daemon", lambda: self.systemd.show("musterd.service", "NRestarts") == "1")
        self.systemd.until("an agent", lambda: "1 agent " in self.systemd.show("musterd.service", "StatusText"))
        self.assertNotEqual(self.main_pid("musterd.service"), stopped)
        self.assertEqual(self.until_workers(agent), workers)
        self.assertEqual(self.systemd.show(agent, "ActiveState", "NRestarts"), ["active", "0"])
        self.assertEqual(self.messages(_SYSTEMD_UNIT=agent, MUSTER_ROUND="1"), [])

    def test_a_daemon_whose_loop_is_stuck_is_ended_though_its_other_threads_run(self):
        self.drop_in("musterd.service", WATCHED + "TimeoutAbortSec=100ms\n")
        self.systemd.systemctl("start", "musterd.service")
        stuck = self.main_pid("musterd.service")
        held = subprocess.Popen(self.systemd.inside("python3", "-c", HOLD, stuck), stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (held.kill(), held.wait(), held.stdout.close()))
        self.assertEqual(held.stdout.readline(), "held\n")
        self.systemd.until("a new daemon", lambda: self.systemd.show("musterd.service", "NRestarts") == "1")
        self.systemd.until("its word", lambda: self.systemd.show("musterd.service", "ActiveState") == "active")
        self.assertNotEqual(self.main_pid("musterd.service"), stuck)

    def test_a_daemon_that_runs_is_fed(self):
        self.drop_in("musterd.service", WATCHED)
        self.systemd.systemctl("start", "musterd.service")
        first = self.systemd.show("musterd.service", "WatchdogTimestampMonotonic")
        self.systemd.until("food", lambda: int(self.systemd.show("musterd.service", "WatchdogTimestampMonotonic")) >
                           int(first) + 8_800_000)
        self.assertEqual(self.systemd.show("musterd.service", "NRestarts"), "0")

    def test_no_connection_attempt_is_lost_while_the_daemon_is_started_again(self):
        self.systemd.systemctl("start", "musterd.service")
        asking = subprocess.Popen(self.systemd.inside("python3", "-c", ASK), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.assertEqual(asking.stdout.readline(), "asks\n")
        for _ in range(3):
            self.systemd.systemctl("restart", "musterd.service")
        refused, unanswered = asking.communicate(timeout=180)[0].split()
        self.assertEqual(refused, "0")
        # Those that the old daemon had accepted and not yet read, one at most for each restart.
        self.assertLessEqual(int(unanswered), 3)

    def test_the_port_is_on_loopback_until_a_drop_in_opens_it(self):
        self.outer_network()
        client = self.systemd.folder / "reach.py"
        client.write_text("import socket, sys\nfor host in sys.argv[1:]:\n    with socket.socket(socket.AF_INET6 if ':' in host "
                          "else socket.AF_INET) as one: print(host, one.connect_ex((host, 29400)) == 0)\n")
        reach = ["python3", "/run/test/shared/reach.py", "127.0.0.1", "::1", "10.5.0.1"]
        self.systemd.systemctl("start", "musterd.socket")
        self.assertEqual(self.systemd.run(*reach).stdout.split(), ["127.0.0.1", "True", "::1", "True", "10.5.0.1", "False"])
        self.systemd.until("the daemon", lambda: self.systemd.show("musterd.service", "ActiveState") == "active")
        self.daemon_conf("first-start = yes\ninsecure = yes\n")
        self.drop_in("musterd.socket", OPEN)
        self.systemd.systemctl("restart", "musterd.socket")
        self.assertEqual(self.systemd.run(*reach).stdout.split(), ["127.0.0.1", "True", "::1", "True", "10.5.0.1", "True"])

    def test_a_connection_starts_the_daemon_on_every_socket(self):
        self.daemon_conf("first-start = yes\nport = 29499\nbind = 10.9.9.9\n")
        self.drop_in("musterd.socket", "[Socket]\nListenStream=\nListenStream=127.0.0.1:29401\nListenStream=[::1]:29402\n")
        self.systemd.systemctl("start", "musterd.socket")
        self.assertEqual(self.systemd.show("musterd.service", "ActiveState"), "inactive")
        for host in ("127.0.0.1:29401", "[::1]:29402"):
            done = self.systemd.run("python3", "-c",
                                    f"import urllib.request as r; print(r.urlopen('http://{host}/healthz').read())")
            self.assertIn("ok", done.stdout)
        # It answers before systemd has read that it does.
        self.systemd.until("its word", lambda: self.systemd.show("musterd.service", "ActiveState", "NRestarts") == ["active", "0"])
        self.until_said("musterd.conf:3: bind and ", _SYSTEMD_UNIT="musterd.service")
        self.assertEqual(len(self.until_said("musterd.conf:2: port: ignored, because the service manager passes the sockets",
                                             _SYSTEMD_UNIT="musterd.service")), 1)

    def test_a_daemon_that_fails_at_every_start_is_given_up_with_its_port_and_comes_back_when_it_is_mended(self):
        self.daemon_conf("stat = memory\n")
        self.systemd.systemctl("start", "musterd.socket")
        # A peer that tries until nobody listens.
        self.assertEqual(self.systemd.run("python3", "-c", TRY_UNTIL_REFUSED).stdout, "refused\n")
        self.assertEqual(self.systemd.show("musterd.socket", "ActiveState", "Result"), ["failed", "service-start-limit-hit"])
        self.daemon_conf("first-start = yes\n")
        self.systemd.systemctl("reset-failed", "musterd.service", "musterd.socket")
        self.systemd.systemctl("start", "musterd.socket")
        self.assertEqual(self.systemd.run("python3", "-c", ASK, stdin="").stdout, "asks\n0 0\n")
        self.systemd.until("its word", lambda: self.systemd.show("musterd.service", "ActiveState", "Result") == ["active", "success"])

    def test_the_slices_limits_are_those_of_jobs_and_daemon_together(self):
        self.drop_in("muster.slice", "[Slice]\nTasksMax=4242\nMemoryMax=3G\n")
        self.systemd.systemctl("start", "musterd.service")
        agent = self.job("limited", STAYING)
        self.until_workers(agent)
        for unit in ("musterd.service", agent):
            self.assertEqual(self.systemd.show(unit, "Slice"), "muster.slice")
            self.assertRegex(self.systemd.show(unit, "ControlGroup"), f"/muster.slice/{unit}$")
        self.assertEqual(self.systemd.show("muster.slice", "TasksMax", "MemoryMax"), ["4242", str(3 << 30)])
        counted = self.systemd.show("muster.slice", "CPUAccounting", "MemoryAccounting", "TasksAccounting")
        self.assertEqual(counted, ["yes"] * 3)
        # Where this host gives the test a controller: what the kernel was told.
        kernels = self.systemd.run("sh", "-c", f"cat {self.groups}/muster.slice/pids.max", check=False).stdout.strip()
        self.assertIn(kernels, ("", "4242"))

    def test_a_port_that_a_drop_in_opens_needs_a_secret_which_systemd_hands_over(self):
        self.outer_network()
        self.drop_in("musterd.socket", OPEN)
        self.systemd.systemctl("start", "musterd.service", check=False)
        self.systemd.until("a refusal", lambda: self.systemd.show("musterd.service", "ActiveState", "ExecMainStatus") == ["failed", "78"])
        # By its process: where the journal reads this after the daemon's end, it does not know the unit.
        self.until_said("LoadCredential", _PID=self.systemd.show("musterd.service", "ExecMainPID"))
        secret = f"{booted.ETC}/muster/secret"
        self.systemd.run("sh", "-c", f"umask 077; head -c 24 /dev/urandom | base64 > {secret}")
        self.drop_in("musterd.service", f"[Service]\nLoadCredential=muster.key:{secret}\n")
        self.systemd.systemctl("start", "musterd.service")
        self.assertEqual(self.systemd.run("python3", "-c", OUTSIDE).stdout.split(), ["/healthz", "200", "/status", "401"])
        stranger = self.job("stranger", STAYING, start=False)
        self.systemd.systemctl("start", stranger, check=False)
        self.systemd.until("a refusal", lambda: self.systemd.show(stranger, "ExecMainStatus") == "78")
        self.drop_in("muster-agent@.service", f"[Service]\nLoadCredential=muster.key:{secret}\n")
        self.until_workers(self.job("friend", STAYING))

    @unittest.skipUnless(shutil.which("etcd") or os.environ.get("CI") == "true", "etcd is missing (scripts/setup --tests)")
    def test_a_daemon_in_its_sandbox_keeps_its_state_in_etcd_and_tells_where_it_is(self):
        self.outer_network()
        self.systemd.write(f"{booted.UNITS}/etcd.service", "[Unit]\nDefaultDependencies=no\n[Service]\nType=notify\n"
                           f"ExecStart={shutil.which('etcd')} --data-dir /run/test/etcd\n")
        self.units.append("etcd.service")
        self.systemd.systemctl("daemon-reload")
        self.systemd.systemctl("start", "etcd.service")
        self.daemon_conf("state = etcd://127.0.0.1:2379\nfirst-start = yes\ninsecure = yes\n")
        self.drop_in("musterd.socket", OPEN)
        self.systemd.systemctl("start", "musterd.service")
        self.until_said("this daemon is the leader", _SYSTEMD_UNIT="musterd.service")
        # What the other daemons would read, and tell their agents.
        kept = self.systemd.run("python3", "-c", ALL_OF_ETCD).stdout
        self.assertIn("10.5.0.1:29400", kept)
        agent = self.job("etcd", STAYING)
        workers = self.until_workers(agent)
        self.until_said("round 0 sealed", _SYSTEMD_UNIT="musterd.service", MUSTER_JOB="etcd")
        self.systemd.systemctl("restart", "musterd.service")
        self.until_said("this daemon is the leader; 1 job resumed", _SYSTEMD_UNIT="musterd.service")
        self.systemd.until("an agent", lambda: "1 agent " in self.systemd.show("musterd.service", "StatusText"))
        self.assertEqual(self.until_workers(agent), workers)

    def test_what_is_no_listening_socket_is_named(self):
        self.systemd.systemctl("start", "musterd.socket")
        done = self.systemd.run("sh", "-c", f"LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=odd exec {booted.BIN}/musterd "
                                "3</dev/null", check=False)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (78, 1), done.stderr)
        self.assertIn("odd: descriptor 3 is no listening TCP socket", done.stderr)
