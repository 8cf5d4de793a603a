"""A job of real launchers on this host, for the elastic tests.

Every process of a job carries ELASTIC_TAG in its environment, so that `processes()` finds all of them, also those that
have left their session and their parent. Waiting is always for a condition, with a deadline.
"""
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid

SUPPORT = pathlib.Path(__file__).resolve().parents[2] / "support"
sys.path.insert(0, str(SUPPORT))
from line_times import without_times  # noqa: E402, F401
from own_processes import as_user  # noqa: E402
from ports import free_port  # noqa: E402

BIN = pathlib.Path(os.environ["MUSTER_BIN"])
# Every first worker takes the place of a standby process. A number, and not `auto`: that starts none where memory is short.
WARM = {"MUSTER_WARM_WORKERS": "8", "MUSTER_WARM_JOIN": "1", "MUSTER_WARM_IMPORTS": "json,warm_mark"} if "ELASTIC_WARM" in os.environ else {}
WORKERS = pathlib.Path(os.environ.get("MUSTER_WORKERS", BIN.parent / "worker_programs"))
DEADLINE = 60.0
NOBODY = 65534


def wait_for(what, condition, deadline=DEADLINE):
    """The first true value of condition(); a failure names `what` was waited for."""
    begin = time.monotonic()
    while True:
        value = condition()
        if value:
            return value
        waited = time.monotonic() - begin
        if waited > deadline:
            raise AssertionError(f"no {what} within {deadline} s")
        time.sleep(min(max(0.005, waited / 50), 0.1))  # between two looks; the condition decides, and a long wait takes few


class Start(dict):
    """One line that a worker wrote at its start; numbers are ints."""

    def __init__(self, line):
        super().__init__()
        for name, value in re.findall(r"(\w+)=(\S+)", line):
            self[name] = int(value) if re.fullmatch(r"-?\d+", value) else value


def tcp_sockets(port, state, remote=False):
    """The TCP sockets of this host, as /proc/PID/fd names them, in `state` ("01": connected, "0A": listening) with this port."""
    lines = [line.split() for table in ("tcp", "tcp6") for line in pathlib.Path("/proc/net", table).read_text().splitlines()[1:]]
    return {f"socket:[{words[9]}]" for words in lines if words[3] == state and words[2 if remote else 1].endswith(f":{port:04X}")}


def waits(pid):
    """How long a process that lives was ready to run, and another one had the CPU: a busy host is a cause to be told from others."""
    try:
        waited = int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return ""
    return f", waited {waited:.1f} s for a CPU"


