"""Exchanges of the trainer's own, in place of a wire (hooks): see bucket_exchange.h for the whole story."""

import contextlib
import ctypes
from typing import Any, NamedTuple

from muster import arrays
from muster.communicator import REDUCTIONS, Communicator, number_of
from muster.library import (ADVANCE, COLLECTIVE_COUNT, KEEP, PREPARE, RESTORE, ExchangeFields, MusterError)

_OK, _INTERNAL = 0, 15
_KINDS = (None, "all_reduce", "all_reduce_weighted", "reduce_scatter", "all_gather", "broadcast", "all_to_all")


class BucketSlice(NamedTuple):
    """Where a parameter's gradient lies in its bucket, in elements."""
    parameter: int
    offset: int
    count: int


class Bucket(NamedTuple):
    """Some gradients that travel together. Valid while they do."""
    index: int
    gradients: Any  # a flat array like the parameters; between slices lies padding, which is zero
    slices: tuple
    samples: float  # this rank's weight in the average
    step: int


class Collective:
    """What an exchange yields: an operation of Communicator's with the same arguments, run when its turn comes."""

    def __init__(self, kind, input=None, output=None, op="sum", root=0, weight=0.0):
        self._kind = kind
        self._input = input
        self._output = output
        self._reduce = number_of(op, REDUCTIONS, "op")
        self._root = root
        self._weight = weight

    @classmethod
    def all_reduce(cls, data, op="sum", *, type=None):
        return cls("all_reduce", output=arrays.elements(data, type), op=op)

    @classmethod
    def all_reduce_weighted(cls, data, weight, *, type=None):
        return cls("all_reduce_weighted", output=arrays.elements(data, type), weight=weight)

    @classmethod
    def reduce_scatter(cls, input, output, op="sum", *, type=None):
        return cls("reduce_scatter", arrays.elements(input, type, written=False), arrays.elements(output, type), op)

    @classmethod
    def all_gather(cls, input, output, *, type=None):
        return cls("all_gather", arrays.elements(input, type, written=False), arrays.elements(output, type))

    @classmethod
    def broadcast(cls, data, root, *, type=None):
        return cls("broadcast", output=arrays.elements(data, type), root=root)

    @classmethod
    def all_to_all(cls, input, output, *, type=None):
        return cls("all_to_all", arrays.elements(input, type, written=False), arrays.elements(output, type))

    def tell(self, fields, communicator):
        """Fills in the library's structure."""
        fields.collective = _KINDS.index(self._kind)
        fields.type = self._output.type_number
        fields.input = self._input and self._input.address
        fields.output = self._output.address
        fields.count = communicator.piece_count(self._kind, self._input, self._output)
        fields.reduce = self._reduce
        fields.root = self._root
        fields.weight = self._weight


class Exchange:
    """How a bucket's gradients become the average. A class of yours says in average() which collectives that takes:

        class Halves(muster.Exchange):
            name = "halves"

            def average(self, bucket):
                half = bucket.gradients.astype("f2")                        # numpy; f16 on the wire
                yield muster.Collective.all_reduce_weighted(half, bucket.samples)
                bucket.gradients[:] = half

    Equal on all ranks: the name, and the collectives. An exception ends the reducer on all ranks."""

    name = None  # with all settings

    def average(self, bucket):
        """Yields Collectives; goes on when each is over, beside other buckets'. At its end the bucket holds the average."""
        raise NotImplementedError

    def collective_count(self, bucket):
        """How many average() yields, at most 64."""
        return 1

    def prepare(self, buckets):
        """New buckets, at the beginning and whenever they were made anew. What is remembered of gradients should be kept
        by parameter, since buckets change."""

    def keep(self):
        """For checkpoints: bytes, what this rank remembers of the gradients."""
        return b""

    def restore(self, kept):
        """Takes back what keep() gave. False: it is of another size."""
        return not kept


class Calls:
    """An Exchange as the library calls it."""

    def __init__(self, exchange, communicator, parameters):
        if not isinstance(exchange, Exchange) or not isinstance(exchange.name, str):
            raise TypeError("`exchange` is a muster.Exchange with a name")
        self._exchange = exchange
        self._communicator = communicator
        self._parameters = parameters  # arrays
        self._passes = {}  # by bucket: average(), and the collective that it waits for
        self._failure = None
        self._kept = b""
        self.fields = ExchangeFields(ctypes.sizeof(ExchangeFields), exchange.name.encode(), None,
                                     ADVANCE(self._guarded(self._advance, _INTERNAL)),
                                     COLLECTIVE_COUNT(self._guarded(self._collective_count, 0)),
                                     PREPARE(self._guarded(self._prepare, _INTERNAL)),
                                     KEEP(self._guarded(self._keep, 0)),
                                     RESTORE(self._guarded(self._restore, 0)))

    @contextlib.contextmanager
    def raised(self):
        """Around calls of the library: what an exchange raised in them is raised again."""
        try:
            yield
        except MusterError:
            self._raise()
            raise
        self._raise()

    def _raise(self):
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure from None

    def _guarded(self, function, failed):
        """Nothing may leave through C."""
        def guarded(_, *arguments):
            try:
                return function(*arguments)
            except BaseException as failure:
                self._failure = self._failure or failure
                return failed
        return guarded

    def _bucket(self, fields):
        slices = tuple(BucketSlice(one.parameter, one.offset, one.count) for one in fields.slices[:fields.slice_count])
        like = self._parameters[slices[0].parameter] if slices else None
        gradients = arrays.view_of(fields.gradients, arrays.TYPES[fields.type], (fields.count,), self, like)
        return Bucket(fields.index, gradients, slices, fields.samples, fields.step)

    def _prepare(self, buckets, count):
        self._passes.clear()
        self._exchange.prepare([self._bucket(fields) for fields in buckets[:count]])
        return _OK

    def _collective_count(self, bucket):
        return self._exchange.collective_count(self._bucket(bucket.contents))

    def _advance(self, bucket, stage, following):
        index = bucket.contents.index
        if stage == 0:
            self._passes[index] = [self._exchange.average(self._bucket(bucket.contents)), None]
        going = self._passes[index]
        going[1] = next(going[0], None)
        if going[1] is None:
            del self._passes[index]
        else:
            going[1].tell(following.contents, self._communicator)
        return _OK

    def _keep(self, to):
        if to is None:
            self._kept = bytes(self._exchange.keep())
        else:
            ctypes.memmove(to, self._kept, len(self._kept))
        return len(self._kept)

    def _restore(self, kept, size):
        return 1 if self._exchange.restore(ctypes.string_at(kept, size)) else 0
