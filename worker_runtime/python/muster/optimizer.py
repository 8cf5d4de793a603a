"""ShardedOptimizer: sharded_optimizer.h has the rules."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Optional

from muster import arrays
from muster.communicator import number_of
from muster.library import Handle, OptimizerRule, PieceFields, ask, call, fill, make
from muster.reducer import GradientReducer

_KINDS = ("sgd", "adam", "adamw")
_SETTINGS = {"sgd": ("momentum", "weight_decay"), "adam": ("beta1", "beta2", "epsilon", "weight_decay"),
             "adamw": ("beta1", "beta2", "epsilon", "weight_decay")}


class OptimizerPiece(NamedTuple):
    """The state that this rank keeps for a range of elements of one parameter. The arrays are f32 memoryviews of the
    optimizer's memory. They may be written; call reload() on all ranks then."""
    parameter: str
    offset: int  # first element in the parameter
    values: memoryview  # the parameter, before rounding to its type
    first: Optional[memoryview]  # momentum, or Adam's first moment
    second: Optional[memoryview]  # Adam's second moment
    updates: memoryview  # one u64: the number of updates of this parameter


class ShardedOptimizer:
    """An optimizer whose state is divided among the ranks (ZeRO-1), over a GradientReducer(..., own_piece=True).

    `kind` is "sgd", "adam" or "adamw", with PyTorch's arithmetic and defaults, except a learning rate of 0.01 for SGD.
    Settings: momentum, weight_decay; beta1, beta2, epsilon, weight_decay.
    """

    def __init__(self, reducer: GradientReducer, kind: str, *, learning_rate: float | None = None, **settings: Any) -> None:
        rule = fill("optimizer_defaults", OptimizerRule, number_of(kind, _KINDS, "kind"))
        if learning_rate is not None:
            rule.learning_rate = learning_rate
        for name, value in settings.items():
            if name not in _SETTINGS[kind]:
                raise TypeError(f"{kind} has no setting {name!r}; known: {', '.join(_SETTINGS[kind])}")
            setattr(rule, name, value)
        self._reducer = reducer
        self._handle = Handle("optimizer", make("optimizer_make", reducer._handle.value, ctypes.byref(rule)))

    def step(self) -> None:
        """A collective, after the reducer's finish(): updates all parameters on all ranks."""
        call("optimizer_step", self._handle.value)

    def set_learning_rate(self, learning_rate: float) -> None:
        call("optimizer_set_learning_rate", self._handle.value, learning_rate)

    @property
    def pieces(self) -> list[OptimizerPiece]:
        """For checkpoints: the pieces of all ranks cover each parameter exactly once."""
        return [self._piece(index) for index in range(ask("optimizer_piece_count", ctypes.c_size_t, self._handle.value))]

    def reload(self) -> None:
        """A collective, after pieces were written: sets the parameters on all ranks from the pieces."""
        call("optimizer_reload", self._handle.value)

    def _piece(self, index):
        fields = fill("optimizer_get_piece", PieceFields, self._handle.value, index)

        def shown(address):
            return arrays.view_of(address, "f32", (fields.count,), self._handle) if address else None

        count = ctypes.c_uint64.from_address(ctypes.addressof(fields.updates.contents))
        count.owner = self._handle
        return OptimizerPiece(self._reducer.names[fields.parameter], fields.offset, shown(fields.values),
                              shown(fields.first), shown(fields.second), memoryview(count).cast("B").cast("Q"))
