"""DistributedSampler and ElasticSampler: distributed_sampler.h and elastic_sampler.h have the rules.

Both work with torch's DataLoader and without it: torch is not imported.
"""

from __future__ import annotations

import array
import collections
import ctypes
import json
import operator
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sized
from typing import Any

from muster.communicator import number_of
from muster.library import (DistributedSamplerOptions, ElasticSamplerOptions, Handle, SampleStepFields, ask, call, fill,
                            make, text_of)

_ORDERS = ("torch", "computed", "sequential")
_DEALS = ("strided", "contiguous")
_TAILS = ("short_batch", "pad", "drop")


def _whole(value, name, most=2**63 - 1, least=-2**63):
    """Checks the range, because ctypes would truncate the value."""
    number = operator.index(value)
    if not least <= number <= most:
        raise ValueError(f"{name} is {number}; it must be {least} to {most}")
    return number


def _unsigned(value, name):
    """A seed as torch takes it: a negative one modulo 2^64."""
    return _whole(value, name, 2**64 - 1) % 2**64


def _count(dataset):
    return _whole(dataset if hasattr(dataset, "__index__") else len(dataset), "the number of samples")


def _torch_group():
    """(world, rank) of torch.distributed, if the program uses it."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_world_size(), distributed.get_rank()


def _place(num_replicas, rank):
    """(world, rank): the arguments, else torch's process group, else the launcher's variables, else (1, 0)."""
    found = _torch_group() or (int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0)))
    world = found[0] if num_replicas is None else _whole(num_replicas, "num_replicas", 2**31 - 1, 1)
    return world, _whole(found[1] if rank is None else rank, "rank", 2**31 - 1, -2**31)


class DistributedSampler:
    """Replaces torch.utils.data.DistributedSampler, with the same indices. `dataset`: any object with a length, or the
    length. `num_replicas` and `rank`: default is torch's process group, else the launcher's variables."""

    def __init__(self, dataset: Sized | int, num_replicas: int | None = None, rank: int | None = None, shuffle: bool = True,
                 seed: int = 0, drop_last: bool = False) -> None:
        self.dataset = dataset
        self.num_replicas, self.rank = _place(num_replicas, rank)
        self.epoch = 0
        self.seed = seed
        self.shuffle = bool(shuffle)
        self.drop_last = bool(drop_last)
        options = DistributedSamplerOptions(
            _count(dataset), self.num_replicas, self.rank, _unsigned(seed, "seed"), int(not self.shuffle), int(self.drop_last))
        self._handle = Handle("distributed_sampler", make("distributed_sampler_make", ctypes.byref(options)))
        self.num_samples = ask("distributed_sampler_size", ctypes.c_uint64, self._handle.value)
        self.total_size = self.num_samples * self.num_replicas

    def __len__(self) -> int:
        """The number of indices of one pass on this rank."""
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        """Begins a pass. Logs a warning if it is the second one and set_epoch() was never called."""
        indices = (ctypes.c_int64 * self.num_samples)()
        call("distributed_sampler_indices", self._handle.value, indices, self.num_samples, None)
        return iter(array.array("q", bytes(indices)))

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the next pass; without it every pass has the same order."""
        self.epoch = epoch
        call("distributed_sampler_set_epoch", self._handle.value, _unsigned(epoch, "epoch"))

    @property
    def order_repeated(self) -> bool:
        """True after a second pass began in the order of the first, without set_epoch()."""
        return ask("distributed_sampler_order_repeated", ctypes.c_int, self._handle.value) == 1


