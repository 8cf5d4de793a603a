"""muster and musterd as units of a real systemd (booted.py), as an administrator would have them."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import booted

BUILD = pathlib.Path(os.environ["MUSTER_BUILD"])
STAY = """#!/bin/sh
# A worker that ends when it is told, and leaves a process in a session of its own that does not.
trap 'echo rank $RANK was told; exit 0' TERM
setsid sh -c 'trap "" TERM; while :; do sleep 1; done' &
echo rank $RANK of $WORLD_SIZE is ready
echo rank $RANK says it on stderr >&2
while :; do sleep 0.05; done
"""
AT_MUSTERD = "rdzv-backend = c10d\nrdzv-endpoint = 127.0.0.1:29400\nnproc-per-node = 2\nlog-level = info\n"
STAYING = AT_MUSTERD + "program = /run/test/shared/stay.sh\n"
ALONE = "nproc-per-node = 2\nprogram = /run/test/shared/stay.sh\n"
# Asks the daemon again and again; says how often it was refused, and how often it got no answer.
ASK = """
import socket, sys, time
refused = unanswered = 0
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    try:
        with socket.create_connection(("127.0.0.1", 29400), 10) as peer:
            peer.sendall(b"GET /healthz HTTP/1.0\\r\\n\\r\\n")
            unanswered += not peer.recv(99).startswith(b"HTTP/1.1 200")
    except ConnectionRefusedError:
        refused += 1
    except OSError:
        unanswered += 1
print(refused, unanswered)
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


class Booted(unittest.TestCase):
    layout = "unified"
    groups = "/sys/fs/cgroup"

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="muster-systemd-")
        cls.addClassCleanup(folder.cleanup)
        cls.systemd = booted.Systemd(folder.name, BUILD, cls.layout)
        stay = cls.systemd.folder / "stay.sh"
        stay.write_text(STAY)
        stay.chmod(0o755)
        cls.systemd.__enter__()
        cls.addClassCleanup(cls.systemd.close)

    def setUp(self):
        self.units = []

    def tearDown(self):
        names = [*self.units, "musterd.service", "musterd.socket"]
        self.systemd.systemctl("stop", *names, check=False)
        self.systemd.run("sh", "-c", "rm -rf /run/test/units/*.d /var/lib/private/muster/*")
        self.systemd.systemctl("daemon-reload")
        self.systemd.systemctl("reset-failed")

    def drop_in(self, unit, text):
        self.systemd.write(f"{booted.UNITS}/{unit}.d/test.conf", text)
        self.systemd.systemctl("daemon-reload")

    def job(self, name, conf, start=True):
        self.systemd.write(f"{booted.ETC}/muster/{name}.conf", conf)
        unit = f"muster-agent@{name}.service"
        self.units.append(unit)
        if start:
            self.systemd.systemctl("start", unit)
        return unit

    def records(self, **fields):
        matches = [f"{name}={value}" for name, value in fields.items()]
        text = self.systemd.run("journalctl", "-q", "-o", "json", *matches, check=False).stdout
        return [json.loads(line) for line in text.splitlines()]

    def messages(self, **fields):
        return [record["MESSAGE"] for record in self.records(**fields)]

    def until_said(self, words, **fields):
        return self.systemd.until(f"'{words}'", lambda: [record for record in self.records(**fields)
                                                         if words in record["MESSAGE"]])

    def processes(self, unit):
        """pid -> control group below the unit's, of all that belongs to it."""
        group = f"{self.groups}/muster.slice/{unit}"
        text = self.systemd.run("sh", "-c", f'cd "{group}" 2>/dev/null && '
                                "find . -name cgroup.procs | while read f; do sed \"s|$| $f|\" $f; done",
                                check=False).stdout
        return {int(pid): path[2:-len("/cgroup.procs")] for pid, path in (line.split() for line in text.splitlines())}

    def until_workers(self, unit, count=2):
        """The pids of its workers' shells, each of which has a group of its own with what it started."""
        def found():
            by_group = {}
            for pid, group in self.processes(unit).items():
                if "worker-" in group:
                    by_group.setdefault(group, []).append(pid)
            whole = [pids for pids in by_group.values() if len(pids) >= 2]
            return {min(pids) for pids in whole} if len(whole) == count else None
        return self.systemd.until("workers", found)

    def main_pid(self, unit):
        return self.systemd.show(unit, "MainPID")


