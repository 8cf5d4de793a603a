"""PreemptionNotice: see preemption.h for what it promises."""

import ctypes
import signal

from muster.library import Handle, ask, make

EXIT_SAVED_AND_LEFT = 76  # says to muster: all is saved, do not start the job again


class PreemptionNotice:
    """Watches for notices that the job will be stopped soon: `signals` (they get a handler of the library's; set none of
    Python's for them) and messages of the agent. One for a process.

        if notice.agreed():                                    # in each step, on all ranks
            checkpointer.save(step, state, when_busy="wait")
            checkpointer.finish()
            sys.exit(muster.EXIT_SAVED_AND_LEFT)
    """

    def __init__(self, context, signals=(signal.SIGTERM,)):
        numbers = (ctypes.c_int * len(signals))(*(int(number) for number in signals))
        self._handle = Handle("preemption", make("preemption_watch", context._handle.value, numbers, len(numbers)))

    @property
    def count(self):
        """Notices that this rank itself has got: one says leave, a second one says hurry."""
        return ask("preemption_count", ctypes.c_int, self._handle.value)

    def agreed(self):
        """A collective: has any rank got one? The same answer on all ranks."""
        return ask("preemption_agreed", ctypes.c_int, self._handle.value) == 1

    def close(self):
        """The signals do what they did before."""
        self._handle.release()
