"""Checkpointer: checkpoint.h has the rules, PYTHON.md has examples."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Optional

from muster import nested, tensors
from muster.arrays import Array
from muster.communicator import Context, number_of
from muster.library import (PLACE, CheckpointerOptions, CheckpointStateFields, Handle, MusterError, SaveReportFields,
                            TensorFields, ValueFields, ask, call, called_back, make, text_of)

_SOURCES = ("shared", "memory", "local", "survivor")
_TREE = "muster.state"  # the value that holds everything except tensors (nested.py)


class SaveReport(NamedTuple):
    """The result of one save."""
    step: int
    persisted: bool
    path: Optional[str]  # the checkpoint's folder if it was persisted
    trouble: Optional[str]  # the reason if it was not
    bytes: int  # size of this rank's share
    blocked: float  # seconds that save() blocked training on this rank
    persist: float  # seconds from then until all ranks' parts were on disk


class Loaded(NamedTuple):
    """The content and source of a loaded checkpoint."""
    step: int
    state: dict[str, Any]
    values: dict[str, str]
    rank_value: str  # "" on a rank that was not in the saved world
    path: str  # the checkpoint's folder; empty unless `source` is "shared"
    skipped: list[str]  # newer checkpoints that were not used, each with the reason
    source: str  # "shared": the shared directory; "memory": the agents' memory; "local": the hosts' local disks;
    # "survivor": the memory of a rank that survived a failure
    rank_bytes: bytes  # b"" in a world of another size


def _busy(when_busy):
    return 0 if when_busy is None else 1 + number_of(when_busy, ("skip", "wait"), "when_busy")


def _debugs():
    return sys.flags.dev_mode or os.environ.get("TORCH_DISTRIBUTED_DEBUG", "").upper() == "DETAIL"


def _bytes(text, what):
    if not isinstance(text, str):
        raise TypeError(f"{what} is a {type(text).__name__}; it must be a string")
    if "\0" in text:
        raise ValueError(f"{what} contains a zero byte: {text!r}")
    return text.encode()


_clean_steps = weakref.WeakSet()
_can_be_clean = True
_TORN = -2  # CleanStep::torn


class CleanStep:
    """Of which step the state in this process's memory is. Make one beside the model, outside of the function that is called
    again after a failure (muster.recoverable), load before anything else changes the state (DistributedDataParallel copies rank
    0's weights to all), change the state inside `with clean.to(step):` only, and give it to
    Checkpointer.load() or load_state(). A process that leaves the block by an exception has a state of no step."""

    def __init__(self) -> None:
        self.step = -1  # it never had one; -2: it had one, and has none now
        _clean_steps.add(self)

    @contextlib.contextmanager
    def to(self, step: int) -> Iterator[None]:
        self._begin()
        yield
        self.step = step if _can_be_clean else _TORN

    def _begin(self):
        if self.step >= 0:
            self.step = _TORN


def none_is_clean():
    """Something may have changed any state."""
    for clean in list(_clean_steps):
        clean._begin()


def _give_up_clean_if(values, rank_value, rank_bytes):
    """A program that saves texts or bytes beside the state needs them back, and no survivor could give them to the others."""
    global _can_be_clean
    if values or rank_value or rank_bytes:
        _can_be_clean = False
        none_is_clean()


def _own_part():
    """Keeps the other ranks, too, from a survivor's state: a rank may be clean still that has not saved its first text."""
    return None if _can_be_clean else "-"


class _Fields:
    """The C structure of a state, with all objects that must outlive the call."""

    def __init__(self, found, read, filled, values=None, rank_value=None, rank_bytes=None):
        self.memories = []
        self._keep = []
        fields = (TensorFields * len(found))()
        for field, (name, thing) in zip(fields, found.items()):
            self._tensor(field, name, thing, read, filled)
        pairs = (ValueFields * len(values or {}))()
        for pair, (key, value) in zip(pairs, (values or {}).items()):
            pair.key, pair.value = _bytes(key, "a value's key"), _bytes(value, f"the value of {key!r}")
        rank_text = None if rank_value is None else _bytes(rank_value, "rank_value")
        self.state = CheckpointStateFields(fields, len(fields), pairs, len(pairs), rank_text, rank_bytes, len(rank_bytes or b""))

    def _tensor(self, field, name, thing, read, filled):
        shard = thing if isinstance(thing, tensors.Shard) else None
        memory = tensors.memory_of(shard.array if shard else thing, name, read, filled)
        self.memories.append(memory)
        shape = shard.shape if shard else memory.shape
        dimensions = (ctypes.c_int64 * len(shape))(*shape)
        self._keep.append(dimensions)
        field.name = _bytes(name, "a tensor's name")
        field.shape = ctypes.cast(dimensions, ctypes.POINTER(ctypes.c_int64))
        field.dimension_count = len(shape)
        field.type = memory.type
        field.data = memory.address
        if shard:
            field.placement, field.begin, field.count = 1, shard.begin, memory.count


class Checkpointer:
    """Checkpoints of all ranks together, in one directory that all hosts share (None: MUSTER_CHECKPOINT_DIR, set by
    `muster --checkpoint-dir`). Opening one is a collective, as are save(), load() and load_state(): all ranks call them in
    the same order.

    `state`: a dict of tensors (torch, numpy, or objects with the buffer protocol) and of None, booleans, numbers and strings,
    nested in dicts, lists and tuples as state_dict() returns them; use muster.Shard if a rank has only a part. Any other
    object (sets, bytes, complex or sparse tensors) raises a TypeError that names it.

    keep_last and keep_every (every n-th step): which checkpoints are kept. when_busy: what save() does while the previous
    save is being written, "skip" or "wait". persist_timeout: seconds until all ranks' parts must be on disk.
    copy_to_next_node: snapshots also go to another node, at most at copy_bytes_per_second (0: unlimited). local_directory:
    a directory on a disk of this host, to which each rank's part is written first (None: MUSTER_CHECKPOINT_LOCAL_DIR);
    with shared_every=k every k-th save also goes to `directory`.

    Tensors that are not Shards are saved as rank 0 has them, whatever the other ranks have. verify_replicas: save() and
    snapshot() first compare checksums of these tensors on all ranks; a difference is a MusterError ("invalid_argument")
    that names the tensor and the ranks (None: only in Python's development mode and with TORCH_DISTRIBUTED_DEBUG=DETAIL;
    True on one rank applies to all). spread_replicas: those of 1 MiB and more are divided among the ranks, which write at
    once; use it only if the replicas are equal to the last bit. It must be equal on all ranks.
    """

    def __init__(self, context: Context, directory: Any = None, keep_last: int = 2, keep_every: int = 0, when_busy: str = "skip",
                 persist_timeout: float | None = None, copy_to_next_node: bool = True, copy_bytes_per_second: int = 0,
                 local_directory: Any = None, shared_every: int = 1, spread_replicas: bool = False,
                 verify_replicas: bool | None = None) -> None:
        if keep_last < 1:
            raise ValueError(f"keep_last is {keep_last}; at least 1 must be kept")
        if shared_every < 1:
            raise ValueError(f"shared_every is {shared_every}; it must be at least 1")
        place = _bytes(str(directory), "the directory") if directory is not None else None
        near = _bytes(str(local_directory), "the local directory") if local_directory is not None else None
        options = CheckpointerOptions(place, keep_last, keep_every, _busy(when_busy),
                                      0 if persist_timeout is None else max(1, round(persist_timeout * 1000)),
                                      0 if copy_to_next_node else 1, copy_bytes_per_second, near, shared_every,
                                      1 if spread_replicas else 0,
                                      1 if (_debugs() if verify_replicas is None else verify_replicas) else 0)
        self._handle = Handle("checkpointer", make("checkpointer_open", context._handle.value, ctypes.byref(options)))

    def save(self, step: int, state: Mapping[str, Any], values: Mapping[str, str] | None = None, rank_value: str | None = None,
             when_busy: str | None = None, rank_bytes: bytes | None = None) -> Any:
        """Copies this rank's share of `state` and returns; a thread writes it, and reports() returns the result. `values`:
        more short texts, by name, equal on all ranks. `rank_value`: a text of this rank (random_state()). `rank_bytes`:
        bytes of this rank (GradientReducer.keep())."""
        fields = self._fields(state, values, rank_value, rank_bytes)
        call("checkpointer_save", self._handle.value, step, ctypes.byref(fields.state),
             _busy(when_busy))

    def snapshot(self, step: int, state: Mapping[str, Any], values: Mapping[str, str] | None = None,
                 rank_value: str | None = None, rank_bytes: bytes | None = None) -> Any:
        """The same without a disk: this node's agent and the next node keep the copy, and the next round loads it after a
        failure. It is cheap enough for every step. Skipped, on all ranks alike, while another one is in progress."""
        fields = self._fields(state, values, rank_value, rank_bytes)
        call("checkpointer_snapshot", self._handle.value, step, ctypes.byref(fields.state))

    def reserve(self, state: Mapping[str, Any], values: Mapping[str, str] | None = None, rank_value: str | None = None,
                rank_bytes: bytes | None = None) -> None:
        """Allocates the memory for copies of such a state before the first save() or snapshot(). MusterError
        ("limit_exceeded"): too little memory."""
        fields = self._fields(state, values, rank_value, rank_bytes)
        call("checkpointer_reserve", self._handle.value, ctypes.byref(fields.state))

    @property
    def copied_step(self) -> int:
        """The newest step for which the next node has a copy of this rank's share; -1: none."""
        return ask("checkpointer_copied_step", ctypes.c_int64, self._handle.value)

    def load(self, state: dict[str, Any], clean: CleanStep | None = None) -> Loaded | None:
        """Fills `state` in place from the newest complete checkpoint: its tensors, and the other values of its dicts and
        lists. Returns None if there is no checkpoint. A checkpoint of other tensors is a MusterError
        ("invalid_argument") that names the first one that differs.

        `clean`: the CleanStep of `state`. If it is clean on any rank, the ranks of the highest step keep their memory, and give
        it to the others; no step is lost. Then checksums of all tensors are compared. If they differ, or a rank has Shards, all
        ranks load as without `clean`, and `skipped` says why. A survivor cannot pass on `values`, rank_value and rank_bytes: leave
        `clean` out if they are needed. Once a process has reserved, saved or loaded one of them, all ranks load as without
        `clean`. MusterError ("not_found"): survivors have a state, or had one, and there is nothing to load. Afterwards
        `clean` has the loaded step."""
        if clean is None:
            _, found = nested.pack(state)
            fields = _Fields(found, False, True)
            step = ask("checkpointer_load", ctypes.c_int64, self._handle.value, ctypes.byref(fields.state))
        else:
            fields, found = self._own(state, clean.step >= 0, True)  # a survivor gives its state to the others
            step = self._load_clean(fields, clean, PLACE())
        if step < 0:
            return None
        for memory in fields.memories:
            memory.put_back()
        tree, values = self._texts()
        return self._loaded(step, state if tree is None else nested.update(state, tree, found), values, clean)

    def load_state(self, like: Array | None = None, own: Mapping[str, Any] | None = None,
                   clean: CleanStep | None = None) -> Loaded | None:
        """Returns the newest complete checkpoint as a new state, for load_state_dict(): every rank gets all of every tensor,
        in host memory. None if there is no checkpoint. Tensors are of the saved kind, or of the kind `like`: "torch",
        "numpy" or "array" (memoryviews).

        `own` and `clean`: this process's state and its CleanStep, as in load(). A rank whose state is kept gets `own` itself.
        Take another one over inside `with clean.to(loaded.step):`."""
        kind = like and ("torch", "numpy", "array")[number_of(like, ("torch", "numpy", "array"), "like")]
        fresh = {}

        def place(fields, count):
            fresh.clear()  # the checkpoint tried before may be damaged
            for field in fields[:count]:
                memory = tensors.fresh(field.type, field.shape[:field.dimension_count])
                fresh[field.name.decode()] = memory
            for index, memory in enumerate(fresh.values()):
                fields[index].data = memory.address

        with called_back(PLACE, place) as callback:
            if clean is None:
                step = ask("checkpointer_load_as_saved", ctypes.c_int64, self._handle.value, callback, None)
            else:
                fields = self._own(own, True, False)[0] if clean.step >= 0 else _Fields({}, False, False, rank_value=_own_part())
                step = self._load_clean(fields, clean, callback)
        if step < 0:
            return None
        tree, values = self._texts()
        if clean is not None and clean.step >= 0:
            return self._loaded(step, own, values, clean)
        if tree is None:  # saved by a program in another language
            state = {name: tensors.as_tensor(memory, kind or "array") for name, memory in fresh.items()}
        else:
            state = nested.unpack(tree, lambda name, saved: tensors.as_tensor(fresh[name], kind or saved))
        return self._loaded(step, state, values, clean)

    def _own(self, state, read, filled):
        """The fields of a whole state with its texts, and its tensors."""
        tree, found = nested.pack(state)
        return _Fields(found, read, filled, {_TREE: json.dumps(tree, separators=(",", ":"))}, _own_part()), found

    def _load_clean(self, fields, clean, place):
        clean_step = ctypes.c_int64(clean.step)
        try:
            return ask("checkpointer_load_clean", ctypes.c_int64, self._handle.value, ctypes.byref(fields.state),
                       ctypes.byref(clean_step), place, None)
        finally:
            # After an error, too: a state that was not touched when another rank failed is still clean.
            clean.step = clean_step.value if _can_be_clean or clean_step.value < 0 else _TORN

    def finish(self) -> None:
        """Waits until the save in progress has ended. MusterError: the newest save is not on disk; the text gives the reason."""
        call("checkpointer_finish", self._handle.value)

    def reports(self) -> list[SaveReport]:
        """The saves that have ended since the last call."""
        told = []
        for index in range(ask("checkpointer_take_reports", ctypes.c_size_t, self._handle.value)):
            fields = SaveReportFields()
            text = text_of("checkpointer_report", self._handle.value, index, ctypes.byref(fields))
            path, trouble = (text, None) if fields.persisted else (None, text)
            told.append(SaveReport(fields.step, bool(fields.persisted), path, trouble, fields.bytes,
                                   fields.blocked_ms / 1000, fields.persist_ms / 1000))
        return told

    def close(self) -> None:
        """Waits for the save in progress. Also done at the end of the process."""
        self._handle.release()

    @staticmethod
    def _fields(state, values, rank_value, rank_bytes):
        tree, found = nested.pack(state)
        texts = dict(values or {})
        if _TREE in texts:
            raise ValueError(f"the value name {_TREE!r} is reserved for the checkpointer")
        texts[_TREE] = json.dumps(tree, separators=(",", ":"))
        if rank_bytes is not None and not isinstance(rank_bytes, bytes):
            raise TypeError(f"rank_bytes is a {type(rank_bytes).__name__}; it must be bytes")
        fields = _Fields(found, True, False, texts, rank_value, rank_bytes)
        _give_up_clean_if(values, rank_value, rank_bytes)
        return fields

    def _texts(self):
        """(tree or None, the other values) of the last load."""
        values = {}
        while True:
            try:
                key = text_of("checkpointer_loaded_key", self._handle.value, len(values))
            except MusterError as end:
                if end.code != "not_found":
                    raise
                break
            values[key] = text_of("checkpointer_loaded_value", self._handle.value, key.encode())
        tree = values.pop(_TREE, None)
        return None if tree is None else json.loads(tree), values

    def _loaded(self, step, state, values, clean):
        skipped = text_of("checkpointer_loaded_skipped", self._handle.value)
        loaded = Loaded(step, state, values, text_of("checkpointer_loaded_rank_value", self._handle.value),
                        text_of("checkpointer_loaded_path", self._handle.value), skipped.splitlines(),
                        _SOURCES[ask("checkpointer_loaded_from", ctypes.c_int, self._handle.value)],
                        self._rank_bytes())
        if clean is not None:
            _give_up_clean_if(loaded.values, loaded.rank_value, loaded.rank_bytes)
        return loaded

    def _rank_bytes(self):
        address = ctypes.c_void_p()
        size = ask("checkpointer_loaded_rank_bytes", ctypes.c_size_t, self._handle.value, ctypes.byref(address))
        return ctypes.string_at(address, size)
