"""Sockets and services that are missing, full, slow or hang: name servers, daemons, etcd, the service manager, the journal and the
readers of our streams. Cells of the table in agent/RESOURCES.md, as resource_cases.py has those of files."""
import contextlib
import os
import pathlib
import signal
import socket
import sys
import time
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "elastic"))
from job import Job, wait_for, without_times  # noqa: E402
from own_processes import as_user  # noqa: E402
from ports import free_port  # noqa: E402
from resource_cases import ROOT, RUN, UNSHARE, can_mount, in_namespace  # noqa: E402

SLACK = 60.0  # seconds, for a machine that others use as well
NAME_SERVER = pathlib.Path(__file__).resolve().parents[1] / "net" / "name_server.py"
# A network of its own whose one name server takes every question and answers none.
SILENT_NAMES = [*UNSHARE, "--net", "sh", "-c", 'ip link set lo up && mount --bind "$0/resolv.conf" /etc/resolv.conf || exit 99; '
                f'{sys.executable} {NAME_SERVER} 127.0.0.1 silent > "$0/names" & '
                'until grep -q ready "$0/names"; do sleep 0.02; done; exec "$@"']


@contextlib.contextmanager
def silent_listener(backlog=8):
    """A port at which connections stand and nobody speaks; with a backlog of 0 and one caller, at which none stands."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(backlog)
        yield listener.getsockname()[1]


@contextlib.contextmanager
def full_socket(path):
    """A datagram socket whose owner reads nothing."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as owner, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        owner.bind(str(path))
        os.chmod(path, 0o777)
        sender.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while sender.sendto(b"x", str(path)):
                pass
        yield owner


