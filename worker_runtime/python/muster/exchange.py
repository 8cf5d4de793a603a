"""Your own exchanges (hooks), instead of a wire: bucket_exchange.h has the rules."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import weakref
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, Optional

from muster import arrays
from muster.arrays import Array
from muster.communicator import REDUCTIONS, number_of, piece_count
from muster.library import ADVANCE, COLLECTIVE_COUNT, KEEP, PREPARE, RESTORE, ExchangeFields, MusterError

_OK, _INTERNAL = 0, 15
_END = object()  # of average()
_KINDS = (None, "all_reduce", "all_reduce_weighted", "reduce_scatter", "all_gather", "broadcast", "all_to_all")


class BucketSlice(NamedTuple):
    """The place of a parameter's gradient in its bucket, in elements."""
    parameter: int
    offset: int
    count: int


class Bucket(NamedTuple):
    """Gradients that travel together. Do not use it after the exchange is complete."""
    index: int
    count: int  # number of elements
    slices: tuple[BucketSlice, ...]
    # Not in prepare():
    gradients: Any  # a flat array like the parameters; the padding between slices is zero
    samples: Optional[float]  # this rank's weight in the average; 0 if it has no samples: keep residuals unchanged then
    step: Optional[int]


class Collective:
    """A collective for an exchange to yield: an operation of Communicator with the same arguments, run in its turn."""

    def __init__(self, kind: Any, input: Array | None = None, output: Array | None = None, op: str = "sum", root: int = 0,
                 weight: float = 0.0) -> None:
        self._kind = kind
        self._input = input
        self._output = output
        self._reduce = number_of(op, REDUCTIONS, "op")
        self._root = root
        self._weight = weight

    @classmethod
    def all_reduce(cls, data: Array, op: str = "sum", *, type: str | None = None) -> Collective:
        return cls("all_reduce", output=arrays.elements(data, type), op=op)

    @classmethod
    def all_reduce_weighted(cls, data: Array, weight: float, *, type: str | None = None) -> Collective:
        return cls("all_reduce_weighted", output=arrays.elements(data, type), weight=weight)

    @classmethod
    def reduce_scatter(cls, input: Array, output: Array, op: str = "sum", *, type: str | None = None) -> Collective:
        return cls("reduce_scatter", arrays.elements(input, type, written=False), arrays.elements(output, type), op)

    @classmethod
    def all_gather(cls, input: Array, output: Array, *, type: str | None = None) -> Collective:
        return cls("all_gather", arrays.elements(input, type, written=False), arrays.elements(output, type))

    @classmethod
    def broadcast(cls, data: Array, root: int, *, type: str | None = None) -> Collective:
        return cls("broadcast", output=arrays.elements(data, type), root=root)

    @classmethod
    def all_to_all(cls, input: Array, output: Array, *, type: str | None = None) -> Collective:
        return cls("all_to_all", arrays.elements(input, type, written=False), arrays.elements(output, type))

    def tell(self, fields: Any, world_size: int) -> None:
        """Fills in the library's structure."""
        fields.collective = _KINDS.index(self._kind)
        fields.type = self._output.type
        fields.input = self._input and self._input.address
        fields.output = self._output.address
        fields.count = piece_count(self._kind, self._input, self._output, world_size)
        fields.reduce = self._reduce
        fields.root = self._root
        fields.weight = self._weight


class Exchange:
    """Turns a bucket's gradients into the average. Derive a class whose average() yields the collectives:

        class Halves(muster.Exchange):
            name = "halves"

            def average(self, bucket):
                half = bucket.gradients.astype("f2")                        # numpy; f16 on the wire
                yield muster.Collective.all_reduce_weighted(half, bucket.samples)
                bucket.gradients[:] = half

    The name and the collectives must be equal on all ranks. An exception ends the communicator, so that all ranks see the
    failure; if the communicator serves more than training, give the reducer its own (split()). Do not call the reducer."""

    name: Optional[str] = None  # the name with all settings

    def average(self, bucket: Bucket) -> Generator[Collective, None, None]:
        """Yields Collectives; resumes when each is complete, while other buckets are in progress. At the end the bucket holds the average."""
        raise NotImplementedError

    def collective_count(self, bucket: Bucket) -> int:
        """The number of Collectives that average() yields, 0 to 64."""
        return 1

    def prepare(self, buckets: Sequence[Bucket]) -> None:
        """Called at the start, and whenever the buckets were made again. Allocate memory here (allocate(), with the same calls
        on all ranks). Keep state by parameter, because buckets change."""

    def keep(self) -> bytes:
        """For checkpoints: returns this rank's state as bytes."""
        return b""

    def restore(self, kept: bytes) -> bool:
        """Takes the bytes of keep(). Returns False if their size is wrong."""
        return not kept


