"""heartbeat(), progress() and section(): section.h has the rules. None needs a Context. Outside muster they do nothing, so any script
may call them."""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Iterator

from muster.library import ask, call_void

round_count = 0  # rounds that this process has entered without a new start
is_progress_called = False  # by the program: PyTorch's optimizer then reports nothing


def heartbeat() -> None:
    """Reports progress; call it in each step of a loop. If a worker's heartbeats stop for 3 times their longest pause so far,
    and for --hang-timeout, muster reports where the worker is. It does not stop the worker."""
    call_void("heartbeat")


def progress(step: int) -> None:
    """Reports the number of a completed step; call it in each step, with the numbers that checkpoints have. `muster status`
    shows it, and muster counts by it how the job's time was spent."""
    global is_progress_called
    is_progress_called = True
    call_void("progress", step)


@contextlib.contextmanager
def section(name: str, timeout: float | None = None) -> Iterator[None]:
    """Names the worker's activity ("evaluation") and suspends hang detection inside. If it lasts longer than `timeout`
    seconds, muster reports it; None: no limit."""
    if timeout is not None and not (timeout > 0 and math.isfinite(timeout)):
        raise ValueError(f"timeout must be a number of seconds > 0 or None, not {timeout!r}")
    limit_ms = 0 if timeout is None else max(1, round(timeout * 1000))
    entered = ask("section_enter", ctypes.c_uint64, name.encode(), limit_ms)
    try:
        yield
    finally:
        call_void("section_leave", entered)