class ElasticSampler:
    """The samples of each step, for runs whose world changes and that continue after a stop. Also a `batch_sampler` for
    torch's DataLoader.

        for epoch in range(sampler.epoch, 90):
            for indices in sampler:              # this rank's part of a step; all ranks take the same number of steps
                ... train ...
                sampler.commit()                 # on all ranks, after the optimizer's step

    Iteration runs from the cursor to the end of its epoch. Steps that were returned but not committed are returned again in
    the next pass. `batch_size` counts all ranks together. order: "torch", "computed" or "sequential"; deal: "strided" or
    "contiguous"; tail: "short_batch", "pad" or "drop".
    """

    def __init__(self, dataset: Sized | int, batch_size: int, *, num_replicas: int | None = None, rank: int | None = None,
                 seed: int = 0, order: str = "torch", deal: str = "strided", tail: str = "short_batch") -> None:
        self.num_replicas, self.rank = _place(num_replicas, rank)
        options = ElasticSamplerOptions(
            _count(dataset), _whole(batch_size, "batch_size"), _unsigned(seed, "seed"), number_of(order, _ORDERS, "order"),
            number_of(deal, _DEALS, "deal"), number_of(tail, _TAILS, "tail"))
        self._handle = Handle("elastic_sampler", make("elastic_sampler_make", ctypes.byref(options)))
        self._given_out = collections.deque()  # steps that wait for their commit
        self._pass = 0
        self._forgotten = False

    @property
    def epoch(self) -> int:
        return self.state_dict()["epoch"]

    @property
    def cursor(self) -> int:
        """The number of committed samples of the epoch."""
        return self.state_dict()["cursor"]

    @property
    def batch_size(self) -> int:
        return self.state_dict()["batch_size"]

    def __len__(self) -> int:
        """The number of steps from the cursor to the end of its epoch."""
        return ask("elastic_sampler_steps_left", ctypes.c_uint64, self._handle.value)

    def __iter__(self) -> Iterator[list[int]]:
        """This rank's indices, step by step; a list is empty if a step has fewer samples than ranks."""
        if self._forgotten:
            warnings.warn("a pass over the data ended without any commit(), so this one takes the same samples: call "
                          "commit() after each step", RuntimeWarning, stacklevel=2)
        self._pass += 1
        self._given_out.clear()
        return self._steps(self._pass)

    def _steps(self, number):
        step = self._step("next")
        epoch, committed_before = step.epoch, (self.epoch, self.cursor)
        while step.epoch == epoch:
            if number != self._pass:
                raise RuntimeError("the sampler was restarted or its state was loaded; start a new iteration")
            self._given_out.append(step)
            yield self._indices(step)
            step = self._step("after", ctypes.byref(step))
        self._forgotten = (self.epoch, self.cursor) == committed_before

    def commit(self) -> None:
        """Commits the oldest step that was returned: its samples count as seen. Call it on all ranks."""
        if not self._given_out:
            raise RuntimeError("commit() without a returned step; iterate over the sampler first")
        call("elastic_sampler_commit", self._handle.value, ctypes.byref(self._given_out[0]))
        self._given_out.popleft()
        self._forgotten = False

    def set_batch_size(self, batch_size: int) -> None:
        """Sets the batch size of the steps that were not returned yet. Call it on all ranks."""
        call("elastic_sampler_set_batch_size", self._handle.value, _whole(batch_size, "batch_size"))

    def set_place(self, rank: int, num_replicas: int) -> None:
        """Sets another world and rank, from the next step on."""
        self.num_replicas, self.rank = _place(num_replicas, rank)

    def sample_seed(self, index: int, epoch: int | None = None) -> int:
        """The seed of the random numbers of a sample, below 2^64. It depends on the sample and the epoch, not on the rank."""
        epoch = self.epoch if epoch is None else _whole(epoch, "epoch", least=0)
        return ask("elastic_sampler_sample_seed", ctypes.c_uint64, self._handle.value, epoch,
                   _whole(index, "index", least=0))

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint: plain numbers and strings, equal on all ranks."""
        return json.loads(text_of("elastic_sampler_state", self._handle.value))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state, with its batch size. An error names the wrong field, or the data, seed or order that
        differs."""
        call("elastic_sampler_load_state", self._handle.value, json.dumps(state).encode())
        self._pass += 1
        self._given_out.clear()
        self._forgotten = False

    def _step(self, name, *arguments):
        return fill(f"elastic_sampler_{name}", SampleStepFields, self._handle.value, *arguments)

    def _indices(self, step):
        room = step.count // self.num_replicas + 1
        indices = (ctypes.c_int64 * room)()
        count = ctypes.c_size_t()
        call("elastic_sampler_indices", self._handle.value, ctypes.byref(step), self.rank, self.num_replicas, indices,
             room, ctypes.byref(count))
        return indices[:count.value]
