"""GradientReducer: see gradient_reducer.h for what it promises."""

import contextlib
import ctypes
from typing import NamedTuple, Optional

from muster import arrays
from muster.communicator import number_of
from muster.exchange import Calls
from muster.library import (APPLY, BaselineFields, Handle, MusterError, ParameterFields, ReducerOptions, ScalingFields,
                            ReducerStateFields, StepCostFields, ask, call, make, text_of)

_WIRES = ("same", "bf16", "f16", "int8", "power")
_ORDERS = ("observed", "registered")


class ReducerState(NamedTuple):
    """What a reducer remembers from step to step."""
    plan: str  # equal on all ranks: one of the checkpoint's `values`
    own: bytes  # this rank's: the checkpoint's `rank_bytes`; empty where the wire holds nothing back


class StepCost(NamedTuple):
    """One step on this rank, in seconds: total = compute + data_wait + exposed."""
    total: float
    compute: float
    data_wait: float
    exposed: float  # the training thread stood still for communication
    communication: float  # collectives in progress, hidden behind compute or not
    bytes: int
    samples: float  # of all ranks


class ScalingReport(NamedTuple):
    """Efficiencies against a baseline; None where the runs cannot be compared."""
    strong: Optional[float]
    weak: Optional[float]
    estimated: float
    samples_per_second: float
    step_count: int
    text: str  # for people; says what to try


def _parameter_fields(named):
    """(fields, what must live during the call) of (name, elements) pairs."""
    fields = (ParameterFields * len(named))()
    keep = []
    for field, (name, own) in zip(fields, named):
        shape = (ctypes.c_int64 * len(own.shape))(*own.shape)
        keep.append(shape)
        field.name = name.encode()
        field.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
        field.dimension_count = len(own.shape)
        field.type = own.type_number
        field.data = own.address
    return fields, keep


