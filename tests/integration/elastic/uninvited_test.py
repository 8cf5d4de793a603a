"""Who is no node of a job, and says at its ports what could harm it; and nodes with another version of muster."""
import contextlib
import os
import pathlib
import re
import socket
import subprocess
import sys
import threading
import unittest

from job import NOBODY, Job, as_user
from secret_test import listeners

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "net"))
import probes  # noqa: E402


class Older:
    """Between a launcher and the daemon: the launcher's Hello becomes one of the protocol version before."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):  # the listener is closed
            while True:
                threading.Thread(target=self.carry, args=self.listener.accept()[:1], daemon=True).start()

    def carry(self, launcher):
        with contextlib.suppress(OSError), launcher, socket.create_connection(("127.0.0.1", self.daemon)) as daemon:
            threading.Thread(target=self.pour, args=(daemon, launcher), daemon=True).start()
            begin = launcher.recv(10, socket.MSG_WAITALL)
            if begin[:2] == b"\xb5\x01":
                begin = begin[:6] + (int.from_bytes(begin[6:], "little") - 1).to_bytes(4, "little")
            daemon.sendall(begin)
            self.pour(launcher, daemon)

    @staticmethod
    def pour(source, sink):
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)


class Uninvited(unittest.TestCase):
    def probed(self, job, *ports, user=None):
        """What each probe heard: a list of (port, probe, answer)."""
        words = [*(as_user(user) if user else ()), sys.executable, probes.__file__, job.id, "127.0.0.1", *ports]
        asked = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=300)
        heard = [re.fullmatch(r"(\d+) (.*): ([0-9a-f]*)", line).groups() for line in asked.stdout.splitlines()]
        self.assertEqual((asked.returncode, len(heard)), (0, len(ports) * len(probes.PROBES)), asked.stderr)
        return [(port, name, bytes.fromhex(answer)) for port, name, answer in heard]

    def run_beside(self, attack):
        """A default job of two nodes, which ends well in its first round whatever attack(job) does."""
        with Job() as job:
            nodes = [job.node(), job.node()]
            job.round(0, 4)
            attack(job)
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)
                self.assertNotIn("drain", node.err.read_text())
            self.assertEqual(len(job.starts()), 4, job.story())

    @unittest.skipUnless(os.getuid() == 0 or os.environ.get("CI"), "needs root, which may become another user")
    def test_another_user_is_refused_at_every_port(self):
        def attack(job):
            ports = sorted({address.rpartition(":")[2] for address in listeners(job)})
            self.assertGreaterEqual(len(ports), 2, "the daemon's and the store's")
            answered = [(port, name, answer[:60]) for port, name, answer in self.probed(job, *ports, user=NOBODY)
                        if not probes.is_refusal(answer)]
            self.assertEqual(answered, [])
        self.run_beside(attack)

    def test_who_was_never_in_the_round_commands_nobody_and_ends_nothing(self):
        """The same user, whom the kernel lets in: what each frame asks for is refused all the same."""
        def attack(job):
            for words in probes.resume, probes.boast:
                answer = probes.ask("127.0.0.1", job.port, words(job.id))
                self.assertIn(probes.REFUSED, kinds(answer), words)
            probes.ask("127.0.0.1", job.port, probes.hello(job.id) + probes.frame("Ping") * 20_000)
        self.run_beside(attack)

    def test_a_node_with_another_version_is_told_both_and_what_to_do(self):
        with Job() as job:
            job.daemon()
            first = job.node(nnodes="1:1", nproc=1)
            job.round(0, 1)
            between = Older(job.port)
            self.addCleanup(between.listener.close)
            older = job.node("--rdzv-endpoint", f"127.0.0.1:{between.port}", nnodes="1:1", nproc=1, conf="is_host=0")
            job.expect_exit(older, 78)
            self.assertRegex(older.err.read_text(), r"this daemon uses protocol version (\d+) and the agent version \d+; "
                             "install one version of muster on all nodes")
            job.finish()
            job.expect_exit(first, 0)
            self.assertEqual(len(job.starts()), 1)


def kinds(answer):
    """The numbers of the frames in an answer."""
    found = set()
    while answer:
        found.add(answer[1])
        answer = answer[6 + int.from_bytes(answer[2:6], "little"):]
    return found


if __name__ == "__main__":
    unittest.main(verbosity=2)
