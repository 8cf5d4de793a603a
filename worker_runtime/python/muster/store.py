"""Store: the key-value store that all workers of one context share (store.h)."""

from __future__ import annotations

import ctypes
from typing import Any

from muster.library import MusterError, ask, call, milliseconds


class Store:
    """Values are bytes, at most 8 MiB. Empty at the start of every round. A world of one has its own store, in its process."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def set(self, key: str, value: str | bytes) -> None:
        data = value.encode() if isinstance(value, str) else bytes(value)
        call("store_set", self._handle.value, key.encode(), data, len(data))

    def get(self, key: str, timeout: float | None = None) -> bytes:
        """Waits until the key exists. `timeout` is in seconds; None: 300."""
        needed = ctypes.c_size_t(4096)
        while True:
            room = ctypes.create_string_buffer(max(1, needed.value))
            try:
                call("store_get", self._handle.value, key.encode(), milliseconds(timeout), room, len(room),
                     ctypes.byref(needed))
                return room.raw[:needed.value]
            except MusterError as error:
                if error.code != "limit_exceeded" or needed.value <= len(room):  # not the room: the key is too long
                    raise

    def add(self, key: str, delta: int) -> int:
        """Adds to a number that starts at 0; returns the new value."""
        return ask("store_add", ctypes.c_int64, self._handle.value, key.encode(), delta)

    def erase(self, key: str) -> bool:
        """Deletes the key. Returns True if it existed."""
        return ask("store_erase", ctypes.c_int, self._handle.value, key.encode()) == 1
