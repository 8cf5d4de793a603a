"""The methods of scripts/bench/all_reduce: how the ranks of each library are built and started on this machine."""

import json
import os
import re
import shutil
import subprocess
import tempfile

from measuring import REPOSITORY, free_port, lines_of, torch_version

SOURCES = REPOSITORY / "scripts/bench/collectives"
METHOD_GIVES_UP_S = 120


class NotThere(Exception):
    """A method that cannot run on this machine, and why."""


class Machine:
    """Where programs are, and how ranks are started."""

    def __init__(self, build, python):
        self.build = build
        self.python = python
        self.bench = REPOSITORY / "build/bench"
        self.bench.mkdir(parents=True, exist_ok=True)

    def compiled(self, name, compiler, packages, *libraries):
        """A peer's rank program, compiled where its library is installed, which is in these packages."""
        advice = f"install {packages} (scripts/setup --benchmarks)"
        if not shutil.which(compiler):
            raise NotThere(f"no {compiler}: {advice}")
        program = self.bench / name
        command = [compiler, "-O2", "-std=c++17", "-I", str(REPOSITORY), str(SOURCES / f"{name}.cpp"), "-o", str(program),
                   *libraries]
        made = subprocess.run(command, capture_output=True, text=True)
        missing = re.search(r"fatal error: (\S+): No such file|cannot find (-l\w+)", made.stderr)
        if missing:
            raise NotThere(f"no {missing[1] or missing[2]}: {advice}")
        if made.returncode != 0:
            raise NotThere(made.stderr.strip().splitlines()[0] if made.stderr else "it does not compile")
        return program

    def run(self, command, environment=None):
        try:
            rows = lines_of(command, METHOD_GIVES_UP_S, env={**os.environ, **(environment or {})})
        except subprocess.TimeoutExpired:
            return None
        return {row["bytes"]: row for row in rows}

    def ranks(self, command, count, environment):
        """`count` processes with RANK and WORLD_SIZE, for libraries without a launcher of their own."""
        started = []
        for rank in range(count):
            out = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
            started.append(subprocess.Popen([str(part) for part in command], stdout=out, stderr=subprocess.PIPE, text=True,
                                            env={**os.environ, **environment, "RANK": str(rank),
                                                 "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank)}))
        try:
            out, err = started[0].communicate(timeout=METHOD_GIVES_UP_S)
            for process in started[1:]:
                process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            return None
        finally:
            for process in started:
                if process.poll() is None:
                    process.kill()
                process.wait()
        if started[0].returncode != 0:
            raise RuntimeError(f"{command[0]} ended with {started[0].returncode}: {err[-600:]}")
        return {row["bytes"]: row for row in map(json.loads, out.splitlines())}


class Method:
    def __init__(self, name, machine):
        self.name = name
        self.machine = machine

    def prepare(self):
        """Raises NotThere; returns what is worth knowing about it (a version)."""
        return ""

    def suits(self, ranks):
        """Is there something to measure with so many ranks?"""
        return ranks > 1

    def run(self, ranks, arguments):
        """Rows of rank 0 by size, as measure.h prints them; None when it did not end in time."""
        raise NotImplementedError


class Roofline(Method):
    def prepare(self):
        return "in-place add by one pinned process a core"

    def suits(self, ranks):
        return ranks <= os.cpu_count()

    def run(self, ranks, arguments):
        return self.machine.run([self.machine.build / "bin/bench_roofline", "--ranks", ranks, *arguments])


class Muster(Method):
    def __init__(self, name, machine, transport, element="f32"):
        super().__init__(name, machine)
        self.transport = transport
        self.element = element

    def prepare(self):
        program = self.machine.build / "bin/bench_muster_rank"
        if not program.exists():
            raise NotThere(f"{program} is not built")
        return f"MUSTER_TRANSPORT={self.transport}"

    def run(self, ranks, arguments):
        build = self.machine.build / "bin"
        return self.machine.run([build / "muster", "--standalone", f"--nproc-per-node={ranks}", "--no-python",
                                 build / "bench_muster_rank", "--type", self.element, *arguments],
                                {"MUSTER_TRANSPORT": self.transport})


class MusterNodes(Muster):
    """Two launchers on this host, each with half of the ranks."""

    def suits(self, ranks):
        return ranks >= 4 and ranks % 2 == 0

    def run(self, ranks, arguments):
        port = free_port()
        build = self.machine.build / "bin"
        command = [build / "muster", "--nnodes=2", f"--nproc-per-node={ranks // 2}", "--rdzv-backend=c10d", "--rdzv-id=bench",
                   f"--rdzv-endpoint=127.0.0.1:{port}", "--no-python", build / "bench_muster_rank", *arguments]
        other = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                 text=True, env={**os.environ, "MUSTER_TRANSPORT": self.transport})
        try:
            rows = self.machine.run(command, {"MUSTER_TRANSPORT": self.transport})
            if rows is None:
                return None
            return rows | {row["bytes"]: row for row in map(json.loads, other.communicate(timeout=30)[0].splitlines())}
        finally:
            other.terminate()
            other.wait()


class Socket(Method):
    def prepare(self):
        self.program = self.machine.compiled("socket_rank", "g++", "g++")
        return "the bytes of an all-reduce both ways over one TCP connection, nothing added up; 2 ranks"

    def suits(self, ranks):
        return ranks == 2

    def run(self, ranks, arguments):
        with tempfile.TemporaryDirectory() as folder:
            return self.machine.ranks([self.program, *arguments], ranks, {"BENCH_FOLDER": folder})


class Gloo(Method):
    def prepare(self):
        self.program = self.machine.compiled("gloo_rank", "g++", "g++ libgloo-dev", "-lgloo", "-lpthread")
        version = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "libgloo0"], capture_output=True, text=True)
        return f"libgloo0 {version.stdout}, tcp, new ring"

    def run(self, ranks, arguments):
        with tempfile.TemporaryDirectory() as folder:
            return self.machine.ranks([self.program, *arguments], ranks, {"BENCH_FOLDER": folder})


class Torch(Method):
    def prepare(self):
        version = torch_version(self.machine.python)
        if not version:
            raise NotThere(f"no PyTorch in {self.machine.python} (MUSTER_TEST_PYTHON, or scripts/setup --tests)")
        return f"torch {version}, back end gloo"

    def run(self, ranks, arguments):
        port = free_port()
        return self.machine.ranks([self.machine.python, SOURCES / "torch_rank.py", *arguments], ranks,
                                  {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"})


class OpenMpi(Method):
    def prepare(self):
        self.program = self.machine.compiled("mpi_rank", "mpicxx", "libopenmpi-dev openmpi-bin")
        version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout.splitlines()[0]
        return f"{version}, defaults, --oversubscribe"

    def run(self, ranks, arguments):
        return self.machine.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", ranks,
                                 self.program, *arguments])


def methods_of(machine):
    return [Roofline("roofline", machine), Muster("muster shm", machine, "shared_memory"),
            Muster("muster shm bf16", machine, "shared_memory", "bf16"),
            Muster("muster shm f16", machine, "shared_memory", "f16"), Muster("muster tcp", machine, "tcp"),
            MusterNodes("muster 2 nodes", machine, "hierarchical"), Socket("raw socket", machine),
            Gloo("gloo tcp", machine), Torch("torch gloo", machine), OpenMpi("open mpi", machine)]
