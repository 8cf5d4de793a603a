"""LossScaler: loss_scaler.h has the rules."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from muster.library import Handle, LossScaleFields, LossScalerOptions, ask, call, fill, make
from muster.reducer import GradientReducer


class LossScaler:
    """Keeps the gradients of f16 training in f16's range, with the rules of torch.amp.GradScaler.

    Multiply the loss by `scale`. After the reducer's finish(), step the optimizer if unscale() returns True. Then call
    update(). state_dict() has the names of torch's GradScaler, whose state can be loaded, too.
    """

    def __init__(self, initial_scale: float = 65536.0, growth_factor: float = 2.0, backoff_factor: float = 0.5,
                 growth_interval: int = 2000) -> None:
        factors = {"growth_factor": growth_factor, "backoff_factor": backoff_factor, "growth_interval": growth_interval}
        for name, value in (("initial_scale", initial_scale), *factors.items()):
            if not value:
                raise ValueError(f"{name} is {value!r}; it is a number > 0")  # 0 stands for the default in C
        options = LossScalerOptions(initial_scale, **factors)
        self._factors = factors
        self._handle = Handle("loss_scaler", make("loss_scaler_make", ctypes.byref(options)))

    def _state(self):
        return fill("loss_scaler_state", LossScaleFields, self._handle.value)

    @property
    def scale(self) -> float:
        """The factor for the loss of the next backward pass."""
        return self._state().scale

    def unscale(self, reducer: GradientReducer) -> bool:
        """Divides all averages by the scale. False, on all ranks, if one of them is infinite or NaN: skip the step."""
        return bool(ask("loss_scaler_unscale", ctypes.c_int, self._handle.value, reducer._handle.value))

    def update(self) -> None:
        """Ends the step: adapts the scale."""
        call("loss_scaler_update", self._handle.value)

    def state_dict(self) -> dict[str, Any]:
        fields = self._state()
        return {"scale": fields.scale, **self._factors, "_growth_tracker": fields.growth_tracker}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        fresh = LossScaler(state["scale"], **{name: state[name] for name in self._factors})
        fields = LossScaleFields(state["scale"], state["_growth_tracker"])
        call("loss_scaler_restore", fresh._handle.value, ctypes.byref(fields))
        self._factors, self._handle = fresh._factors, fresh._handle
