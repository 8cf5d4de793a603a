"""Context, Communicator and Work: context.h, communicator.h and operation.h have the rules."""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from muster import arrays
from muster.arrays import Array
from muster.library import ContextOptions, Handle, PartsFields, PlaceFields, ask, call, fill, make, milliseconds, text_of
from muster.store import Store

_TRANSPORTS = ("automatic", "shared_memory", "tcp", "hierarchical", "nccl")
REDUCTIONS = ("sum", "avg", "min", "max", "product", "band", "bor", "bxor")


def number_of(value, names, noun):
    """The index of `value` in `names`."""
    if value not in names:
        raise ValueError(f"{noun} is {value!r}; known: {', '.join(names)}")
    return names.index(value)


def _check_alike(left, right, count):
    """Compares two arrays, because the library receives one count and one type for both."""
    if left.type_name != right.type_name or left.count != count:
        raise ValueError(f"one array has {left.count} {left.type_name}, the other {right.count} {right.type_name}: "
                         f"expected {count} {right.type_name} in the first")


def piece_count(kind, input, output, world_size):
    """The elements of one rank's piece in an operation on `arrays.elements()`."""
    if kind in ("reduce_scatter", "reduce_scatter_premul"):
        _check_alike(input, output, output.count * world_size)
    elif kind == "all_gather":
        _check_alike(output, input, input.count * world_size)
        return input.count
    elif kind == "all_to_all":
        _check_alike(input, output, output.count)
        if output.count % world_size:
            raise ValueError(f"{output.count} elements cannot be divided among {world_size} ranks")
        return output.count // world_size
    return output.count


def _address_of(elements):
    return None if elements is None else elements.address


def _part_arrays(what, counts, offsets, available, world_size):
    """Two C arrays: the counts and offsets of the parts of an array of `available` elements."""
    counts = [int(count) for count in counts]
    if offsets is None:
        offsets = [0, *itertools.accumulate(counts)][:len(counts)]
    offsets = [int(offset) for offset in offsets]
    if len(counts) != world_size or len(offsets) != world_size:
        raise ValueError(f"{what}: {len(counts)} counts and {len(offsets)} offsets; one each is needed for {world_size} ranks")
    for count, offset in zip(counts, offsets):
        if count < 0 or offset < 0 or offset + count > available:
            raise ValueError(f"{what}: {count} elements from {offset} on are not within the array's {available}")
    kind = ctypes.c_size_t * world_size
    return kind(*counts), kind(*offsets)


class Place(NamedTuple):
    """The identity of this process."""
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    group_rank: int
    device: int
    round: int
    restart_count: int


class Context:
    """Make one per process. It reads the variables of muster or torchrun and waits for the other ranks. Without a launcher
    the world is one. Timeouts are in seconds.

        with muster.Context() as context:
            context.world.all_reduce(values)
    """

    def __init__(self, meeting_timeout: float | None = None, operation_timeout: float | None = None,
                 transport: str = "automatic") -> None:
        options = ContextOptions(milliseconds(meeting_timeout), milliseconds(operation_timeout),
                                 number_of(transport, _TRANSPORTS, "transport"))
        self._handle = Handle("context", make("context_open", ctypes.byref(options)))
        self.place = self._read_place()

    def _read_place(self) -> Place:
        fields = fill("context_place", PlaceFields, self._handle.value)
        return Place(*(getattr(fields, name) for name in Place._fields))

    def _can_rejoin(self, can):
        call("context_can_rejoin", self._handle.value, 1 if can else 0)

    def _rejoin(self):
        """recover.py: waits for the next round, and renews this object."""
        world = self.__dict__.pop("world", None)
        if world is not None:
            world.close()
        self.__dict__.pop("store", None)
        call("context_rejoin", self._handle.value)
        self.place = self._read_place()

    @property
    def rank(self) -> int:
        return self.place.rank

    @property
    def world_size(self) -> int:
        return self.place.world_size

    @functools.cached_property
    def world(self) -> Communicator:
        """The communicator of all ranks."""
        return Communicator(make("context_world", self._handle.value), self)

    @functools.cached_property
    def store(self) -> Store:
        """The key-value store of the round."""
        return Store(self._handle)

    def close(self) -> None:
        """Operations in progress fail. Also done at the end of the process."""
        if "world" in self.__dict__:
            self.world.close()
        self._handle.release()

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Work:
    """A started operation."""

    def __init__(self, handle: Any, memory: Any) -> None:
        self._handle = Handle("work", handle)
        self._memory = memory  # the operation uses it until it is complete

    def wait(self) -> None:
        """Waits until the operation is complete; raises its error."""
        call("work_wait", self._handle.value)

    @property
    def done(self) -> bool:
        """True after the operation succeeded or failed."""
        return ask("work_done", ctypes.c_int, self._handle.value) == 1

    @property
    def took(self) -> float:
        """The run time in seconds; 0 until it is complete."""
        return ask("work_took", ctypes.c_int64, self._handle.value) / 1e9


