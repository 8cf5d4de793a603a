"""DistributedSampler and ElasticSampler: see distributed_sampler.h and elastic_sampler.h for what each promises.

Both work with torch's DataLoader and without it: torch is not imported.
"""

import array
import collections
import ctypes
import json
import operator
import os
import sys
import warnings

from muster.communicator import number_of
from muster.library import (DistributedSamplerOptions, ElasticSamplerOptions, Handle, SampleStepFields, ask, call, make,
                            text_of)

_ORDERS = ("torch", "computed", "sequential")
_DEALS = ("strided", "contiguous")
_TAILS = ("short_batch", "pad", "drop")


def _whole(value, name, most=2**63 - 1, least=-2**63):
    """ctypes would cut off what does not fit."""
    number = operator.index(value)
    if not least <= number <= most:
        raise ValueError(f"{name} is {number}; it is {least} to {most}")
    return number


def _unsigned(value, name):
    """As torch takes a seed: a negative one is what it is modulo 2^64."""
    return _whole(value, name, 2**64 - 1) % 2**64


def _count(dataset):
    return _whole(dataset if hasattr(dataset, "__index__") else len(dataset), "the number of samples")


def _torch_group():
    """(world, rank) of torch.distributed, where the program uses it."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_world_size(), distributed.get_rank()


def _place(num_replicas, rank):
    """(world, rank): what is given, else torch's process group, else the launcher's variables, else alone."""
    found = _torch_group() or (int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0)))
    world = found[0] if num_replicas is None else _whole(num_replicas, "num_replicas", 2**31 - 1, 1)
    return world, _whole(found[1] if rank is None else rank, "rank", 2**31 - 1, -2**31)


class DistributedSampler:
    """In place of torch.utils.data.DistributedSampler, with the same indices. `dataset`: anything with a length, or the
    length. `num_replicas` and `rank`: by default torch's process group, else the launcher's variables."""

    def __init__(self, dataset, num_replicas=None, rank=None, shuffle=True, seed=0, drop_last=False):
        self.dataset = dataset
        self.num_replicas, self.rank = _place(num_replicas, rank)
        self.epoch = 0
        self.seed = seed
        self.shuffle = bool(shuffle)
        self.drop_last = bool(drop_last)
        options = DistributedSamplerOptions(
            ctypes.sizeof(DistributedSamplerOptions), _count(dataset), self.num_replicas, self.rank,
            _unsigned(seed, "seed"), int(not self.shuffle), int(self.drop_last))
        self._handle = Handle("distributed_sampler", make("distributed_sampler_make", ctypes.byref(options)))
        self.num_samples = ask("distributed_sampler_size", ctypes.c_uint64, self._handle.value)
        self.total_size = self.num_samples * self.num_replicas

    def __len__(self):
        """Indices of one pass on this rank."""
        return self.num_samples

    def __iter__(self):
        """Begins a pass. The log says so where it is the second one and set_epoch() was never called."""
        indices = (ctypes.c_int64 * self.num_samples)()
        call("distributed_sampler_indices", self._handle.value, indices, self.num_samples, None)
        return iter(array.array("q", bytes(indices)))

    def set_epoch(self, epoch):
        """The number of the next pass; without it every pass has the same order."""
        self.epoch = epoch
        call("distributed_sampler_set_epoch", self._handle.value, _unsigned(epoch, "epoch"))

    @property
    def order_repeated(self):
        """Has a second pass begun in the order of the first, without set_epoch()?"""
        return ask("distributed_sampler_order_repeated", ctypes.c_int, self._handle.value) == 1


class ElasticSampler:
    """Which samples each step takes, for runs whose world changes and that go on where they stopped. Also a
    `batch_sampler` for torch's DataLoader.

        for epoch in range(sampler.epoch, 90):
            for indices in sampler:              # this rank's part of a step; all ranks take as many steps
                ... train ...
                sampler.commit()                 # on all ranks, when the optimizer has taken the step

    Iterating goes from the cursor to the end of its epoch. Steps that were given out and not committed come again in the
    next pass. `batch_size` is that of all ranks together. order: "torch", "computed" or "sequential"; deal: "strided" or
    "contiguous"; tail: "short_batch", "pad" or "drop".
    """

    def __init__(self, dataset, batch_size, *, num_replicas=None, rank=None, seed=0, order="torch", deal="strided",
                 tail="short_batch"):
        self.num_replicas, self.rank = _place(num_replicas, rank)
        options = ElasticSamplerOptions(
            ctypes.sizeof(ElasticSamplerOptions), _count(dataset), _whole(batch_size, "batch_size"),
            _unsigned(seed, "seed"), number_of(order, _ORDERS, "order"), number_of(deal, _DEALS, "deal"),
            number_of(tail, _TAILS, "tail"))
        self._handle = Handle("elastic_sampler", make("elastic_sampler_make", ctypes.byref(options)))
        self._given_out = collections.deque()  # steps that wait for their commit
        self._pass = 0
        self._forgotten = False

    @property
    def epoch(self):
        return self.state_dict()["epoch"]

    @property
    def cursor(self):
        """Samples of the epoch that were committed."""
        return self.state_dict()["cursor"]

    @property
    def batch_size(self):
        return self.state_dict()["batch_size"]

    def __len__(self):
        """Steps from the cursor to the end of its epoch."""
        return ask("elastic_sampler_steps_left", ctypes.c_uint64, self._handle.value)

    def __iter__(self):
        """This rank's indices, step by step; a list may be empty where a step has fewer samples than there are ranks."""
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
                raise RuntimeError("the sampler has begun another pass, or was put elsewhere; iterate over it anew")
            self._given_out.append(step)
            yield self._indices(step)
            step = self._step("after", ctypes.byref(step))
        self._forgotten = (self.epoch, self.cursor) == committed_before

    def commit(self):
        """The oldest step given out was taken: its samples count as seen. On all ranks alike."""
        if not self._given_out:
            raise RuntimeError("commit() of a step that was not given out")
        call("elastic_sampler_commit", self._handle.value, ctypes.byref(self._given_out[0]))
        self._given_out.popleft()
        self._forgotten = False

    def set_batch_size(self, batch_size):
        """For the steps that have not been given out yet; on all ranks alike."""
        call("elastic_sampler_set_batch_size", self._handle.value, _whole(batch_size, "batch_size"))

    def set_place(self, rank, num_replicas):
        """Another world, from the next step on."""
        self.num_replicas, self.rank = _place(num_replicas, rank)

    def sample_seed(self, index, epoch=None):
        """For the random numbers that a sample needs: of the sample and the epoch, whichever rank has it. Below 2^64."""
        epoch = self.epoch if epoch is None else _whole(epoch, "epoch", least=0)
        return ask("elastic_sampler_sample_seed", ctypes.c_uint64, self._handle.value, epoch,
                   _whole(index, "index", least=0))

    def state_dict(self):
        """For a checkpoint: plain numbers and words, equal on all ranks."""
        return json.loads(text_of("elastic_sampler_state", self._handle.value))

    def load_state_dict(self, state):
        """Goes on from there, with that batch size. An error names the field that is wrong, or says that the state is of
        other data, another seed or another order."""
        call("elastic_sampler_load_state", self._handle.value, json.dumps(state).encode())
        self._pass += 1
        self._given_out.clear()
        self._forgotten = False

    def _step(self, name, *arguments):
        step = SampleStepFields(ctypes.sizeof(SampleStepFields))
        call(f"elastic_sampler_{name}", self._handle.value, *arguments, ctypes.byref(step))
        return step

    def _indices(self, step):
        room = step.count // self.num_replicas + 1
        indices = (ctypes.c_int64 * room)()
        count = ctypes.c_size_t()
        call("elastic_sampler_indices", self._handle.value, ctypes.byref(step), self.rank, self.num_replicas, indices,
             room, ctypes.byref(count))
        return indices[:count.value]
