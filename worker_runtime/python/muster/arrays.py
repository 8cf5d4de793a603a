"""Converts between Python's arrays and the library's (address, count, type).

Returned arrays are of the caller's kind: a torch tensor for a torch tensor, a numpy array for a numpy array, else a
memoryview. Both packages are taken from sys.modules, because a caller that passes such an array has imported them.
"""

import ctypes
import sys
from typing import Any

# An object with the buffer protocol, or a torch tensor: neither has a type that could be named without importing it.
Array = Any

# By name: the library's number, the size in bytes, the format that a memoryview shows (it cannot index 16-bit floats),
# and numpy's name.
_TYPES = {"f32": (0, 4, "f", "float32"), "f64": (1, 8, "d", "float64"), "f16": (2, 2, "H", "float16"),
          "bf16": (3, 2, "H", "uint16"), "i32": (4, 4, "i", "int32"), "i64": (5, 8, "q", "int64"),
          "u8": (6, 1, "B", "uint8"), "i8": (8, 1, "b", "int8"), "u16": (9, 2, "H", "uint16"),
          "i16": (10, 2, "h", "int16"), "u32": (11, 4, "I", "uint32"), "u64": (12, 8, "Q", "uint64")}
_OF_TORCH = {name: type for type, (_, _, _, name) in _TYPES.items() if type != "bf16"} | {"bfloat16": "bf16"}


def name_of(number):
    """The type with the library's `number`."""
    return next(name for name, (known, *_) in _TYPES.items() if known == number)


def size_of(type):
    """Bytes of one element."""
    if type not in _TYPES:
        raise ValueError(f"type is {type!r}; known: {', '.join(_TYPES)}")
    return _TYPES[type][1]


class Elements:
    """Contiguous memory of one type. `keep` must live as long as the address is used."""

    def __init__(self, address, count, type_name, shape, keep):
        self.address = address
        self.count = count
        self.type_name = type_name
        self.shape = tuple(shape)
        self.keep = keep

    @property
    def type_number(self):
        return _TYPES[self.type_name][0]


def _is_torch(thing):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(thing, torch.Tensor)


def _is_numpy(thing):
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(thing, numpy.ndarray)


def _of_tensor(tensor):
    type_name = _OF_TORCH.get(str(tensor.dtype).removeprefix("torch."))
    if type_name is None:
        raise TypeError(f"a tensor of {tensor.dtype}; known: {', '.join(_OF_TORCH)}")
    if tensor.device.type != "cpu":
        raise TypeError(f"a tensor on {tensor.device}; this module supports host memory only: use tensor.cpu()")
    if not tensor.is_contiguous():
        raise ValueError("the tensor is not contiguous; use tensor.contiguous()")
    return Elements(tensor.data_ptr(), tensor.numel(), type_name, tensor.shape, tensor)


def _type_of_format(view):
    code = view.format.lstrip("@=<")
    if code in ("f", "d", "e"):
        return {"f": "f32", "d": "f64", "e": "f16"}[code]
    if code == "c":
        return "u8"
    if code == "H":
        raise TypeError("elements of format 'H' may be u16, or the bits of bf16 or f16; pass `type`")
    if code in tuple("bBhilqnILQN"):
        return ("i" if code.islower() else "u") + str(8 * view.itemsize)
    raise TypeError(f"elements of format '{view.format}' are none of {', '.join(_TYPES)}; pass `type`")


def elements(thing, type=None, written=True):
    """The memory of `thing`; `type` ("bf16") if its own format is ambiguous. Unless `written`, it may be read-only and is
    copied then."""
    if _is_torch(thing):
        return _of_tensor(thing)
    view = memoryview(thing)
    if not view.c_contiguous:
        raise ValueError("the array is not contiguous")
    if view.readonly and written:
        raise TypeError("the array is read-only, but the result must be written to it")
    type_name = type or _type_of_format(view)
    size = size_of(type_name)
    if view.nbytes % size:
        raise ValueError(f"{view.nbytes} bytes are not a whole number of {type_name} elements")
    count = view.nbytes // size
    shape = view.shape if view.itemsize == size else (count,)
    if view.nbytes == 0:
        return Elements(None, 0, type_name, shape, view)
    memory = bytearray(view.tobytes()) if view.readonly else view
    pinned = (ctypes.c_char * view.nbytes).from_buffer(memory)
    return Elements(ctypes.addressof(pinned), count, type_name, shape, pinned)


def view_of(address, type_name, shape, owner, like=None):
    """The library's memory as an array like `like`. The array keeps `owner`, and so the memory, alive."""
    count = 1
    for dimension in shape:
        count *= dimension
    size = count * size_of(type_name)
    memory = (ctypes.c_ubyte * size).from_address(address) if size else (ctypes.c_ubyte * 0)()
    memory.owner = owner
    if _is_torch(like):
        torch = sys.modules["torch"]
        if size == 0:
            return torch.empty(shape, dtype=like.dtype)
        return torch.frombuffer(memory, dtype=like.dtype).reshape(shape)
    if _is_numpy(like):
        return sys.modules["numpy"].frombuffer(memory, _TYPES[type_name][3]).reshape(shape)
    flat = memoryview(memory).cast("B")
    if size == 0 or len(shape) == 0:
        return flat.cast(_TYPES[type_name][2])
    return flat.cast(_TYPES[type_name][2], shape)