class Communicator:
    """Each operation has `timeout` (seconds; None: the context's default) and `wait`. With wait=False it runs in the
    background and returns a Work; do not touch its arrays until it is complete. `type` is the element type of an array whose
    format is ambiguous, such as type="bf16" for an array of unsigned shorts."""

    def __init__(self, handle: Any, context: Context) -> None:
        self._handle = Handle("communicator", handle)
        self._context = context
        self._started = set()

    @property
    def rank(self) -> int:
        return ask("communicator_rank", ctypes.c_int, self._handle.value)

    @property
    def size(self) -> int:
        return ask("communicator_size", ctypes.c_int, self._handle.value)

    @property
    def transport(self) -> str:
        """One of "shared memory", "tcp", "hierarchical", "nccl", "alone"."""
        return text_of("communicator_transport", self._handle.value)

    def all_reduce(self, data: Array, op: str = "sum", *, type: str | None = None, timeout: float | None = None,
                   wait: bool = True) -> Any:
        """In place: every rank's array is replaced by the same result."""
        return self._on_one("all_reduce", data, type, number_of(op, REDUCTIONS, "op"), timeout=timeout, wait=wait)

    def all_reduce_weighted(self, data: Array, weight: float, *, type: str | None = None, timeout: float | None = None,
                            wait: bool = True) -> Any:
        """An average in which this rank has weight `weight`."""
        return self._on_one("all_reduce_weighted", data, type, weight, timeout=timeout, wait=wait)

    def all_reduce_premul(self, data: Array, factor: float, *, type: str | None = None, timeout: float | None = None,
                          wait: bool = True) -> Any:
        """In place: the sum over all ranks of `factor` times the rank's array. Each rank may have another factor."""
        return self._on_one("all_reduce_premul", data, type, factor, timeout=timeout, wait=wait)

    def reduce_scatter(self, input: Array, output: Array, op: str = "sum", *, type: str | None = None,
                       timeout: float | None = None, wait: bool = True) -> Any:
        """`input` has one piece per rank; `output` receives this rank's piece of the result."""
        return self._on_pieces("reduce_scatter", input, output, type, number_of(op, REDUCTIONS, "op"), timeout=timeout, wait=wait)

    def reduce_scatter_premul(self, input: Array, output: Array, factor: float, *, type: str | None = None,
                              timeout: float | None = None, wait: bool = True) -> Any:
        """The same of sums to which this rank's `input` comes multiplied by `factor`."""
        return self._on_pieces("reduce_scatter_premul", input, output, type, factor, timeout=timeout, wait=wait)

    def all_gather(self, input: Array, output: Array, *, type: str | None = None, timeout: float | None = None,
                   wait: bool = True) -> Any:
        """`output` receives all ranks' inputs, in rank order."""
        return self._on_pieces("all_gather", input, output, type, timeout=timeout, wait=wait)

    def broadcast(self, data: Array, root: int, *, type: str | None = None, timeout: float | None = None,
                  wait: bool = True) -> Any:
        """Copies the root's elements to every rank."""
        return self._on_one("broadcast", data, type, root, timeout=timeout, wait=wait)

    def all_to_all(self, input: Array, output: Array, *, type: str | None = None, timeout: float | None = None,
                   wait: bool = True) -> Any:
        """Both have one piece per rank: piece r of `input` goes to rank r, piece r of `output` comes from rank r."""
        return self._on_pieces("all_to_all", input, output, type, timeout=timeout, wait=wait)

    def gather(self, input: Array, output: Array | None, root: int, *, type: str | None = None, timeout: float | None = None,
               wait: bool = True) -> Any:
        """The root's `output` receives all ranks' inputs, in rank order. Other ranks may pass None for it."""
        return self._to_root("gather", input, output, root, type, pieces=self.size, timeout=timeout, wait=wait)

    def scatter(self, input: Array | None, output: Array, root: int, *, type: str | None = None, timeout: float | None = None,
                wait: bool = True) -> Any:
        """Piece r of the root's `input` goes to rank r's `output`. Other ranks may pass None for `input`."""
        taken = arrays.elements(output, type)
        given = self._at_root(input, root, type, written=False)
        if given is not None:
            _check_alike(given, taken, taken.count * self.size)
        return self._run("scatter", _address_of(given), taken.address, taken.count, taken.type, root,
                         timeout=timeout, wait=wait, memory=(given, taken))

    def reduce(self, input: Array, output: Array | None, root: int, op: str = "sum", *, type: str | None = None,
               timeout: float | None = None, wait: bool = True) -> Any:
        """The root's `output`, which may be its `input`, receives the reduction of all ranks' inputs. Other ranks may pass
        None for it."""
        return self._to_root("reduce", input, output, root, type, number_of(op, REDUCTIONS, "op"), timeout=timeout, wait=wait)

    def reduce_premul(self, input: Array, output: Array | None, root: int, factor: float, *, type: str | None = None,
                      timeout: float | None = None, wait: bool = True) -> Any:
        """The same of a sum to which this rank's `input` comes multiplied by `factor`."""
        return self._to_root("reduce_premul", input, output, root, type, factor, timeout=timeout, wait=wait)

    def all_to_all_uneven(self, input: Array, output: Array, sent: Sequence[int], expected: Sequence[int], *,
                          sent_offsets: Sequence[int] | None = None, expected_offsets: Sequence[int] | None = None,
                          type: str | None = None, timeout: float | None = None, wait: bool = True) -> Any:
        """An all_to_all of pieces of any size: `sent` elements to each rank, `expected` elements from each. The offsets are
        in elements; None: the pieces lie one behind the other. Ranks that contradict each other are told both numbers."""
        given, taken = arrays.elements(input, type, written=False), arrays.elements(output, type)
        _check_alike(given, taken, given.count)
        fields = PartsFields(*_part_arrays("sent", sent, sent_offsets, given.count, self.size),
                             *_part_arrays("expected", expected, expected_offsets, taken.count, self.size))
        return self._run("all_to_all_uneven", given.address, taken.address, given.type, ctypes.byref(fields),
                         timeout=timeout, wait=wait, memory=(given, taken))

    def send(self, data: Array, peer: int, *, type: str | None = None, timeout: float | None = None, wait: bool = True) -> Any:
        """Sends to `peer`, which must receive as many elements of the same type."""
        return self._on_one("send", data, type, peer, timeout=timeout, wait=wait, written=False)

    def receive(self, data: Array, peer: int, *, type: str | None = None, timeout: float | None = None, wait: bool = True) -> Any:
        """Receives from `peer` into `data`."""
        return self._on_one("receive", data, type, peer, timeout=timeout, wait=wait)

    def barrier(self, *, timeout: float | None = None, wait: bool = True) -> Any:
        """Returns when all ranks have entered it."""
        return self._run("barrier", timeout=timeout, wait=wait, memory=None)

    def batch_statistics(self, mean: Array, variance: Array, count: int) -> int:
        """Synchronised batch normalisation, in the forward pass: replaces this rank's statistics of `count` values per
        channel (f32 arrays; the variance is divided by the count) by those of all ranks' values. Returns the number of
        these. Use a separate communicator: split(0)."""
        means, variances = self._channels(mean, variance)
        total = ctypes.c_uint64(count)
        call("batch_statistics", self._handle.value, means.address, variances.address, means.count, ctypes.byref(total))
        return total.value

    def batch_gradients(self, sum_gradient: Array, sum_product: Array) -> None:
        """The same in the backward pass: replaces both arrays by their sums over all ranks, per channel: output gradient, and
        output gradient times (input - mean)."""
        gradients, products = self._channels(sum_gradient, sum_product)
        call("batch_gradients", self._handle.value, gradients.address, products.address, gradients.count)

    def split(self, color: int, key: int = 0) -> Any:
        """Makes a group of the ranks with the same color, ordered by key, then by rank. None for a negative color."""
        handle = make("communicator_split", self._handle.value, color, key)
        return None if handle is None else Communicator(handle, self._context)

    def allocate(self, shape: int | Sequence[int], type: str = "f32", like: Array | None = None) -> Array:
        """Allocates zeroed memory that collectives use in place; call it on all ranks. Returns an array like `like`, else a
        memoryview. It lives as long as the array."""
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if like is not None:
            type = arrays.elements(like, written=False).type_name
        count = functools.reduce(lambda left, right: left * right, shape, 1)
        handle = Handle("memory", make("allocate", self._handle.value, count * arrays.size_of(type)))
        address = ctypes.c_void_p()
        call("memory_data", handle.value, ctypes.byref(address), None)
        return arrays.view_of(address.value, type, shape, handle, like)

    def abort(self, why: str) -> None:
        """Ends it on all ranks, with the message `why`. Any thread may call it."""
        call("communicator_abort", self._handle.value, str(why).encode())

    def check(self) -> None:
        """Raises the first failure, if there was one."""
        call("communicator_status", self._handle.value)

    def close(self) -> None:
        self._handle.release()

    def _on_one(self, name, data, type, *arguments, written=True, **how):
        """An operation on one array."""
        own = arrays.elements(data, type, written=written)
        return self._run(name, own.address, own.count, own.type, *arguments, memory=own, **how)

    def _on_pieces(self, name, input, output, type, *arguments, **how):
        """An operation in which every rank has an input and an output."""
        given, taken = arrays.elements(input, type, written=False), arrays.elements(output, type)
        count = piece_count(name, given, taken, self.size)
        return self._run(name, given.address, taken.address, count, taken.type, *arguments, memory=(given, taken), **how)

    def _to_root(self, name, input, output, root, type, *arguments, pieces=1, **how):
        """An operation with an output of `pieces` times the input, which only the root needs."""
        given = arrays.elements(input, type, written=False)
        taken = self._at_root(output, root, type, written=True)
        if taken is not None:
            _check_alike(taken, given, given.count * pieces)
        return self._run(name, given.address, _address_of(taken), given.count, given.type, *arguments, root,
                         memory=(given, taken), **how)

    def _run(self, name, *arguments, timeout, wait, memory):
        limit = milliseconds(timeout)
        if wait:
            call(name, self._handle.value, *arguments, limit, None)
            return None
        work = Work(make(name, self._handle.value, *arguments, limit), memory)
        # A Work may be dropped, but its memory must stay valid until it is complete. Other threads may come here meanwhile.
        self._started.add(work)
        self._started.difference_update([earlier for earlier in list(self._started) if earlier.done])
        return work

    def _at_root(self, thing, root, type, written):
        """The memory that only the root needs."""
        return arrays.elements(thing, type, written=written) if self.rank == root else None

    def _channels(self, one, other):
        pair = arrays.elements(one), arrays.elements(other)
        _check_alike(*pair, pair[1].count)
        if pair[0].type_name != "f32":
            raise TypeError(f"arrays of {pair[0].type_name}; statistics must be f32")
        return pair
