"""`muster --torch-steps`: each step of PyTorch's optimizer is reported as muster.progress() does, without a line in the
script. PYTORCH.md has the rules."""

import multiprocessing
import os
import sys
import weakref

import torch
from muster.library import call_void
from muster_torch import tell_no_steps
from torch.optim.optimizer import register_optimizer_step_post_hook

_UNNUMBERED = -2**63  # progress_reporter.cpp: the number in the training is unknown, so a restart does not show what is lost
_OTHER_MAX = 100  # steps of one other optimizer without any of the counted one, which nothing but a name may keep
_section = sys.modules["muster.section"]  # the package has a function of this name


def report():
    if multiprocessing.parent_process() is not None:  # its parent is the worker
        return
    register_optimizer_step_post_hook(_StepReporter().after_step)


class _StepReporter:
    """Of all optimizers the first one that steps counts, and another one only when it is gone or steps no more."""

    def __init__(self):
        self._process = os.getpid()  # a forked child reports nothing
        self._has_failed = False
        self._begin()

    def _begin(self):
        self._round = _section.round_count
        self._optimizer = lambda: None
        self._step = self._base = 0
        self._other_counts = weakref.WeakKeyDictionary()  # where each parameter has one, there are hundreds
        self._state_step = None

    def after_step(self, optimizer, *_):
        if self._has_failed:
            return
        try:
            if os.getpid() == self._process and not _section.is_progress_called:
                self._note(optimizer)
        except Exception as error:  # noqa: BLE001
            self._has_failed = True
            tell_no_steps(error)

    after_step._torchdynamo_disable = True  # a compiled step calls it, and does not look into it

    def _note(self, optimizer):
        if self._round != _section.round_count:
            self._begin()
        counted = self._optimizer()
        if counted is not None and counted is not optimizer:
            count = self._other_counts[optimizer] = self._other_counts.get(optimizer, 0) + 1
            if count < _OTHER_MAX:
                return
            counted = None
        if self._other_counts:
            self._other_counts = weakref.WeakKeyDictionary()
        # PyTorch's distributed checkpoints make an optimizer's state by a step that changes nothing, and then load it.
        if all(_number(group.get("lr")) == 0 for group in optimizer.param_groups):
            return
        before, self._state_step = self._state_step, _step_of(next(iter(optimizer.state.values()), {}))
        is_first = self._step == 0
        if is_first:
            self._base = _UNNUMBERED if self._state_step is None else 0
        if self._state_step is not None and (is_first or self._was_loaded(before) and counted is optimizer):
            # That of a parameter which was frozen on the way is behind.
            self._step = max(step for state in optimizer.state.values() if (step := _step_of(state)) is not None)
        else:
            self._step += 1
        if counted is None:
            self._optimizer = weakref.ref(optimizer)
        call_void("progress", self._base + self._step)

    def _was_loaded(self, before):
        """A parameter may take no part in a step, but none takes part twice."""
        return before is not None and self._state_step not in (before, before + 1)


def _step_of(state):
    """The number of steps in a parameter's state, which checkpoints have, too. None: the optimizer counts none, as SGD."""
    step = _number(state.get("step"))
    return None if step is None else int(step)


def _number(value):
    """None for one whose reading would wait for a GPU or for other ranks."""
    if type(value) is torch.Tensor:
        return value.item() if value.device.type == "cpu" else None
    return value if isinstance(value, (int, float)) else None
