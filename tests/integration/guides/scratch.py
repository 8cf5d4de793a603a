"""Where the commands of a guide run: a scratch folder in namespaces of its own. Its network, mounts and processes end with
it, so a block may use the ports and names that a reader would use. node0, node1 ... are names of this host."""
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

from blocks import REPOSITORY, blocks_of

BUILD = pathlib.Path(os.environ["MUSTER_BUILD"])
PYTHON = os.environ.get("MUSTER_TEST_PYTHON", "")
DEADLINE_S = 300

# Runs inside the namespaces, before the block.
SET_UP = r"""
set -e
ip link set lo up
for number in 1 2 3 4; do ip addr add 10.77.0.$number/24 dev lo; done
mount --bind "$SCRATCH/.hosts" /etc/hosts
exec "$@"
"""
HOSTS = "127.0.0.1 localhost\n10.77.0.1 node0 head\n10.77.0.2 node1\n10.77.0.3 node2\n"
# The scripts that a reader writes: file name -> text.
SCRIPTS = {block.marks["file"]: block.text for block in blocks_of(REPOSITORY / "launcher/GETTING_STARTED.md") if "file" in block.marks}
# In place of train.py, without PyTorch. python -u writes each argument of print by itself, between those of the other workers.
TRAINER = """import os, sys
print(" ".join(["rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "round", os.environ["MUSTER_ROUND"], *sys.argv[1:]]))
"""

# In place of curl, which need not be installed.
CURL = """#!/usr/bin/env python3
import sys, urllib.request
print(urllib.request.urlopen(sys.argv[-1], timeout=30).read().decode())
"""


def until_open(port):
    """Shell commands that wait until the last background job accepts connections; they fail when it ends before."""
    return f"until (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null; do kill -0 $! || exit; sleep 0.05; done\n"


def lacking():
    """Why no block can run here; empty where one can."""
    missing = [tool for tool in ("unshare", "ip", "mount", "bash") if not shutil.which(tool)]
    if missing:
        return f"{', '.join(missing)} not installed"
    tried = subprocess.run([*namespaces(), "true"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    return tried.stderr.strip() if tried.returncode else ""


def namespaces():
    return ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--net", "--mount", "--propagation", "private",
            "--pid", "--fork", "--mount-proc", "--kill-child=SIGKILL"]


class Scratch:
    """A context manager: one folder with the programs and scripts that the guides name."""

    def __enter__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="guide-"))
        for name, text in {**SCRIPTS, "train.py": TRAINER}.items():
            self.write(name, text)
        self.write(".hosts", HOSTS)
        (self.folder / "build").mkdir()
        (self.folder / "build/release").symlink_to(BUILD)
        for name in ("scripts", "worker_runtime"):
            (self.folder / name).symlink_to(REPOSITORY / name)
        (self.folder / "stubs").mkdir()
        for name, text in (("torchrun", "#!/bin/sh\n"), ("curl", CURL)):  # tests/interop runs the real torchrun
            self.write(f"stubs/{name}", text)
            (self.folder / "stubs" / name).chmod(0o755)
        (self.folder / "tmp").mkdir()
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder)

    def write(self, name, text):
        (self.folder / name).write_text(text)
        return name

    def environment(self):
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("MUSTER_", "PET_", "SLURM_", "OMPI_", "TORCHELASTIC_"))}
        path = [str(BUILD / "bin"), str(self.folder / "stubs"), kept["PATH"]]
        return {**kept, "PATH": ":".join(path), "TMPDIR": str(self.folder / "tmp"), "SCRATCH": str(self.folder),
                "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(self.folder)}

    def run(self, script, nodes=1, daemon=None, serves=None, **variables):
        """Runs a shell script on so many nodes at once, beside a musterd on the port `daemon` where one is given, until
        its last background job accepts connections at the port `serves`. Returns the last exit code that is not 0, else 0,
        and all output."""
        first = f"muster key >key.out; musterd --port={daemon} --first-start --log-level=error & {until_open(daemon)}" if daemon else ""
        # Each node is a process group of its own. What a node left running ends with the namespace's first process.
        if serves:
            script += until_open(serves)
        self.write("block", script)
        many = first + 'for node in $(seq "$0"); do bash -eu ./block & pids="${pids-} $!"; done; code=0\n' \
               'for pid in $pids; do wait "$pid" || code=$?; done; exit "$code"'
        command = [*namespaces(), "bash", "-c", SET_UP, "bash", "bash", "-c", many, str(nodes)]
        with open(self.folder / "output", "w+") as output:
            process = subprocess.Popen(command, cwd=self.folder, env={**self.environment(), **variables}, text=True,
                                       stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
            try:
                code = process.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                code = f"nothing within {DEADLINE_S} s"
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            output.seek(0)
            return code, output.read()
