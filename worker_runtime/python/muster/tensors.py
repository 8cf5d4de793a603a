"""The memory of tensors and arrays, as checkpoints read and fill it.

A checkpoint knows contiguous memory of the host. What is already that is used where it lies; anything else (on a GPU, a
transposed view) goes by way of a copy. numpy and torch are found in sys.modules: who has an object of theirs has
imported them.
"""

from __future__ import annotations

import array
import ctypes
import importlib
import math
import sys
from collections.abc import Sequence

from muster.arrays import NAMES, SIZES, TYPES, Array, Memory, is_a, shaped, type_of_format

_BUFFERS = (array.array, bytearray, memoryview, ctypes.Array)


class Shard:
    """This rank's part of a tensor of `shape`: elements begin, begin + 1, ... of it in row-major order, as many as
    `array` has. The parts of all ranks must make up the whole, once."""

    def __init__(self, array: Array, shape: Sequence[int], begin: Sequence[int]) -> None:
        self.array = array
        self.shape = tuple(shape)
        self.begin = begin


def kind_of(thing):
    """"torch", "numpy" or "array": the kind of array to restore; None if it is not a tensor."""
    if isinstance(thing, Shard):
        return kind_of(thing.array)
    if is_a(thing, "torch", "Tensor"):
        return "torch"
    if is_a(thing, "numpy", "ndarray"):
        return "numpy"
    return "array" if isinstance(thing, _BUFFERS) else None


def memory_of(thing, name, read, filled):
    """The memory of a tensor, to be `read`, `filled`, or both. TypeError: a kind of tensor that a checkpoint cannot hold;
    ValueError: one that cannot be filled."""
    kind = kind_of(thing)
    if kind == "array":
        return _of_buffer(thing, name, filled)
    return (_of_torch if kind == "torch" else _of_numpy)(thing, name, read, filled)


def _number(type_name, name, what):
    if type_name not in NAMES:
        raise TypeError(f"{name}: {what} of {type_name}; a checkpoint holds {', '.join(NAMES)}")
    return NAMES.index(type_name)


def _of_torch(tensor, name, read, filled):
    torch = sys.modules["torch"]
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.device.type == "meta":
        raise TypeError(f"{name}: a tensor that is sparse, quantized or without memory (meta)")
    if hasattr(tensor, "_local_tensor"):
        raise TypeError(f"{name}: a DTensor; pass muster.Shard(tensor.to_local(), shape, begin)")
    number = _number(str(tensor.dtype).removeprefix("torch."), name, "a tensor")
    own = tensor.detach()
    if own.device.type == "cpu" and own.is_contiguous() and not own.is_neg():
        return Memory(own.data_ptr(), number, own.shape, own)
    if filled and any(size > 1 and stride == 0 for size, stride in zip(own.shape, own.stride())):
        raise ValueError(f"{name}: an expanded tensor, whose elements share memory, cannot be filled")
    host = own.cpu().resolve_neg().contiguous() if read else torch.empty(own.shape, dtype=own.dtype)
    return Memory(host.data_ptr(), number, own.shape, host, lambda: own.copy_(host))


def _of_numpy(given, name, read, filled):
    numpy = sys.modules["numpy"]
    if isinstance(given, numpy.ma.MaskedArray):
        raise TypeError(f"{name}: a masked array; pass its data and its mask")
    if not given.dtype.isnative:
        raise TypeError(f"{name}: an array with the opposite byte order")
    number = _number(given.dtype.name, name, "an array")
    if filled and not given.flags.writeable:
        raise ValueError(f"{name}: the array is read-only, and cannot be filled")
    if given.flags.c_contiguous:
        return Memory(given.ctypes.data, number, given.shape, given)
    host = numpy.array(given, order="C") if read else numpy.empty(given.shape, given.dtype)
    return Memory(host.ctypes.data, number, given.shape, host, lambda: numpy.copyto(given, host))


def _of_buffer(given, name, filled):
    view = memoryview(given)
    type = type_of_format(view)
    if type is None:
        raise TypeError(f"{name}: elements of format '{view.format}', which a checkpoint does not support")
    number = TYPES.index(type)
    if filled and (view.readonly or not view.c_contiguous):
        raise ValueError(f"{name}: the array is read-only or not contiguous, and cannot be filled")
    if not view.c_contiguous or view.readonly:
        memory = bytearray(view.tobytes())
        return Memory(_address_of(memory), number, view.shape, memory)
    if view.nbytes == 0:
        return Memory(None, number, view.shape, view)
    pinned = (ctypes.c_char * view.nbytes).from_buffer(view)
    return Memory(ctypes.addressof(pinned), number, view.shape, pinned)


def _address_of(memory):
    return ctypes.addressof((ctypes.c_char * len(memory)).from_buffer(memory)) if memory else None


def fresh(number, shape):
    """Memory for a tensor that does not exist yet; as_tensor() makes it one."""
    block = bytearray(math.prod(shape) * SIZES[number])
    return Memory(_address_of(block), number, shape, block)


def as_tensor(memory, kind):
    """Fresh memory as a tensor of that kind. Without ml_dtypes, numpy returns the bits of bfloat16 and 8-bit floats as
    unsigned numbers."""
    if kind == "torch":
        torch = importlib.import_module("torch")
        dtype = getattr(torch, NAMES[memory.type])
        if memory.count == 0:
            return torch.empty(memory.shape, dtype=dtype)
        return torch.frombuffer(memory.keep, dtype=dtype).reshape(memory.shape)
    if kind == "numpy":
        numpy = importlib.import_module("numpy")
        return numpy.frombuffer(memory.keep, _numpy_type(numpy, memory.type)).reshape(memory.shape)
    return shaped(memoryview(memory.keep), memory.type, memory.shape)


def _numpy_type(numpy, number):
    if TYPES[number] not in ("bf16", "f8_e4m3", "f8_e5m2"):
        return numpy.dtype(NAMES[number])
    try:
        return numpy.dtype(getattr(importlib.import_module("ml_dtypes"), NAMES[number]))
    except ImportError:
        return numpy.dtype(f"uint{8 * SIZES[number]}")