class Units(Booted):
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
                                                      "echo state = memory >&3"), text=True,
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
        self.drop_in("musterd.service", "[Service]\nWatchdogSec=1\n")
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
        self.drop_in("musterd.service", "[Service]\nWatchdogSec=1\nTimeoutAbortSec=100ms\n")
        self.systemd.systemctl("start", "musterd.service")
        stuck = self.main_pid("musterd.service")
        held = subprocess.Popen(self.systemd.inside("python3", "-c", HOLD, stuck), stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (held.kill(), held.wait(), held.stdout.close()))
        self.assertEqual(held.stdout.readline(), "held\n")
        self.systemd.until("a new daemon", lambda: self.systemd.show("musterd.service", "NRestarts") == "1")
        self.systemd.until("its word", lambda: self.systemd.show("musterd.service", "ActiveState") == "active")
        self.assertNotEqual(self.main_pid("musterd.service"), stuck)

    def test_a_daemon_that_runs_is_fed(self):
        self.drop_in("musterd.service", "[Service]\nWatchdogSec=1\n")
        self.systemd.systemctl("start", "musterd.service")
        first = self.systemd.show("musterd.service", "WatchdogTimestampMonotonic")
        self.systemd.until("food", lambda: int(self.systemd.show("musterd.service", "WatchdogTimestampMonotonic")) >
                           int(first) + 1_100_000)
        self.assertEqual(self.systemd.show("musterd.service", "NRestarts"), "0")

    def test_no_connection_attempt_is_lost_while_the_daemon_is_started_again(self):
        self.systemd.systemctl("start", "musterd.service")
        asking = subprocess.Popen(self.systemd.inside("python3", "-c", ASK, "1.5"), stdout=subprocess.PIPE, text=True)
        for _ in range(3):
            self.systemd.systemctl("restart", "musterd.service")
        refused, unanswered = asking.communicate(timeout=30)[0].split()
        self.assertEqual(refused, "0")
        # Those that the old daemon had accepted and not yet read, one at most for each restart.
        self.assertLessEqual(int(unanswered), 3)

    def test_a_connection_starts_the_daemon_on_every_socket(self):
        self.drop_in("musterd.socket", "[Socket]\nListenStream=\nListenStream=127.0.0.1:29401\nListenStream=[::1]:29402\n")
        self.systemd.systemctl("start", "musterd.socket")
        self.assertEqual(self.systemd.show("musterd.service", "ActiveState"), "inactive")
        for host in ("127.0.0.1:29401", "[::1]:29402"):
            done = self.systemd.run("python3", "-c",
                                    f"import urllib.request as r; print(r.urlopen('http://{host}/healthz').read())")
            self.assertIn("ok", done.stdout)
        self.assertEqual(self.systemd.show("musterd.service", "ActiveState", "NRestarts"), ["active", "0"])

    def test_a_secret_is_handed_over_by_systemd_and_keeps_others_out(self):
        secret = f"{booted.ETC}/muster/secret"
        self.systemd.run("sh", "-c", f"umask 077; head -c 24 /dev/urandom | base64 > {secret}")
        self.drop_in("musterd.service", f"[Service]\nLoadCredential=secret:{secret}\n"
                     "Environment=MUSTER_SECRET_FILE=%d/secret\n")
        self.systemd.systemctl("start", "musterd.service")
        stranger = self.job("stranger", STAYING, start=False)
        self.systemd.systemctl("start", stranger, check=False)
        self.systemd.until("a refusal", lambda: self.systemd.show(stranger, "ExecMainStatus") == "78")
        self.drop_in("muster-agent@.service", f"[Service]\nEnvironment=MUSTER_SECRET_FILE={secret}\n")
        self.until_workers(self.job("friend", STAYING))

    def test_what_is_no_listening_socket_is_named(self):
        self.systemd.systemctl("start", "musterd.socket")
        done = self.systemd.run("sh", "-c", f"LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=odd exec {booted.BIN}/musterd "
                                "3</dev/null", check=False)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (78, 1), done.stderr)
        self.assertIn("odd: descriptor 3 is no listening TCP socket", done.stderr)

    def test_a_stop_tells_the_workers_and_leaves_no_process(self):
        self.systemd.systemctl("start", "musterd.service")
        agent = self.job("stopped", STAYING + "shutdown-timeout = 60\n")
        self.until_workers(agent)
        self.systemd.systemctl("stop", agent)
        self.assertEqual(self.processes(agent), {})
        self.assertEqual(len(self.until_said("was told", _SYSTEMD_UNIT=agent)), 2)
        self.systemd.systemctl("stop", "musterd.service", "musterd.socket")
        self.assertEqual(self.systemd.show("musterd.service", "ActiveState", "Result"), ["inactive", "success"])
        self.assertEqual(self.systemd.run("sh", "-c", "pgrep -c muster; true").stdout.strip(), "0")

    def test_a_stop_waits_as_long_as_the_job_says(self):
        self.drop_in("muster-agent@.service", "[Service]\nTimeoutStopSec=1\n")
        slow = AT_MUSTERD + "shutdown-timeout = 30\nprogram = /bin/sh\n"
        slow += "arguments = -c 'trap \"sleep 2; echo $RANK saved; exit 0\" TERM; echo ready; while :; do sleep 0.05; done'\n"
        self.systemd.systemctl("start", "musterd.service")
        agent = self.job("slow", slow)
        self.until_said("ready", _SYSTEMD_UNIT=agent, MUSTER_RANK="1")
        self.systemd.systemctl("stop", agent)
        self.assertEqual(len(self.messages(_SYSTEMD_UNIT=agent, MUSTER_STREAM="stdout", MUSTER_RANK="1")), 2)
        self.assertEqual(self.systemd.show(agent, "Result"), "success")

    def test_the_kill_of_an_agent_leaves_no_worker_and_it_comes_back(self):
        self.drop_in("muster-agent@.service", "[Service]\nRestartSec=100ms\n")
        self.systemd.systemctl("start", "musterd.service")
        agent = self.job("killed", STAYING)
        self.until_workers(agent)
        before = set(self.processes(agent))
        self.systemd.run("kill", "-KILL", self.main_pid(agent))
        self.systemd.until("a new agent", lambda: self.systemd.show(agent, "NRestarts") == "1")
        self.until_workers(agent)
        self.assertEqual(before & set(self.processes(agent)), set())

    def test_records_have_job_round_and_rank(self):
        self.systemd.systemctl("start", "musterd.service")
        agent = self.job("told", STAYING)
        for rank in ("0", "1"):
            said = self.until_said("is ready", MUSTER_JOB="told", MUSTER_ROUND="0", MUSTER_RANK=rank)
            self.assertEqual([record["MESSAGE"] for record in said], [f"rank {rank} of 2 is ready"])
            self.assertEqual(said[0]["_SYSTEMD_UNIT"], agent)
            self.assertEqual(said[0]["MUSTER_LOCAL_RANK"], rank)
            self.until_said("on stderr", MUSTER_RANK=rank, MUSTER_STREAM="stderr")
        self.assertTrue(self.until_said("sealed", _SYSTEMD_UNIT="musterd.service", MUSTER_JOB="told", MUSTER_ROUND="0"))
        ours = [record for record in self.records(_SYSTEMD_UNIT=agent, MUSTER_NODE_RANK="0") if "MUSTER_RANK" not in record]
        self.assertTrue(all(record["SYSLOG_IDENTIFIER"] == "muster" for record in ours))
        workers = self.until_workers(agent)
        self.systemd.run("kill", "-KILL", min(workers))
        # The report's lines are records of the job as well.
        self.until_said("SIGKILL", _SYSTEMD_UNIT=agent, MUSTER_JOB="told", PRIORITY="5")

    def test_systemd_starts_again_what_muster_says_is_worth_it(self):
        self.drop_in("muster-agent@.service", "[Service]\nRestartSec=100ms\n")
        for code, state, result in (("75", None, None), ("76", "inactive", "success"), ("77", "failed", "exit-code"),
                                    ("1", "failed", "exit-code")):
            unit = self.job(f"leaves{code}", f"program = /bin/sh\narguments = -c 'exit {code}'\n", start=False)
            self.systemd.systemctl("start", unit, check=False)
            if state is None:
                self.systemd.until("a restart", lambda unit=unit: int(self.systemd.show(unit, "NRestarts")) >= 1)
                self.systemd.systemctl("stop", unit)
                continue
            self.systemd.until(f"an end by {code}", lambda unit=unit, state=state:
                               self.systemd.show(unit, "ActiveState") == state)
            self.assertEqual(self.systemd.show(unit, "Result", "NRestarts"), [result, "0"], code)

    def test_two_units_of_one_job_are_one_too_many(self):
        self.systemd.systemctl("start", "musterd.service")
        self.two_units_of_one_job(STAYING, "one", "two")

    def test_two_units_of_one_job_of_one_node_are_one_too_many(self):
        self.two_units_of_one_job(ALONE, "alone", "again")

    def two_units_of_one_job(self, conf, one, other):
        first = self.job(one, conf + "rdzv-id = same\n")
        self.until_workers(first)
        second = self.job(other, conf + "rdzv-id = same\n", start=False)
        self.systemd.systemctl("start", second, check=False)
        self.assertEqual(self.systemd.show(second, "ActiveState", "ExecMainStatus"), ["failed", "78"])
        said = [record["MESSAGE"] for record in self.records(_SYSTEMD_UNIT=second, SYSLOG_IDENTIFIER="muster")]
        self.assertEqual(len(said), 1, said)
        self.assertIn(f"job 'same' runs on this host already, in process {self.main_pid(first)} of {first}", said[0])
        self.until_workers(first)

    def test_a_wrong_file_ends_the_unit_with_one_line_that_names_its_place(self):
        unit = self.job("wrong", "nnodes = 1\nnproc-per-nod = 2\nprogram = /bin/true\n", start=False)
        self.systemd.systemctl("start", unit, check=False)
        self.assertEqual(self.systemd.show(unit, "ActiveState", "ExecMainStatus", "NRestarts"), ["failed", "2", "0"])
        said = self.messages(_SYSTEMD_UNIT=unit)
        self.assertEqual(len(said), 1, said)
        self.assertIn("wrong.conf:2: unknown key 'nproc-per-nod'; the nearest known key is nproc-per-node", said[0])
        self.systemd.write(f"{booted.ETC}/muster/musterd.conf", "log-level = info\nstat = memory\n")
        self.addCleanup(self.systemd.write, f"{booted.ETC}/muster/musterd.conf", "first-start = yes\n")
        self.systemd.systemctl("start", "musterd.service", check=False)
        self.until_said("musterd.conf:2: unknown key 'stat'; the nearest known key is state",
                        _SYSTEMD_UNIT="musterd.service")
        self.assertEqual(self.systemd.show("musterd.service", "NRestarts"), "0")

    def test_a_low_port_without_the_right_is_one_line(self):
        for command in (f"{booted.BIN}/musterd --port 80",
                        f"{booted.BIN}/muster --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:80 --nnodes 1:2 /bin/true"):
            done = self.systemd.run("sh", "-c", f"exec setpriv --reuid 65534 --clear-groups {command}", check=False)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (78, 1), done.stderr)
            self.assertIn("AmbientCapabilities=CAP_NET_BIND_SERVICE", done.stderr)


class Hybrid(Booted):
    """The layout of control groups that has systemd's own v1 hierarchy beside v2."""
    layout = "hybrid"
    groups = "/sys/fs/cgroup/unified"

    def test_each_worker_has_a_group_and_a_stop_leaves_no_process(self):
        self.systemd.systemctl("start", "musterd.service")
        agent = self.job("hybrid", STAYING)
        self.until_workers(agent)
        self.systemd.systemctl("stop", agent)
        self.assertEqual(self.processes(agent), {})


if __name__ == "__main__":
    missing = booted.missing_parts()
    if missing:
        booted.skip_or_fail(f"a systemd of its own needs {', '.join(missing)}")
    unittest.main(verbosity=2)