class Job:
    """Temporary directory, endpoint, launchers and daemons of one test. Use it as a context manager."""

    def __init__(self, user=None):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="muster elastic "))  # the space is part of the test
        os.chmod(self.directory, 0o777)
        self.tag = uuid.uuid4().hex
        self.id = self.tag[:8]
        self.port = free_port()
        self.log = self.directory / "starts.log"
        self.log.touch()
        os.chmod(self.log, 0o666)
        self.read_lines, self.read_bytes = [], 0
        self.launchers = []
        self.user = user

    def __enter__(self):
        return self

    def __exit__(self, failure=None, *_):
        if failure is not None:
            self.tell_ends()
        for process in self.launchers:
            if process.poll() is None:
                process.kill()
            process.wait()
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        cold = self.not_warm() if WARM and failure is None else None
        shutil.rmtree(self.directory, ignore_errors=True)
        assert not cold, cold

    def tell_ends(self):
        """What each launcher and daemon said last, as its files go with the test."""
        for process in self.launchers:
            end = process.err.read_text(errors="replace")[-3000:]
            print(f"-- stderr of {' '.join(map(str, process.args))}, exit code {process.poll()}:\n{end}", file=sys.stderr)

    def not_warm(self):
        """Why a first worker of the job started normally, else None. A standby process that was late has been replaced, as it
        should be."""
        texts = [process.err.read_text() for process in self.launchers if process.can_be_warm]
        noted = pathlib.Path(f"{self.log}.warm")
        was_warm = noted.exists() and "0" in noted.read_text().split()
        for text in texts:
            first_starts = re.split("round 0 ended|starting it again", text)[0]
            if "did not take over" not in text and (not was_warm or "starts normally:" in first_starts):
                return f"its first workers were not warm:\n{text}"
        return None if texts else "no launcher of the job can have warm workers"

    # ---- starting ----
    def environment(self, **extra):
        kept = {k: v for k, v in os.environ.items()
                if not k.startswith(("PET_", "MUSTER_", "SLURM_", "TORCHELASTIC_")) and k != "LOGLEVEL"}
        found = {**kept, **WARM, "ELASTIC_TAG": self.tag, "ELASTIC_LOG": str(self.log),
                 "TMPDIR": str(self.directory), "HOME": str(self.directory), **extra}
        if WARM:  # warm_mark is there
            found["PYTHONPATH"] = os.pathsep.join([*filter(None, [found.get("PYTHONPATH")]), str(SUPPORT)])
        return found

    def as_user(self):
        """What goes before a command that is to run as the job's user."""
        return [] if self.user is None else as_user(self.user)

    def spawn(self, program, *arguments, stdout=None, stderr=None, before=(), **extra):
        """Starts one of our programs in the background, by the words that go before it if there are any; its streams go to
        files in the job's directory, or to the given descriptors."""
        if program == "musterd" and "--port" in arguments and "--bind" not in arguments:
            arguments = ("--bind", "127.0.0.1", *arguments)  # beyond loopback it would ask for a key
        at = arguments.index("--no-python") if WARM and "--no-python" in arguments else None
        # Of the same Python and a script muster makes a worker that can be warm.
        is_script = at is not None and arguments[at + 1] == sys.executable and not str(arguments[at + 2]).startswith("-")
        can_be_warm = bool(WARM) and program == "muster" and (at is None or is_script)
        if is_script:
            arguments = (*arguments[:at], *arguments[at + 2:])
            extra.setdefault("PYTHON_EXEC", sys.executable)
        number = len(self.launchers)
        with open(self.directory / f"{number}.out", "wb") as out, open(self.directory / f"{number}.err", "wb") as err:
            process = subprocess.Popen([*self.as_user(), *before, str(BIN / program), *map(str, arguments)], stdin=subprocess.DEVNULL,
                                       stdout=out if stdout is None else stdout,
                                       stderr=err if stderr is None else stderr, env=self.environment(**extra), cwd=self.directory,
                                       start_new_session=True)
        process.err = self.directory / f"{number}.err"
        process.out = self.directory / f"{number}.out"
        process.can_be_warm = can_be_warm
        self.launchers.append(process)
        return process

    def daemon(self, *arguments):
        process = self.spawn("musterd", "--port", self.port, "--first-start", *arguments)
        wait_for("listening musterd", self.answers)
        return process

    def answers(self, address="127.0.0.1"):
        try:
            socket.create_connection((address, self.port), timeout=1).close()
            return True
        except OSError:
            return False

    def node(self, *options, worker=("--until", "done"), nnodes="2", nproc=2, conf="last_call_timeout=60", **extra):
        """One launcher of the job at the job's endpoint, with the elastic worker. The last call is long, so that nodes that
        a test starts together meet in round 0 however slow the machine is; a round that begins with fewer than the most
        has to be given a short one."""
        return self.spawn("muster", "--nnodes", nnodes, "--nproc-per-node", nproc, "--rdzv-backend", "c10d",
                          "--rdzv-endpoint", f"127.0.0.1:{self.port}", "--rdzv-id", self.id, "--rdzv-conf", conf,
                          *options, "--no-python", WORKERS / "elastic", *worker, **extra)

    # ---- looking ----
    def lines(self, first_word):
        """Whole lines of the workers' log: of one that is being written a reader may see the beginning. Each is parsed once."""
        with self.log.open("rb") as log:
            log.seek(self.read_bytes)
            new = log.read()
        new = new[:new.rfind(b"\n") + 1]
        self.read_bytes += len(new)
        self.read_lines += [(line.partition(" ")[0], Start(line)) for line in new.decode().split("\n")[:-1]]
        return [line for word, line in self.read_lines if word == first_word]

    def starts(self, **fields):
        """The workers' start lines so far, those whose fields have the given values."""
        return [line for line in self.lines("start") if all(line.get(name) == value for name, value in fields.items())]

    def grandchildren(self):
        return [line["pid"] for line in self.lines("grandchild")]

    def round(self, number, workers):
        """Waits until `workers` workers of round `number` have started; their lines by rank."""
        def complete():
            found = self.starts(round=number)
            return found if len(found) >= workers else None
        try:
            found = wait_for(f"{workers} workers in round {number}", complete)
        except AssertionError as failure:
            raise AssertionError(f"{failure}\n{self.story()}") from None
        assert len(found) == workers, found
        return {line["rank"]: line for line in found}

    def processes(self):
        """Pids of everything that carries the job's tag, zombies left out."""
        needle = f"ELASTIC_TAG={self.tag}".encode()
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                if needle in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    @staticmethod
    def command_of(pid):
        try:
            return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:150]
        except OSError:
            return "gone meanwhile"

    def parent(self, pid):
        return int(re.search(r"^PPid:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M).group(1))

    def story(self):
        parts = [self.log.read_text()]
        for process in self.launchers:
            parts.append(f"--- {' '.join(map(str, process.args[:2]))} ... exit {process.poll()}{waits(process.pid)}\n" + process.err.read_text())
        return "\n".join(parts)

    # ---- acting ----
    def touch(self, name):
        (self.directory / name).touch()

    def finish(self):
        """Lets every worker exit 0."""
        self.touch("done")

    def exit_code(self, process, deadline=DEADLINE):
        try:
            return process.wait(timeout=deadline)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"a launcher did not end within {deadline} s\n{self.story()}") from None

    def expect_exit(self, process, code, deadline=DEADLINE):
        got = self.exit_code(process, deadline)
        assert got == code, f"exit code {got}, expected {code}\n{self.story()}"

    def expect_gone(self, deadline=DEADLINE, but=()):
        """All processes of the job end by themselves, apart from `but`. (How soon, scripts/bench/failures measures.)"""
        def gone():
            return not set(self.processes()) - {process.pid for process in but}
        try:
            wait_for("end of every process", gone, deadline)
        except AssertionError:
            left = [(pid, self.command_of(pid)) for pid in self.processes()]
            raise AssertionError(f"left after {deadline} s: {left}\n{self.story()}") from None
