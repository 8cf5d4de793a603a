"""What the benchmarks share: their common options, where programs are, jobs that are gone at the end, and the file of results."""
import argparse
import contextlib
import json
import math
import os
import platform
import re
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("MUSTER_BUILD") or REPOSITORY / "build/release").absolute()  # jobs run in folders of their own
sys.path.insert(0, str(REPOSITORY / "tests/support"))
from ports import free_port  # noqa: E402, F401


class Failed(SystemExit):
    """It could not be measured; the text says why, and ends a program that does not catch it."""


def program(text):
    """A name alone is searched in PATH. Links stay: the python of a virtual environment is one."""
    return Path(text).absolute() if os.sep in text else Path(text)


PYTHON = program(os.environ.get("MUSTER_TEST_PYTHON") or f"{REPOSITORY}/.venv/bin/python")


def leave(number, _):
    """Through every `finally`, which ends the jobs. A second signal, as timeout(1) sends one, must not cut that short."""
    for one in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, lambda *_: None)
    sys.exit(128 + number)


def parser(doc, results=None, build=True, python=False):
    """With --build; with --python where PyTorch is measured too; with --output where results are kept in a file of that name. From here on
    SIGTERM and SIGHUP leave no job behind."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # nohup(1) ignores one
            signal.signal(number, leave)
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if build:
        made.add_argument("--build", type=lambda text: Path(text).absolute(), default=BUILD, help="build folder (%(default)s)")
    if python:
        made.add_argument("--python", type=program, default=PYTHON, help="with PyTorch (default: $MUSTER_TEST_PYTHON, else .venv/bin/python)")
    if results:
        made.add_argument("--output", type=Path, default=REPOSITORY / "build/bench" / results)
    return made


def chosen(arguments, wanted, known):
    """The rows that are wanted, or all. One that is not known is wrong usage."""
    if unknown := [name for name in wanted or () if name not in known]:
        arguments.error(f"unknown: {', '.join(map(repr, unknown))}; there are {', '.join(map(repr, known))}")
    return wanted or list(known)


def facts():
    """The machine beside which figures are to be read."""
    return {"cpus": os.cpu_count(), "machine": platform.machine(), "kernel": platform.release(), "load": round(os.getloadavg()[0], 2)}


def write(output, **results):
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps({**facts(), **results}, indent=1) + "\n")
    print(f"written to {output}")


def torch_version(python):
    """Empty where that Python has no PyTorch."""
    with contextlib.suppress(OSError):
        return subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True).stdout.strip()
    return ""


def clean_environment(**more):
    """Ours, without what a surrounding job or a user's defaults would change."""
    outer = re.compile(r"PET_|MUSTER_|TORCHELASTIC_|MASTER_|(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)$|OMP_NUM")
    return {name: value for name, value in os.environ.items() if not outer.match(name)} | {"OMP_NUM_THREADS": "1"} | more


def raise_open_files():
    """A descriptor for each of many connections, in this process and in those that it starts."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def shown(values, digits=1):
    """The median (least..most)."""
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f}..{max(values):,.{digits}f})"


def percentile(values, share):
    """The smallest value that is not below `share` of all."""
    return sorted(values)[max(0, math.ceil(share * len(values) - 1e-9) - 1)]


def wait_for(what, condition, seconds, pause=0.01, story=lambda: ""):
    """The first true value of condition()."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            raise Failed(f"no {what} within {seconds:g} s {story()[-2000:]}".strip())
        time.sleep(pause)
    return found


def carrying(variable):
    """Pids of all processes in whose environment a variable begins with this text, zombies left out."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and int(entry.name) != os.getpid() and b"\0" + variable.encode() in b"\0" + (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


def family(root):
    """Pids of `root` and of all that it has started, itself first."""
    found = [root]
    for pid in found:
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # A thread may end meanwhile.
                found += map(int, children.read_text().split())
    return found


def noted_steps(path):
    """(number, pid, time) of the whole lines that a rank has written so far, one for each step."""
    with contextlib.suppress(OSError):
        rows = [line.split() for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [(int(number), int(pid), float(at)) for number, pid, at in rows]
    return []


def pss_kib(pid):
    """Memory of a process, with its share of what it has in common with others."""
    return int(re.search(r"^Pss: +(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)[1])


def timed(command):
    """What a program that succeeds prints, as bytes; its seconds, its processor time, and the MiB of the largest child so far."""
    before, began = children_cpu_s(), time.monotonic()
    shown = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    return shown, time.monotonic() - began, children_cpu_s() - before, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024


def listens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@contextlib.contextmanager
def musterd(build, **options):
    """A daemon at a port of its own choice: that port, and its process id."""
    command = [build / "bin/musterd", "--bind", "127.0.0.1", "--port", "0", "--first-start", "--log-level", "info"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options) as daemon:
        try:
            port = re.findall(r"\d+", line := daemon.stdout.readline())[-1:]
            if not port:
                raise Failed(f"musterd printed no port: {line!r}")
            yield int(port[0]), daemon.pid
        finally:
            daemon.terminate()


def output_of(command, seconds=300, **options):
    """What a program that succeeds prints."""
    done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, **options)
    if done.returncode != 0:
        raise Failed(f"{Path(command[0]).name} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def lines_of(command, seconds=300, **options):
    """What a program printed as JSON, one object a line."""
    return [json.loads(line) for line in output_of(command, seconds, **options).splitlines() if line.startswith("{")]


def children_cpu_s():
    """Processor time of all ended children of this process."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Launched:
    """A launcher in a folder of its own below `scratch`, for which FOLDER stands in the command. Its output is in the file `log` there,
    and what worker programs of the elastic tests write in `lines`."""

    def __init__(self, command, scratch, **environment):
        self.folder = Path(tempfile.mkdtemp(dir=scratch))
        self.log = self.folder / "log"
        (self.folder / "lines").touch()
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([self.placed(word) for word in command], stdout=log, stderr=log, cwd=self.folder, start_new_session=True,
                                            env=clean_environment(TMPDIR=str(scratch), ELASTIC_LOG=str(self.folder / "lines"), **environment))

    def placed(self, word):
        return str(word).replace("FOLDER", str(self.folder))

    def wait(self, what, condition, seconds=180, pause=0.01):
        def found():
            code = self.process.poll()
            if not (value := condition()) and code is not None:
                raise Failed(f"no {what} (exit {code})\n{self.log.read_text()[-2000:]}")
            return value
        return wait_for(what, found, seconds, pause, self.log.read_text)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
