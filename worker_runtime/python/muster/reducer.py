"""GradientReducer: gradient_reducer.h has the rules."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Mapping
from typing import NamedTuple, Optional

from muster import arrays
from muster.arrays import Array
from muster.communicator import Communicator, number_of
from muster.exchange import Calls, Exchange
from muster.library import (APPLY, BaselineFields, Handle, MusterError, ParameterFields, ReducerOptions, ScalingFields,
                            ReducerStateFields, StepCostFields, ask, call, called_back, fill, make, text_of)

_WIRES = ("same", "bf16", "f16", "int8", "power")
_ORDERS = ("observed", "registered")


class ReducerState(NamedTuple):
    """The state that a reducer keeps from step to step."""
    plan: str  # equal on all ranks: save it in the checkpoint's `values`
    own: bytes  # this rank's residuals: save them as `rank_bytes`; empty if the wire has none


class StepCost(NamedTuple):
    """One step on this rank, in seconds: total = compute + data_wait + exposed."""
    total: float
    compute: float
    data_wait: float
    exposed: float  # the training thread waited for communication
    communication: float  # collectives were in progress, hidden behind compute or not
    bytes: int
    samples: float  # samples of all ranks


class ScalingReport(NamedTuple):
    """Efficiencies against a baseline; None if the runs are not comparable."""
    strong: Optional[float]
    weak: Optional[float]
    estimated: float
    samples_per_second: float
    step_count: int
    text: str  # a readable report with advice


def _parameter_fields(named):
    """The C array of (name, elements) pairs, with all objects that must outlive the call."""
    fields = (ParameterFields * len(named))()
    keep = []
    for field, (name, own) in zip(fields, named):
        shape = (ctypes.c_int64 * len(own.shape))(*own.shape)
        keep.append(shape)
        field.name = name.encode()
        field.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
        field.dimension_count = len(own.shape)
        field.type = own.type
        field.data = own.address
    return fields, keep


class GradientReducer:
    """Averages gradients over the ranks during the backward pass.

    `parameters`: (name, array) pairs or a dict of them, in the order of the forward pass; equal on all ranks. Rank 0's
    values are copied to all ranks. The gradients live in the reducer: write them to the arrays of gradient(). Refer to a
    parameter by name or by number from 0. `exchange`: a muster.Exchange instead of `wire`. `own_piece`: each rank gets the
    averages of its own piece, for a ShardedOptimizer. `types`: the element types of arrays whose format is ambiguous, such
    as {"weight": "bf16"}.
    """

    def __init__(self, communicator: Communicator, parameters: Mapping[str, Array], *, types: Mapping[str, str] | None = None,
                 bucket_cap_mb: float = 25, first_bucket_mb: float = 1, last_bucket_mb: float = 1, wire: str = "same",
                 power_rank: int = 2, power_start_step: int = 10, order: str = "observed", uneven_inputs: bool = False,
                 finite_check: bool = False, own_piece: bool = False, exchange: Exchange | None = None) -> None:
        self._communicator = communicator
        try:
            pairs = list(parameters.items() if hasattr(parameters, "items") else parameters)
            self.names = [name for name, _ in pairs]
            self._arrays = [array for _, array in pairs]
            self._elements = [arrays.elements(array, (types or {}).get(name)) for name, array in pairs]
            self._index = {name: index for index, name in enumerate(self.names)}
            cap = -1 if bucket_cap_mb == "auto" else bucket_cap_mb
            self._exchange = None if exchange is None else Calls(exchange, communicator, self._arrays)
            options = ReducerOptions(cap, first_bucket_mb, last_bucket_mb,
                                     number_of(wire, _WIRES, "wire"), power_rank, power_start_step,
                                     number_of(order, _ORDERS, "order"), bool(uneven_inputs), bool(finite_check),
                                     0, bool(own_piece),
                                     ctypes.pointer(self._exchange.fields) if self._exchange else None)
            fields, _keep = _parameter_fields(list(zip(self.names, self._elements)))
        except Exception:
            self._refuse()
            raise
        with self._hooked():
            self._handle = Handle("reducer", make("reducer_make", communicator._handle.value, fields, len(fields),
                                                  ctypes.byref(options)))
        self._handle.exchange = self._exchange  # the library uses it until the handle is released

    def _hooked(self):
        """A context manager for calls in which the library may call an exchange."""
        return contextlib.nullcontext() if self._exchange is None else self._exchange

    def _refuse(self):
        """Tells the other ranks, which wait in the library, that this one fails."""
        with contextlib.suppress(MusterError):
            make("reducer_make", self._communicator._handle.value, None, 1, None)

    def begin_step(self, samples: float = 1) -> bool:
        """Begins a step that ends with averaging. `samples` is the weight of this rank's gradients. Returns True if the
        gradients have moved: call gradient() again, and never use the old arrays."""
        return self._begin("reducer_begin_step", samples)

    def begin_local_step(self) -> bool:
        """Begins a step without communication (no_sync); gradients accumulate until the next begin_step()."""
        return self._begin("reducer_begin_local_step")

    def gradient(self, parameter: str) -> Array:
        """An array like the parameter's: the backward pass writes the gradient there, and after finish() it has the average.
        Valid until begin_step() returns True."""
        index = self._index_of(parameter)
        address = ctypes.c_void_p()
        call("reducer_gradient", self._handle.value, index, ctypes.byref(address), None)
        own = self._elements[index]
        return arrays.view_of(address.value, own.type_name, own.shape, self._handle, self._arrays[index])

    def mark_ready(self, parameter: str) -> None:
        """Marks the gradient as complete."""
        with self._hooked():
            call("reducer_mark_ready", self._handle.value, self._index_of(parameter))

    def finish(self) -> None:
        """Returns when every gradient is the average."""
        with self._hooked():
            call("reducer_finish", self._handle.value)

    def join(self, apply: Callable[[], object]) -> None:
        """With uneven_inputs: this rank has no more batches. Calls `apply()` after each step of the other ranks."""
        with called_back(APPLY, apply) as callback, self._hooked():
            call("reducer_join", self._handle.value, callback, None)

    def used(self, parameter: str) -> bool:
        """True if any rank marked it in the last averaged step. If False, the optimizer should skip the parameter."""
        return ask("reducer_used", ctypes.c_int, self._handle.value, self._index_of(parameter)) == 1

    def zero_gradients(self) -> None:
        """For backward passes that add to gradients instead of overwriting them, as torch's do."""
        call("reducer_zero_gradients", self._handle.value)

    def clip_grad_norm(self, max_norm: float) -> float:
        """After finish(): scales all gradients so that their norm is at most `max_norm`. Returns the norm before."""
        return ask("reducer_clip_grad_norm", ctypes.c_double, self._handle.value, max_norm)

    @property
    def description(self) -> str:
        """A text such as "161 parameters, 97.5 MiB in 6 buckets (cap 25 MiB), wire bf16, shared memory"."""
        return text_of("reducer_description", self._handle.value)

    def keep(self) -> ReducerState:
        """Returns a ReducerState; call it between averaged steps. A run that restores it has the bits of one that never
        stopped."""
        with self._hooked():
            fields = fill("reducer_keep", ReducerStateFields, self._handle.value)
        return ReducerState((fields.plan or b"").decode(), ctypes.string_at(fields.own, fields.own_size))

    def restore(self, plan: str, own: bytes = b"") -> None:
        """A collective, right after the reducer was made: continues from the state. An empty plan does nothing; `own` is empty
        in a world of another size. Call gradient() again, and never use the old arrays."""
        state = ReducerStateFields(plan.encode(), ctypes.cast(ctypes.c_char_p(own), ctypes.c_void_p), len(own))
        with self._hooked():
            call("reducer_restore", self._handle.value, ctypes.byref(state))

    def add_data_wait(self, seconds: float) -> None:
        """Adds a time during which the trainer waited for its input."""
        call("reducer_add_data_wait", self._handle.value, round(seconds * 1e9))

    @property
    def last_step(self) -> StepCost:
        return self._cost("reducer_last_step")

    @property
    def first_step(self) -> StepCost:
        """The first step of the run; start-up is slower."""
        return self._cost("reducer_first_step")

    @property
    def mean_step(self) -> StepCost:
        """The mean of the counted steps, without the first ones and those that made new buckets."""
        return self._cost("reducer_mean_step")

    @property
    def lateness(self) -> list[float]:
        """By rank, in seconds: the longest mean wait of any rank minus that of this rank. It is largest for the rank that
        arrives last."""
        return [ask("reducer_lateness", ctypes.c_int64, self._handle.value, rank) / 1e9
                for rank in range(self._communicator.size)]

    def scaling_report(self, world_size: int | None = None, samples_per_second: float = 0,
                       samples_per_step: float = 0) -> ScalingReport:
        """Compares with a run of the same trainer on `world_size` workers, if one is given."""
        baseline = None
        if world_size is not None:
            baseline = ctypes.byref(BaselineFields(world_size, samples_per_second, samples_per_step))
        scaling = ScalingFields()
        text = text_of("reducer_scaling_report", self._handle.value, baseline, ctypes.byref(scaling))
        return ScalingReport(scaling.strong or None, scaling.weak or None, scaling.estimated,
                             scaling.samples_per_second, scaling.step_count, text)

    def _cost(self, name):
        fields = fill(name, StepCostFields, self._handle.value)
        times = (fields.total_ns, fields.compute_ns, fields.data_wait_ns, fields.exposed_ns, fields.communication_ns)
        return StepCost(*(time / 1e9 for time in times), fields.bytes, fields.samples)

    def _begin(self, name, *arguments):
        with self._hooked():
            return ask(name, ctypes.c_int, self._handle.value, *arguments) == 1

    def _index_of(self, parameter):
        if isinstance(parameter, str):
            if parameter not in self._index:
                raise KeyError(f"there is no parameter {parameter!r}")
            return self._index[parameter]
        return parameter
