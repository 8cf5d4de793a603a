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

from job import NOBODY, Job, as_user, wait_for
from secret_test import is_loopback, listeners

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "net"))
import probes  # noqa: E402


def frames(said):
    """The kind and payload of each."""
    while said[:1] == b"\xb5":
        size = 6 + int.from_bytes(said[2:6], "little")
        yield said[1], said[6:size]
        said = said[size:]


class Between:
    """Between a launcher and the daemon. It keeps what the launcher says; `older` makes its Hello one of the protocol version before."""

    def __init__(self, daemon, older=False):
        self.daemon, self.older, self.said = daemon, older, []
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
            if self.older and begin[:2] == b"\xb5\x01":
                begin = begin[:6] + (int.from_bytes(begin[6:], "little") - 1).to_bytes(4, "little")
            self.said.append(bytearray(begin))
            daemon.sendall(begin)
            self.pour(launcher, daemon, self.said[-1])

    @staticmethod
    def pour(source, sink, said=None):
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                if said is not None:
                    said += piece  # before anybody acts on it
                sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)

    def join(self):
        """The payload of the launcher's Join."""
        return next(payload for said in self.said for kind, payload in frames(bytes(said)) if kind == 2)


class Uninvited(unittest.TestCase):
    def probed(self, job, *ports, user=None):
        """What each probe heard: a list of (port, probe, answer)."""
        words = [*(as_user(user) if user else ()), sys.executable, probes.__file__, job.id, "127.0.0.1", *ports]
        asked = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=300)
        heard = [re.fullmatch(r"(\d+) (.*): ([0-9a-f]*)", line).groups() for line in asked.stdout.splitlines()]
        self.assertEqual((asked.returncode, len(heard)), (0, len(ports) * len(probes.PROBES)), asked.stderr)
        return [(port, name, bytes.fromhex(answer)) for port, name, answer in heard]

    def run_beside(self, attack):
        """A default job of two nodes, which ends well in its first round whatever attack(job, join) does; `join` is one of its nodes'."""
        with Job() as job:
            nodes = [job.node()]
            wait_for("the first node's daemon", job.answers)
            between = Between(job.port)
            self.addCleanup(between.listener.close)
            nodes.append(job.node("--rdzv-endpoint", f"127.0.0.1:{between.port}", conf="is_host=0,last_call_timeout=60"))
            job.round(0, 4)
            attack(job, between.join())
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)
                self.assertNotIn("drain", node.err.read_text())
            self.assertEqual(len(job.starts()), 4, job.story())

    @unittest.skipUnless(os.getuid() == 0 or os.environ.get("CI"), "needs root, which may become another user")
    def test_another_user_is_refused_at_every_port(self):
        def attack(job, join):
            ports = sorted({address.rpartition(":")[2] for address in listeners(job)})
            self.assertGreaterEqual(len(ports), 2, "the daemon's and the store's")
            answered = [(port, name, answer[:60]) for port, name, answer in self.probed(job, *ports, user=NOBODY)
                        if not probes.is_refusal(answer)]
            self.assertEqual(answered, [])
        self.run_beside(attack)

    def test_nodes_that_meet_on_loopback_listen_there_alone(self):
        with Job() as job:
            nodes = [job.node(nproc=1) for _ in range(2)]
            job.round(0, 2)
            found = listeners(job)
            self.assertGreaterEqual(len(found), 3, "a daemon, and a store or port for questions of each node")
            self.assertEqual([address for address in found if not is_loopback(address)], [])
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)

    def test_who_was_never_in_the_round_commands_nobody_and_ends_nothing(self):
        """The same user, whom the kernel lets in: what each frame asks for is refused all the same."""
        def attack(job, join):
            for words in probes.resume, probes.boast:
                for terms in (), (join,):
                    # A busy daemon may say nothing for as long as ask() waits.
                    answer = wait_for("an answer", lambda: probes.ask("127.0.0.1", job.port, words(job.id, *terms)))
                    self.assertIn(probes.REFUSED, [kind for kind, _ in frames(answer)], (words, answer))
            probes.ask("127.0.0.1", job.port, probes.hello(job.id) + probes.frame("Ping") * 20_000)
        self.run_beside(attack)

    def test_a_node_with_another_version_is_told_both_and_what_to_do(self):
        with Job() as job:
            job.daemon()
            first = job.node(nnodes="1:1", nproc=1)
            job.round(0, 1)
            between = Between(job.port, older=True)
            self.addCleanup(between.listener.close)
            older = job.node("--rdzv-endpoint", f"127.0.0.1:{between.port}", nnodes="1:1", nproc=1, conf="is_host=0")
            job.expect_exit(older, 78)
            self.assertRegex(older.err.read_text(), r"this daemon uses protocol version (\d+) and the agent version \d+; "
                             "install one version of muster on all nodes")
            job.finish()
            job.expect_exit(first, 0)
            self.assertEqual(len(job.starts()), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