class Calls:
    """An Exchange for the library. Use `with` around calls of the library: it raises again what an exchange raised in them."""

    def __init__(self, exchange, communicator, parameters):
        if not isinstance(exchange, Exchange) or not isinstance(exchange.name, str):
            raise TypeError("`exchange` must be a muster.Exchange with a name")
        if communicator.transport == "nccl":
            raise TypeError("a Python exchange supports host memory only; on GPUs write it in C or C++")
        self._exchange = exchange
        self._communicator = communicator
        self._world_size = communicator.size
        self._parameters = parameters  # arrays
        self._passes = {}  # by bucket: average(), and the collective that it waits for
        self._raised = threading.local()  # the library calls back in the calling thread
        self._kept = b""
        # No reference cycle, so that the parameters are freed with the reducer.
        own = weakref.ref(self)

        def called(name, failed, tells=False):
            return lambda _, *arguments: own()._call(name, failed, tells, arguments)

        self.fields = ExchangeFields(exchange.name.encode(), None,
                                     ADVANCE(called("_advance", _INTERNAL, tells=True)),
                                     COLLECTIVE_COUNT(called("_collective_count", -1, tells=True)),
                                     PREPARE(called("_prepare", _INTERNAL, tells=True)),
                                     KEEP(called("_keep", 0)),
                                     RESTORE(called("_restore", 0)))

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        failure = getattr(self._raised, "failure", None)
        self._raised.failure = None
        if failure is not None and (error is None or isinstance(error, MusterError)):
            raise failure from None

    def _call(self, name, failed, tells, arguments):
        """No exception may pass through C. The other ranks receive the reason where they wait for this one."""
        try:
            return getattr(self, name)(*arguments)
        except BaseException as failure:
            self._raised.failure = getattr(self._raised, "failure", None) or failure
            if tells:
                with contextlib.suppress(MusterError):
                    self._communicator.abort(f"exchange {self._exchange.name}: {type(failure).__name__}: {failure}")
            return failed

    def _bucket(self, fields):
        slices = tuple(BucketSlice(one.parameter, one.offset, one.count) for one in fields.slices[:fields.slice_count])
        like = self._parameters[slices[0].parameter] if slices else None
        gradients = arrays.view_of(fields.gradients, arrays.TYPES[fields.type], (fields.count,), self, like)
        return Bucket(fields.index, fields.count, slices, gradients, fields.samples, fields.step)

    def _prepare(self, buckets, count):
        self._passes.clear()
        known = (self._bucket(one.contents) for one in buckets[:count])
        self._exchange.prepare([bucket._replace(gradients=None, samples=None, step=None) for bucket in known])
        return _OK

    def _collective_count(self, bucket):
        return ctypes.c_int(self._exchange.collective_count(self._bucket(bucket.contents))).value

    def _advance(self, bucket, stage, following):
        index = bucket.contents.index
        if stage == 0:
            self._passes[index] = [iter(self._exchange.average(self._bucket(bucket.contents))), None]
        going = self._passes[index]
        going[1] = next(going[0], _END)
        if going[1] is _END:
            del self._passes[index]
        elif isinstance(going[1], Collective):
            going[1].tell(following.contents, self._world_size)
        else:
            raise TypeError(f"average() of exchange {self._exchange.name} must yield muster.Collective, not {going[1]!r}")
        return _OK

    def _keep(self, to):
        if to is None:
            self._kept = memoryview(self._exchange.keep()).tobytes()
            return len(self._kept)
        kept, self._kept = self._kept, b""
        ctypes.memmove(to, kept, len(kept))
        return len(kept)

    def _restore(self, kept, size):
        return 0 if self._exchange.restore(ctypes.string_at(kept, size)) is False else 1
