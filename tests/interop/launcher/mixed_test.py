"""muster on one node and the real torchrun on the other: they cannot form one job, and muster says so instead of waiting for
ten minutes without a word. Each back end, and each of the two as the host."""
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from ports import free_port  # noqa: E402
from torch_there import has_torch  # noqa: E402

MUSTER = os.environ["MUSTER_BINARY"]
PYTHON = os.environ.get("MUSTER_TEST_PYTHON", sys.executable)
SECONDS_MAX = 200  # two imports of PyTorch on a busy machine


class Node:
    """One launcher in a session of its own; what it says goes to a file."""

    def __init__(self, folder, name, command):
        self.path = pathlib.Path(folder) / name
        keep = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        with open(self.path, "wb") as file:
            self.process = subprocess.Popen([*command, "--no-python", "true"], stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                                            env={**keep, "TMPDIR": str(folder)}, start_new_session=True)

    def said(self):
        return self.path.read_text(errors="replace")

    def end(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(what, holds):
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(what())
        time.sleep(0.05)


@unittest.skipUnless(has_torch(PYTHON), "needs PyTorch")
class Mixed(unittest.TestCase):
    def check(self, host, guest, expected):
        """`host` and `guest` make commands from a port; `expected` is what the one of muster says."""
        port = free_port()
        folder = tempfile.TemporaryDirectory(prefix="muster-mixed-")
        self.addCleanup(folder.cleanup)
        first = Node(folder.name, "host", host(port))
        self.addCleanup(first.end)
        wait_for(first.said, lambda: listens(port))
        second = Node(folder.name, "guest", guest(port))
        self.addCleanup(second.end)
        ours = first if host(port)[0] == MUSTER else second
        for words in (expected, "muster and torchrun cannot form one job"):
            wait_for(lambda: first.said() + second.said(), lambda: words in ours.said())

    @staticmethod
    def c10d(launcher, is_host):
        return lambda port: [*launcher, "--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}",
                             "--rdzv-id=mixed", f"--rdzv-conf=is_host={is_host}"]

    @staticmethod
    def static(launcher, rank):
        return lambda port: [*launcher, "--nnodes=2", f"--node-rank={rank}", "--master-addr=127.0.0.1", f"--master-port={port}",
                             "--rdzv-id=mixed"]

    MUSTER = (MUSTER,)
    TORCHRUN = (PYTHON, "-m", "torch.distributed.run")

    def test_torchrun_comes_to_muster(self):
        self.check(self.c10d(self.MUSTER, 1), self.c10d(self.TORCHRUN, 0), "; torchrun on 127.0.0.1 waits here for a job with this name")

    def test_muster_comes_to_torchrun(self):
        self.check(self.c10d(self.TORCHRUN, 1), self.c10d(self.MUSTER, 0), "torchrun serves its own rendezvous of job 'mixed' there")

    def test_torchrun_comes_to_muster_with_static(self):
        self.check(self.static(self.MUSTER, 0), self.static(self.TORCHRUN, 1), "; torchrun on 127.0.0.1 waits here for a job with this name")

    def test_muster_comes_to_torchrun_with_static(self):
        self.check(self.static(self.TORCHRUN, 0), self.static(self.MUSTER, 1), "PyTorch's store answers there")


if __name__ == "__main__":
    unittest.main()
