"""Training that survives the failure of another rank in its own process (include/muster/recoverable.h has the rules)."""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

from muster.communicator import Context
from muster.library import MusterError


class Resume(NamedTuple):
    """Why the function is called: `count` rounds were left in place before, the last one with the error `why`. False before
    the first."""

    count: int = 0
    why: str = ""

    def __bool__(self) -> bool:
        return self.count > 0


def recoverable(function: Callable[..., Any] | None = None, **options: Any) -> Callable[..., Any]:
    """A decorator for the function that trains, function(context, resume, ...). Call it without the first two arguments; it
    makes the Context, with the given options.

    If a worker or a node fails, a call of muster's raises a MusterError here, most often a RoundEnded. Let it pass. This process
    waits for the next round, in which only the missing workers are started, and calls the function again with the same
    `context`, which has another rank, world and store. Make everything that comes from it anew: communicators, reducers,
    checkpointers; and load the state with Checkpointer.load(). Models and data may stay.

    Where no round follows, and for any other exception, this is a plain call of the function.
    """
    if function is None:
        return functools.partial(recoverable, **options)
    return decorated(function, options, Recovery)


class CannotBeKept(Exception):
    """This process cannot enter another round; the text says why."""


class Recovery:
    """What is done around each call of the function: muster.torch has more to do than this one."""

    errors = (MusterError,)  # each may be the end of the round

    def __init__(self, context):
        """Before the call."""

    def finish(self):
        """After the call, however it ended."""

    def may_end_the_round(self, failure):
        """False: one of `errors` that is the program's own."""
        return True

    def patience(self, failure):
        """How long the round's end may be heard of after `failure`, in seconds, apart from what the library waits by itself."""
        return 0

    def leave(self, failure):
        """After finish(), if one of `errors` has ended the call. Leaves nothing of the round behind, or raises CannotBeKept."""


def decorated(function, options, recovery):
    @functools.wraps(function)
    def run(*arguments, **named):
        with Context(**options) as context:
            return _run(context, function, recovery, arguments, named)

    return run


def _run(context, function, make_recovery, arguments, named):
    context._can_rejoin(True)
    resume = Resume()
    while True:
        recovery = make_recovery(context)
        try:
            result = function(context, resume, *arguments, **named)
        except recovery.errors as error:
            if not recovery.may_end_the_round(error):
                raise
            failure = error
        else:
            context._can_rejoin(False)
            return result
        finally:
            recovery.finish()
        _clear_frames(failure)
        why_not = _enter_next_round(context, recovery, failure)
        if why_not is None:
            load_environment()
            sys.modules["muster.section"].round_count += 1
            resume = Resume(resume.count + 1, str(failure))
            del failure
            continue
        if isinstance(why_not, CannotBeKept):
            from muster_torch import tell

            # First the line: the agent ends at once whoever cannot stay.
            tell(f"muster: rank {context.rank} cannot stay in its process: {why_not}; if the job goes on, it is started again")
            context._can_rejoin(False)
        elif why_not.code != "invalid_argument" and failure.__cause__ is None:
            failure.__cause__ = why_not
        raise failure  # with what it followed itself


def _enter_next_round(context, recovery, failure):
    """Returns what is in the way, if anything is."""
    try:
        recovery.leave(failure)
        _rejoin(context, recovery.patience(failure))
    except (CannotBeKept, MusterError) as why_not:
        return why_not
    return None


def _rejoin(context, patience):
    deadline = time.monotonic() + patience
    while True:
        try:
            return context._rejoin()
        except MusterError as error:
            if error.code == "refused":
                break
            # The round has not ended within the library's own wait, a second or more.
            if error.code != "invalid_argument" or time.monotonic() > deadline:
                raise
    gc.collect()  # a cycle may hold something of the round. It takes long where a program has many objects.
    try:
        return context._rejoin()
    except MusterError as again:
        if again.code != "refused":
            raise
        raise CannotBeKept(again) from None


def _clear_frames(error):
    """What the function has made of the round is held by the frames of its error, and of the errors that this one followed."""
    seen, left = set(), [error]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        traceback.clear_frames(one.__traceback__)
        left += [one.__context__, one.__cause__]


def load_environment():
    """os.environ is a copy, which does not hold what the library has set."""
    entries = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
    now, index = {}, 0
    while entries[index] is not None:
        name, equals, value = entries[index].partition(b"=")
        if equals:
            now[os.fsdecode(name)] = os.fsdecode(value)
        index += 1
    for name in [name for name in os.environ if name not in now]:
        del os.environ[name]
    for name, value in now.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