class GradientReducer:
    """Averages gradients over the ranks while the backward pass goes on.

    `parameters`: (name, array) pairs or a dict of them, in the order of the forward pass; equal on all ranks. Rank 0's
    values go to all. Their gradients live in the reducer: write them where gradient() says. Parameters are named, or
    counted from 0. `exchange`: a muster.Exchange in place of `wire`. `own_piece`: each rank gets the averages of its piece
    only, for a ShardedOptimizer. `types` says what an array holds where its format does not: {"weight": "bf16"}.
    """

    def __init__(self, communicator, parameters, *, types=None, bucket_cap_mb=25, first_bucket_mb=1, last_bucket_mb=1,
                 wire="same", power_rank=2, power_start_step=10, order="observed", uneven_inputs=False,
                 finite_check=False, own_piece=False, exchange=None):
        self._communicator = communicator
        try:
            pairs = list(parameters.items() if hasattr(parameters, "items") else parameters)
            self.names = [name for name, _ in pairs]
            self._arrays = [array for _, array in pairs]
            self._elements = [arrays.elements(array, (types or {}).get(name)) for name, array in pairs]
            self._index = {name: index for index, name in enumerate(self.names)}
            cap = -1 if bucket_cap_mb == "auto" else bucket_cap_mb
            self._exchange = None if exchange is None else Calls(exchange, communicator, self._arrays)
            options = ReducerOptions(ctypes.sizeof(ReducerOptions), cap, first_bucket_mb, last_bucket_mb,
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
        self._handle.exchange = self._exchange  # which the library has until the handle is released

    def _hooked(self):
        """Around calls in which the library may call an exchange."""
        return contextlib.nullcontext() if self._exchange is None else self._exchange

    def _refuse(self):
        """Tells the other ranks, which wait in the library, that this one does not come."""
        with contextlib.suppress(MusterError):
            make("reducer_make", self._communicator._handle.value, None, 1, None)

    def begin_step(self, samples=1):
        """A backward pass that ends with averaging; `samples`: how much this rank's gradients count. True where the
        gradients have moved: ask gradient() again, and never use the old arrays."""
        return self._begin("reducer_begin_step", samples)

    def begin_local_step(self):
        """A backward pass without communication (no_sync); gradients accumulate until the next begin_step()."""
        return self._begin("reducer_begin_local_step")

    def gradient(self, parameter):
        """Where the backward pass writes the gradient, and where its average is: an array like the parameter's. Valid
        until begin_step() returns True."""
        index = self._index_of(parameter)
        address = ctypes.c_void_p()
        call("reducer_gradient", self._handle.value, index, ctypes.byref(address), None)
        own = self._elements[index]
        return arrays.view_of(address.value, own.type_name, own.shape, self._handle, self._arrays[index])

    def mark_ready(self, parameter):
        """Its gradient is complete."""
        with self._hooked():
            call("reducer_mark_ready", self._handle.value, self._index_of(parameter))

    def finish(self):
        """Returns when every gradient is the average."""
        with self._hooked():
            call("reducer_finish", self._handle.value)

    def join(self, apply):
        """With uneven_inputs: this rank has no more batches. Calls `apply()` after each step of the others."""
        failures = []

        def guarded(_):
            try:
                apply()
                return 0
            except BaseException as failure:  # nothing may leave through C; it is raised again below
                failures.append(failure)
                return 1

        try:
            with self._hooked():
                call("reducer_join", self._handle.value, APPLY(guarded), None)
        except MusterError:
            if failures:
                raise failures[0] from None
            raise

    def used(self, parameter):
        """Did any rank mark it in the last averaged step? Where not, the optimizer leaves it alone."""
        return ask("reducer_used", ctypes.c_int, self._handle.value, self._index_of(parameter)) == 1

    def zero_gradients(self):
        """For backward passes that add to gradients, as torch's do."""
        call("reducer_zero_gradients", self._handle.value)

    def clip_grad_norm(self, max_norm):
        """After finish(): scales the gradients to that norm at most. Returns the norm before."""
        return ask("reducer_clip_grad_norm", ctypes.c_double, self._handle.value, max_norm)

    @property
    def description(self):
        """"161 parameters, 97.5 MiB in 6 buckets (cap 25 MiB), wire bf16, shared memory"."""
        return text_of("reducer_description", self._handle.value)

    def keep(self):
        """Between steps that average: a ReducerState, with which a training that goes on has the bits of one that never
        stopped."""
        fields = ReducerStateFields(ctypes.sizeof(ReducerStateFields))
        with self._hooked():
            call("reducer_keep", self._handle.value, ctypes.byref(fields))
        return ReducerState((fields.plan or b"").decode(), ctypes.string_at(fields.own, fields.own_size))

    def restore(self, plan, own=b""):
        """A collective, right after it was made: goes on from there. An empty plan does nothing; `own` is empty in a world of
        another size. Ask gradient() again, and never use the old arrays."""
        state = ReducerStateFields(ctypes.sizeof(ReducerStateFields), plan.encode(),
                                   ctypes.cast(ctypes.c_char_p(own), ctypes.c_void_p), len(own))
        with self._hooked():
            call("reducer_restore", self._handle.value, ctypes.byref(state))

    def add_data_wait(self, seconds):
        """The trainer waited so long for its input."""
        call("reducer_add_data_wait", self._handle.value, round(seconds * 1e9))

    @property
    def last_step(self):
        return self._cost("reducer_last_step")

    @property
    def first_step(self):
        """The first of all; start-up is slower."""
        return self._cost("reducer_first_step")

    @property
    def mean_step(self):
        """Of the steps that count: neither the first ones nor those that made new buckets."""
        return self._cost("reducer_mean_step")

    @property
    def lateness(self):
        """For each rank, how many seconds longer the most patient one waited in a step, on average: most for the rank that
        comes last."""
        return [ask("reducer_lateness", ctypes.c_int64, self._handle.value, rank) / 1e9
                for rank in range(self._communicator.size)]

    def scaling_report(self, world_size=None, samples_per_second=0, samples_per_step=0):
        """Compared with the same trainer's run on `world_size` workers, where one is given."""
        baseline = None
        if world_size is not None:
            baseline = ctypes.byref(BaselineFields(ctypes.sizeof(BaselineFields), world_size, samples_per_second,
                                                   samples_per_step))
        scaling = ScalingFields(ctypes.sizeof(ScalingFields))
        text = text_of("reducer_scaling_report", self._handle.value, baseline, ctypes.byref(scaling))
        return ScalingReport(scaling.strong or None, scaling.weak or None, scaling.estimated,
                             scaling.samples_per_second, scaling.step_count, text)

    def _cost(self, name):
        fields = StepCostFields(ctypes.sizeof(StepCostFields))
        call(name, self._handle.value, ctypes.byref(fields))
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
