"""PreemptionNotice: preemption.h has the rules."""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Collection

from muster.communicator import Context
from muster.library import Handle, ask, make

EXIT_SAVED_AND_LEFT = 76  # the exit code for "state saved": muster does not restart the job


class PreemptionNotice:
    """Watches for preemption notices: `signals` (the library installs their handlers; set none of Python's) and messages of
    the agent. One per process.

        if notice.agreed():                                    # in each step, on all ranks
            checkpointer.save(step, state, when_busy="wait")
            checkpointer.finish()
            sys.exit(muster.EXIT_SAVED_AND_LEFT)
    """

    def __init__(self, context: Context, signals: Collection[signal.Signals] = (signal.SIGTERM,)) -> None:
        numbers = (ctypes.c_int * len(signals))(*(int(number) for number in signals))
        self._handle = Handle("preemption", make("preemption_watch", context._handle.value, numbers, len(numbers)))

    @property
    def count(self) -> int:
        """The number of notices that this rank has received. 1: save and exit. 2 or more: exit as fast as possible."""
        return ask("preemption_count", ctypes.c_int, self._handle.value)

    def agreed(self) -> bool:
        """A collective: True if any rank has received a notice. The answer is the same on all ranks."""
        return ask("preemption_agreed", ctypes.c_int, self._handle.value) == 1

    def close(self) -> None:
        """Restores the previous signal handlers."""
        self._handle.release()
