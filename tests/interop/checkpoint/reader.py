"""Reads a checkpoint without anything of ours: struct, json and numpy."""
import json
import struct

import numpy

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
          "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?"}


def array(dtype, shape, data):
    values = numpy.frombuffer(data, DTYPES[dtype]).reshape(shape)
    return (values.astype("<u4") << 16).view("<f4") if dtype == "BF16" else values


def read_file(path):
    """({name: array}, metadata) of one safetensors file."""
    data = path.read_bytes()
    end = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:end])
    metadata = header.pop("__metadata__", {})
    return {name: array(entry["dtype"], entry["shape"], data[end + entry["data_offsets"][0]:end + entry["data_offsets"][1]])
            for name, entry in header.items()}, metadata


def read_checkpoint(folder):
    """({name: array}, manifest), put together from the files of all ranks."""
    manifest = json.loads((folder / "manifest.json").read_text())
    files = [(folder / file["name"]).read_bytes() for file in manifest["files"]]
    tensors = {}
    for tensor in manifest["tensors"]:
        size = numpy.dtype(DTYPES[tensor["dtype"]]).itemsize
        data = b"".join(files[piece["file"]][piece["offset"]:piece["offset"] + piece["count"] * size]
                        for piece in tensor["pieces"])
        tensors[tensor["name"]] = array(tensor["dtype"], tensor["shape"], data)
    return tensors, manifest


def crc32c_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


TABLE = crc32c_table()


def crc32c(data):
    """Castagnoli's, as iSCSI (RFC 3720) has it: eight hexadecimal digits."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return f"{crc ^ 0xFFFFFFFF:08x}"
