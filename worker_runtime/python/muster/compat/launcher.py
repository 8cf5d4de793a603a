"""Runs muster as torch's agent would run: signals reach it once, it does not outlive this process, and a failure is the exception
that torch's callers expect."""

import ctypes
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any, Callable, NoReturn, Optional, Sequence

from muster import __main__ as module
from muster.compat.options import Refused

_PR_SET_PDEATHSIG = 1
_USAGE = 2


def program() -> str:
    found = os.environ.get("MUSTER_PROGRAM") or module.find_program()
    if found is None:
        raise Refused("there is no program muster beside this Python, nor in PATH; install it, or set MUSTER_PROGRAM")
    return found


def run(command: Sequence[str], environment: dict[str, str], stops: Sequence[signal.Signals], name: str, folder: str) -> None:
    """Returns when all workers have exited with 0, else raises."""
    report = Path(folder, "report.json")
    words = [command[0], "--report=" + str(report).replace("%", "%%"), *command[1:]]
    stopped: list[int] = []
    child: list[subprocess.Popen[bytes]] = []

    def stop(number: int, _frame: Any) -> None:
        stopped.append(number)
        for process in child:
            process.send_signal(number)

    before = _handle(stops, stop)
    try:
        child.append(subprocess.Popen(words, env={**os.environ, **environment}, preexec_fn=_beginning()))
        if stopped:  # it was not there yet
            child[0].send_signal(stopped[0])
        code = child[0].wait()
    except BaseException:  # of a signal that is not muster's to handle
        if child and child[0].poll() is None:
            child[0].terminate()
            child[0].wait()
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    facts = _read(report, child[0].pid)
    if code != 0:
        _fail(code, facts, name, stopped[0] if stopped else None)


def _handle(stops: Sequence[signal.Signals], handler: Callable[[int, Any], None]) -> dict[int, Any]:
    """The handlers that were there. Signals that are ignored stay so, as with nohup; another thread than the main one has none."""
    before: dict[int, Any] = {}
    try:
        for number in stops:
            if signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, handler)
    except (OSError, ValueError):  # OSError: SIGKILL, which muster refuses
        pass
    return before


def _beginning() -> Callable[[], None]:
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def begin() -> None:
        # Ctrl-C reaches this process and its whole group; a second signal would make muster kill the workers at once.
        os.setpgid(0, 0)
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return begin


def _read(report: Path, pid: int) -> dict[str, Any]:
    """muster's report; empty if it wrote none. A copy goes where MUSTER_REPORT says."""
    try:
        text = report.read_bytes()
        facts: dict[str, Any] = json.loads(text)
    except (OSError, ValueError):
        return {}
    wanted = os.environ.get("MUSTER_REPORT")
    if wanted:
        values = {"%": "%", "h": facts["host"], "j": facts["job"], "p": str(pid)}
        pieces = wanted.replace("%%", "%\0").split("%")
        path = pieces[0] + "".join(values.get(piece[:1].replace("\0", "%"), "%" + piece[:1]) + piece[1:] for piece in pieces[1:])
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(text)
    return facts


def _fail(code: int, facts: dict[str, Any], name: str, stopped: Optional[int]) -> NoReturn:
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
    from torch.distributed.elastic.rendezvous.api import RendezvousError

    outcome = facts.get("outcome")
    number = stopped if stopped is not None else code - 128 if outcome == "cancelled" else 0
    if number in set(signal.Signals):
        raise SignalException(f"Process {os.getpid()} got signal: {signal.Signals(number)}", sigval=signal.Signals(number))
    first = facts.get("first", {})
    if "rank" in first:
        end = first["end"]
        exit_code = {"exit": end.get("code"), "signal": -end.get("signal", 0)}.get(end["type"], code)
        failure = ProcessFailure(first["local_rank"], first["pid"], exit_code, first["error_file"])
        raise ChildFailedError(name=name, failures={first["rank"]: failure})
    why = f"muster exited with {code}: {facts.get('why') or 'its own line says why'}"
    raise (RendezvousError if outcome == "no_rendezvous" else ValueError if code == _USAGE else RuntimeError)(why)
