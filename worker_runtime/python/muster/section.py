"""heartbeat() and section(): see section.h for what they promise. Neither needs a Context, and outside of muster neither does
anything: a script that has no other use for the runtime may call them."""

import contextlib
import ctypes
import math

from muster.library import ask, call_void


def heartbeat():
    """"I live and go on": in each step of a loop. Where a worker that sends these stops doing so for 3 times its longest
    pause so far, and for --hang-timeout, muster says so, with where it is. It is not ended."""
    call_void("heartbeat")


@contextlib.contextmanager
def section(name, timeout=None):
    """What the worker does has this name meanwhile ("evaluation"), and no heartbeat and no collective is missed. Beyond
    `timeout`, in seconds, muster says so; None: it may last."""
    if timeout is not None and not (timeout > 0 and math.isfinite(timeout)):
        raise ValueError(f"timeout is a number of seconds > 0 or None, not {timeout!r}")
    limit_ms = 0 if timeout is None else max(1, round(timeout * 1000))
    entered = ask("section_enter", ctypes.c_uint64, name.encode(), limit_ms)
    try:
        yield
    finally:
        call_void("section_leave", entered)