@contextlib.contextmanager
def full_pipe():
    """The write end of a pipe that takes nothing; its reader is there and does not read."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writer, b"x" * 4096):
            pass
    os.set_blocking(writer, True)
    try:
        yield writer
    finally:
        os.close(reader)
        os.close(writer)


def born(pid):
    """When the process was made, in seconds since the boot; of one that has ended too, while nobody has waited for it."""
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")


class Peers(unittest.TestCase):
    def setUp(self):
        self.job = self.enterContext(Job())
        self.place = self.job.directory

    def ends(self, process, code, *says, at_least=0.0, within=5.0):
        """It ends so, `within` this time counted from now, and `at_least` so long after its start."""
        started = born(process.pid) if at_least else 0.0
        self.job.expect_exit(process, code, within + SLACK)
        self.assertGreaterEqual(time.clock_gettime(time.CLOCK_BOOTTIME) - started, at_least)
        said = without_times(process.out.read_text() + process.err.read_text())
        for words in says:
            self.assertIn(words, said)
        return said

    def two_nodes(self, endpoint, *options, conf="is_host=0,join_timeout=3", **terms):
        return self.job.spawn("muster", "--nnodes", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--rdzv-conf", conf, *options,
                              "--no-python", "true", **terms)

    def healthy(self, port):
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=60) as answer:
                return answer.status == 200
        return False

    def silent_names(self):
        if not can_mount() and not os.environ.get("CI"):
            self.skipTest("no mount namespace can be made here")
        (self.place / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:30 attempts:5\n")
        return [*SILENT_NAMES, str(self.place)]

    # ---- names ----
    def test_bind_missing(self):
        """bind.missing bind.forbidden"""
        self.ends(self.job.spawn("musterd", "--port", 0, "--bind", "no-such-host.invalid"), 78, "cannot listen on no-such-host.invalid: ",
                  "give one address of this host", within=15)
        self.ends(self.job.spawn("musterd", "--port", 0, "--bind", "192.0.2.1"), 78, "on 192.0.2.1: Cannot assign", "must be one of this host's")
        self.ends(self.job.spawn("musterd", "--port", 0, "--bind", "127.0.0.1,::1"), 78, "it is more than one address")

    def test_bind_slow(self):
        """bind.slow"""
        daemon = self.job.spawn("musterd", "--port", 0, "--bind", "gpu01.example", before=self.silent_names())
        self.ends(daemon, 78, "cannot listen on gpu01.example: the name service did not answer in time", at_least=10, within=15)

    def test_a_signal_ends_a_look_up_at_once(self):
        """bind.slow"""
        daemon = self.job.spawn("musterd", "--port", 0, "--bind", "gpu01.example", before=self.silent_names())
        wait_for("question to the name server", lambda: "asked" in (self.place / "names").read_text() if (self.place / "names").exists() else False)
        daemon.terminate()
        self.ends(daemon, -signal.SIGTERM, "SIGTERM during start-up")

    def test_endpoint_name_slow(self):
        """endpoint_name.slow"""
        self.ends(self.two_nodes("gpu01.example:29400", before=self.silent_names()), 75, "gpu01.example", at_least=3, within=20)

    def test_endpoint_name_missing(self):
        """endpoint_name.missing"""
        self.ends(self.two_nodes("no-such-host.invalid:29400"), 75, "no-such-host.invalid", within=20)

    # ---- daemons ----
    def test_endpoint_missing(self):
        """endpoint.missing"""
        self.ends(self.two_nodes(f"127.0.0.1:{free_port()}"), 75, "Connection refused", at_least=2.9, within=8)

    def test_endpoint_slow(self):
        """endpoint.slow"""
        with silent_listener() as port:
            self.ends(self.two_nodes(f"127.0.0.1:{port}"), 75, f"127.0.0.1:{port}", "no round within 3 s", at_least=2.9, within=8)

    def test_endpoint_full(self):
        """endpoint.full"""
        with silent_listener(0) as port, contextlib.ExitStack() as callers:
            for _ in range(8):
                caller = callers.enter_context(socket.socket())
                caller.setblocking(False)
                caller.connect_ex(("127.0.0.1", port))
            self.ends(self.two_nodes(f"127.0.0.1:{port}"), 75, f"127.0.0.1:{port}", "no round within 3 s", at_least=2.9, within=8)

    def test_command_without_agent(self):
        """command_socket.missing command_socket.forbidden"""
        self.ends(self.job.spawn("muster", "drain", "--job", "none-" + self.job.id, "node1"), 1, "muster drain: no ")
        if can_mount():
            self.ends(self.job.spawn("muster", "drain", "--job", "j", "node1", before=in_namespace("mount -t tmpfs none /proc")), 1,
                      "/proc/net/unix", "mount it")

    def test_command_of_an_agent_that_is_stopped(self):
        """command_socket.slow"""
        launcher = self.job.spawn("muster", *RUN, "--rdzv-id", self.job.id, "sh", "-c", 'touch "$TMPDIR/started"; exec sleep 99')
        wait_for("worker", (self.place / "started").exists)
        launcher.send_signal(signal.SIGSTOP)
        self.ends(self.job.spawn("muster", "drain", "--job", self.job.id, "node1"), 1, f"the agent of pid {launcher.pid} did not answer within 10 s",
                  at_least=10, within=12)
        launcher.send_signal(signal.SIGCONT)
        launcher.terminate()
        self.job.expect_exit(launcher, 143)

    # ---- etcd ----
    def test_etcd(self):
        """etcd.missing etcd.slow"""
        words = ["musterd", "--check", "--port", 0, "--state"]
        self.ends(self.job.spawn(*words, f"etcd://127.0.0.1:{free_port()}"), 78, "Connection refused", within=15)
        with silent_listener() as port:
            self.ends(self.job.spawn(*words, f"etcd://127.0.0.1:{port}"), 78, f"127.0.0.1:{port}", within=15)

    # ---- the service manager ----
    def daemon(self, **environment):
        self.job.port = free_port()
        daemon = self.job.spawn("musterd", "--port", self.job.port, "--first-start", WATCHDOG_USEC="200000", **environment)
        wait_for("healthy daemon", lambda: self.healthy(self.job.port))
        return daemon

    def stops(self, daemon, *says):
        daemon.terminate()
        return self.ends(daemon, 0, *says)

    def test_daemon_notify_missing(self):
        """notify.missing"""
        daemon = self.daemon(NOTIFY_SOCKET="/none/notify")
        wait_for("warning", lambda: "cannot send" in daemon.err.read_text())
        until = time.monotonic() + 2
        wait_for("two seconds of the watchdog", lambda: time.monotonic() > until)
        said = self.stops(daemon, "cannot send READY=1 to the service manager at /none/notify (NOTIFY_SOCKET)", "No such file or directory")
        self.assertLessEqual(said.count("cannot send"), 2, said)

    def test_daemon_notify_full(self):
        """notify.full notify.slow: it serves as ever, and its manager hears that it is ready when it reads again"""
        with full_socket(self.place / "notify") as manager:
            daemon = self.daemon(NOTIFY_SOCKET=str(self.place / "notify"))
            wait_for("warning", lambda: "cannot send" in daemon.err.read_text())
            until = time.monotonic() + 3
            while time.monotonic() < until:
                self.assertTrue(self.healthy(self.job.port))
            manager.settimeout(SLACK)
            wait_for("word that it is ready", lambda: b"READY=1" in manager.recv(4096))
            self.stops(daemon)

    def test_launcher_notify(self):
        """unit.missing unit.full"""
        before = ["sh", "-c", 'SYSTEMD_EXEC_PID=$$ exec "$@"', "sh"]
        self.ends(self.job.spawn("muster", "--allow-root", *RUN, "true", before=before, NOTIFY_SOCKET="/none/notify"), 0, "cannot send READY=1 to the service manager at /none/notify")
        with full_socket(self.place / "notify"):
            self.ends(self.job.spawn("muster", "--allow-root", *RUN, "sh", "-c", "exit 3", before=before, NOTIFY_SOCKET=str(self.place / "notify")), 3,
                      "cannot send READY=1", within=8)

    def test_journal(self):
        """journal.missing journal.slow"""
        if not can_mount() and not os.environ.get("CI"):
            self.skipTest("no mount namespace can be made here")
        ours = ["sh", "-c", 'JOURNAL_STREAM=$(stat -Lc %d:%i /proc/self/fd/2) exec "$@"', "sh"]
        covered = in_namespace("mount -t tmpfs none /run")
        self.ends(self.job.spawn("muster", *RUN, "sh", "-c", "exit 3", before=[*covered, *ours]), 3, "exit code 3")
        with full_socket(self.place / "socket"):
            planted = in_namespace(f'mount -t tmpfs none /run && mkdir -p /run/systemd/journal && : > /run/systemd/journal/socket && '
                                   f'mount --bind "{self.place}/socket" /run/systemd/journal/socket')
            self.ends(self.job.spawn("muster", *RUN, "sh", "-c", "exit 3", before=[*planted, *ours]), 3, within=12)

    # ---- the readers of our streams ----
    def test_stderr_slow(self):
        """stderr.slow: a wrong option, a job, and a daemon"""
        with full_pipe() as stderr:
            self.ends(self.job.spawn("muster", "--none", stderr=stderr), 2, within=8)
            self.ends(self.job.spawn("muster", *RUN, "sh", "-c", "seq 100000 >&2; exit 3", stderr=stderr), 3, within=15)
            self.ends(self.job.spawn("musterd", "--none", stderr=stderr), 2, within=8)

    # ---- processes and threads ----
    @unittest.skipUnless(ROOT, "needs root, which may become an unused user")
    def test_daemon_without_threads(self):
        """daemon_processes.full: the main thread serves, and writes what its streams take"""
        user = 300_000 + os.getpid()  # of which no process exists
        before = ["prlimit", "--nproc=1:1", *as_user(user)]
        port = free_port()
        daemon = self.job.spawn("musterd", "--port", port, "--first-start", "--log-level", "debug", before=before)
        wait_for("healthy daemon", lambda: self.healthy(port))
        wait_for("its line", lambda: f"musterd listening on 127.0.0.1:{port}" in daemon.out.read_text())
        self.stops(daemon)
        self.ends(self.job.spawn("musterd", "--port", 0, "--state", f"sqlite:{self.place}/s", before=before), 78,
                  "--state: start thread state: ", "RLIMIT_NPROC = 1 (ulimit -u)")

    def test_daemon_stdout_slow(self):
        """daemon_stdout.slow"""
        port = free_port()
        with full_pipe() as stdout:
            daemon = self.job.spawn("musterd", "--port", port, "--first-start", stdout=stdout)
            wait_for("healthy daemon", lambda: self.healthy(port))
            self.stops(daemon)


if __name__ == "__main__":
    unittest.main(verbosity=2)
