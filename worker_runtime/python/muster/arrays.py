"""Converts between Python's arrays and the library's (address, count, type).

Returned arrays are of the caller's kind: a torch tensor for a torch tensor, a numpy array for a numpy array, else a
memoryview. Both packages are taken from sys.modules, because a caller that passes such an array has imported them.
"""

import ctypes
import math
import sys
from typing import Any

# An object with the buffer protocol, or a torch tensor: neither has a type that could be named without importing it.
Array = Any

# By the library's number (tensor_type.h). Collectives take all but bool and the 8-bit floats.
TYPES = ("f32", "f64", "f16", "bf16", "i32", "i64", "u8", "bool", "i8", "u16", "i16", "u32", "u64", "f8_e4m3", "f8_e5m2")
SIZES = (4, 8, 2, 2, 4, 8, 1, 1, 1, 2, 2, 4, 8, 1, 1)
NAMES = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "bool", "int8", "uint16", "int16",
         "uint32", "uint64", "float8_e4m3fn", "float8_e5m2")  # numpy's and torch's
CODES = "fdHHiqB?bHhIQBB"  # a memoryview's; it has no small floats that it can index
_COLLECTIVE = {type: number for number, type in enumerate(TYPES) if type not in ("bool", "f8_e4m3", "f8_e5m2")}
_OF_TORCH = {NAMES[number]: type for type, number in _COLLECTIVE.items()}


def size_of(type):
    """Bytes of one element."""
    if type not in _COLLECTIVE:
        raise ValueError(f"type is {type!r}; known: {', '.join(_COLLECTIVE)}")
    return SIZES[_COLLECTIVE[type]]


class Memory:
    """Host memory for one tensor: contiguous elements of TYPES[type]. `keep` must live as long as the address is used;
    after a load, put_back() takes them to where they belong."""

    def __init__(self, address, type, shape, keep, put_back=None):
        self.address = address
        self.type = type
        self.shape = tuple(shape)
        self.keep = keep
        self.put_back = put_back or (lambda: None)

    @property
    def count(self):
        return math.prod(self.shape)

    @property
    def type_name(self):
        return TYPES[self.type]


def is_a(thing, module, name):
    """False, too, if the program has not imported the module."""
    imported = sys.modules.get(module)
    return imported is not None and isinstance(thing, getattr(imported, name))


def _of_tensor(tensor):
    type_name = _OF_TORCH.get(str(tensor.dtype).removeprefix("torch."))
    if type_name is None:
        raise TypeError(f"a tensor of {tensor.dtype}; known: {', '.join(_OF_TORCH)}")
    if tensor.device.type != "cpu":
        raise TypeError(f"a tensor on {tensor.device}; this module supports host memory only: use tensor.cpu()")
    if not tensor.is_contiguous():
        raise ValueError("the tensor is not contiguous; use tensor.contiguous()")
    return Memory(tensor.data_ptr(), _COLLECTIVE[type_name], tensor.shape, tensor)


def type_of_format(view):
    """The type of a memoryview's elements; None if the library has none."""
    code = view.format.lstrip("@=<")
    if code in tuple("bhilqnBHILQN"):
        return ("i" if code.islower() else "u") + str(8 * view.itemsize)
    return {"f": "f32", "d": "f64", "e": "f16", "c": "u8", "?": "bool"}.get(code)


def _collective_type(view):
    type = type_of_format(view)
    if type == "u16":
        raise TypeError("elements of format 'H' may be u16, or the bits of bf16 or f16; pass `type`")
    if type not in _COLLECTIVE:
        raise TypeError(f"elements of format '{view.format}' are none of {', '.join(_COLLECTIVE)}; pass `type`")
    return type


def elements(thing, type=None, written=True):
    """The memory of `thing`; `type` ("bf16") if its own format is ambiguous. Unless `written`, it may be read-only and is
    copied then."""
    if is_a(thing, "torch", "Tensor"):
        return _of_tensor(thing)
    view = memoryview(thing)
    if not view.c_contiguous:
        raise ValueError("the array is not contiguous")
    if view.readonly and written:
        raise TypeError("the array is read-only, but the result must be written to it")
    type_name = type or _collective_type(view)
    size = size_of(type_name)
    if view.nbytes % size:
        raise ValueError(f"{view.nbytes} bytes are not a whole number of {type_name} elements")
    number, shape = _COLLECTIVE[type_name], view.shape if view.itemsize == size else (view.nbytes // size,)
    if view.nbytes == 0:
        return Memory(None, number, shape, view)
    memory = bytearray(view.tobytes()) if view.readonly else view
    pinned = (ctypes.c_char * view.nbytes).from_buffer(memory)
    return Memory(ctypes.addressof(pinned), number, shape, pinned)


def view_of(address, type_name, shape, owner, like=None):
    """The library's memory as an array like `like`. The array keeps `owner`, and so the memory, alive."""
    size = math.prod(shape) * size_of(type_name)
    memory = (ctypes.c_ubyte * size).from_address(address) if size else (ctypes.c_ubyte * 0)()
    memory.owner = owner
    if is_a(like, "torch", "Tensor"):
        torch = sys.modules["torch"]
        if size == 0:
            return torch.empty(shape, dtype=like.dtype)
        return torch.frombuffer(memory, dtype=like.dtype).reshape(shape)
    if is_a(like, "numpy", "ndarray"):
        name = "uint16" if type_name == "bf16" else NAMES[_COLLECTIVE[type_name]]
        return sys.modules["numpy"].frombuffer(memory, name).reshape(shape)
    return shaped(memoryview(memory).cast("B"), _COLLECTIVE[type_name], shape)


def shaped(flat, number, shape):
    """The bytes as elements of type `number`. A memoryview casts neither nothing nor a scalar to a shape."""
    return flat.cast(CODES[number], shape) if flat.nbytes and shape else flat.cast(CODES[number])
