"""Runs muster as torch's agent would run: signals reach it once, it does not outlive this process, and a failure is the exception
that torch's callers expect."""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
from collections import deque
from pathlib import Path
from typing import Any, Callable, NoReturn, Optional, Sequence

from muster import __main__ as module
from muster.compat.options import Refused

_PR_SET_PDEATHSIG = 1
_USAGE = 2


def program() -> str:
    wanted = os.environ.get("MUSTER_PROGRAM")
    found = shutil.which(wanted) if wanted else module.find_program()
    if found is None:
        raise Refused(f"MUSTER_PROGRAM is {wanted}, which is no program" if wanted else
                      "there is no program muster beside this Python, nor in PATH; install it, or set MUSTER_PROGRAM")
    return found


def run(command: Sequence[str], environment: dict[str, str], stops: Sequence[signal.Signals], name: str, folder: str) -> None:
    """Returns when all workers have exited with 0, else raises."""
    report = Path(folder, "report.json")
    stopped: list[int] = []
    unsent: deque[int] = deque()
    child: list[subprocess.Popen[bytes]] = []

    def stop(number: int, _frame: Any) -> None:
        stopped.append(number)
        unsent.append(number)
        send_all()

    def send_all() -> None:
        with contextlib.suppress(IndexError):
            while child:  # each signal once: a second one makes muster kill the workers
                child[0].send_signal(unsent.popleft())

    before = _handle(stops, stop)
    try:
        child.append(subprocess.Popen(command, env={**environment, "MUSTER_CALLER_REPORT": str(report)}, preexec_fn=_beginning()))
        send_all()  # those that came before it was there
        code = child[0].wait()
    except BaseException:  # of a signal that is not muster's to handle
        if child and child[0].poll() is None:
            child[0].terminate()
            child[0].wait()
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    facts = _read(report)
    if code != 0 or stopped:  # also where the job was over when the signal came: the caller is to end
        _fail(code, facts, name, stopped[0] if stopped else None)
    if facts.get("part") == "spare":
        raise RuntimeError(f"job {facts['job']} is over, and this node was a spare: it has run nothing")


def _handle(stops: Sequence[signal.Signals], handler: Callable[[int, Any], None]) -> dict[int, Any]:
    """The handlers that were there. Signals that are ignored stay so, as with nohup; another thread than the main one has none."""
    before: dict[int, Any] = {}
    try:
        for number in set(stops):
            if signal.getsignal(number) not in (signal.SIG_IGN, None):  # None: a handler that Python could not put back
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


def _read(report: Path) -> dict[str, Any]:
    """muster's report; empty if it wrote none."""
    try:
        facts: dict[str, Any] = json.loads(report.read_bytes())
    except (OSError, ValueError):
        return {}
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
