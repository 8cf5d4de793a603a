"""Jobs of two launchers on this host for the table of faults: each a node with a host name, a small disk, a memory limit
or a network of its own, where we may give it one (root)."""
import contextlib
import ctypes
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "elastic"))
from job import BIN, WORKERS, Job, wait_for  # noqa: E402
from torch_there import has_torch  # noqa: E402

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
PYTHON = pathlib.Path(os.environ.get("MUSTER_TEST_PYTHON") or REPOSITORY / ".venv/bin/python")
# What is taken to be there in CI, so that a test whose real part is missing fails in it.
CI = os.environ.get("CI") == "true"
# Root, and allowed to make namespaces.
ROOT = CI or os.geteuid() == 0 and subprocess.run(["unshare", "--uts", "--mount", "true"], stderr=subprocess.DEVNULL).returncode == 0
HAS_TORCH = CI or has_torch(PYTHON)
MEMORY_LIMIT = 400 << 20
HOSTS = ("node-a", "node-b")


def keep_mounts_private():
    """What this test mounts is seen by it and by what it starts."""
    clone_newns = 0x20000
    if ctypes.CDLL(None, use_errno=True).unshare(clone_newns) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


@contextlib.contextmanager
def small_disk(folder, size):
    """A disk of that size at `folder` for the time of a job; none without a size."""
    if size:
        folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "small", folder], check=True)
    try:
        yield
    finally:
        if size:
            subprocess.run(["umount", folder], check=True)


class MemoryGroup:
    """A control group with a memory limit for one launcher and what it starts; entered by its shell before exec."""

    def __init__(self, name):
        self.path = None
        for root, limit in (("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")):
            folder = pathlib.Path(root) / name
            try:
                folder.mkdir()
                if not (folder / "cgroup.procs").exists():  # no control group, but a folder of what they are mounted in
                    raise OSError
                (folder / limit).write_text(str(MEMORY_LIMIT))
                self.path = folder
                return
            except OSError:
                if folder.exists():
                    folder.rmdir()

    def close(self):
        if self.path:
            wait_for("empty memory group", lambda: not (self.path / "cgroup.procs").read_text())
            self.path.rmdir()


class FaultJob(Job):
    """Two launchers with reports; each in namespaces of its own."""

    def __init__(self):
        super().__init__()
        self.reports = []
        self.variables = {"OMP_NUM_THREADS": "1"}
        self.endpoint = f"127.0.0.1:{self.port}"

    def launch(self, index, arguments, prelude="", nproc=2):
        report = self.directory / f"report-{index}.json"
        self.reports.append(report)
        command = [str(BIN / "muster"), "--nnodes", "2", "--nproc-per-node", str(nproc), "--rdzv-backend", "c10d",
                   "--rdzv-endpoint", self.endpoint, "--rdzv-id", self.id, "--node-rank", str(index),
                   "--report", str(report), "--lease", "60", *map(str, arguments)]
        if ROOT:
            script = f"hostname {HOSTS[index]} && {prelude or 'true'} && exec \"$@\""
            command = ["unshare", "--uts", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *command]
        return self.spawn_command(command)

    def spawn_command(self, command):
        number = len(self.launchers)
        out, err = (self.directory / f"{number}.{kind}" for kind in ("out", "err"))
        with open(out, "wb") as to, open(err, "wb") as errors:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=to, stderr=errors, cwd=self.directory,
                                       env=self.environment(**self.variables), start_new_session=True)
        process.out, process.err = out, err
        self.launchers.append(process)
        return process

    def both(self, arguments, prelude="", nproc=2):
        """Runs the job to its end, the prelude on the second node; the two reports."""
        nodes = [self.launch(0, arguments, nproc=nproc)]
        wait_for("the host's daemon", self.answers)
        nodes.append(self.launch(1, arguments, prelude, nproc))
        for node in nodes:
            self.exit_code(node, 240)
        missing = [str(report) for report in self.reports if not report.exists()]
        assert not missing, f"no report: {missing}\n{self.story()}"
        return [json.loads(report.read_text()) for report in self.reports]


class LinkedJob(FaultJob):
    """Each launcher in a network of its own, and one wire between the two."""

    ADDRESSES = ("10.9.0.1", "10.9.0.2")

    def __enter__(self):
        self.holders = [subprocess.Popen(["unshare", "--net", "sleep", "infinity"]) for _ in range(2)]
        own = os.readlink("/proc/self/ns/net")
        for holder in self.holders:
            wait_for("network of its own", lambda pid=holder.pid: os.readlink(f"/proc/{pid}/ns/net") != own)
        subprocess.run(["ip", "link", "add", "eth0", "netns", str(self.holders[0].pid), "type", "veth", "peer", "name", "eth0",
                        "netns", str(self.holders[1].pid)], check=True)
        for index in range(2):
            self.ip(index, "addr", "add", f"{self.ADDRESSES[index]}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                self.ip(index, "link", "set", device, "up")
        return super().__enter__()

    def __exit__(self, *how):
        super().__exit__(*how)
        for holder in self.holders:
            holder.kill()
            holder.wait()

    def ip(self, index, *words):
        subprocess.run(["nsenter", f"--net=/proc/{self.holders[index].pid}/ns/net", "ip", *words], check=True)

    def spawn_command(self, command):
        index = len(self.launchers)
        return super().spawn_command(["nsenter", f"--net=/proc/{self.holders[index].pid}/ns/net", *command])

    def drop(self):
        """Every frame goes to where nobody is: no answer, no error, as on a wire that was pulled beyond a switch."""
        for index in range(2):
            self.ip(index, "neigh", "replace", self.ADDRESSES[1 - index], "lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud",
                    "permanent")
