"""What `import torch` runs, so it imports nothing of muster: that takes longer than the rest of it. See muster/torch."""

import functools
import os
import sys


def autoload():
    """The entry point. An exception here would break `import torch` of every program, so errors wait for the first use."""
    try:
        register()
    except Exception:  # noqa: BLE001
        pass


def register():
    """Makes "muster" known to torch.distributed. MUSTER_TORCH_BACKEND=muster makes it the back end of the CPU, too."""
    from torch import distributed

    if not distributed.is_available() or "MUSTER" in distributed.Backend._plugins:
        return
    distributed.Backend.register_backend("muster", _create, extended_api=True, devices=["cpu"])
    if os.environ.get("MUSTER_TORCH_BACKEND") == "muster":
        _replace_gloo(distributed)


def _create(*arguments):
    from muster import torch as backend

    return backend._create(*arguments)


def _replace_gloo(distributed):
    """Scripts that ask for "gloo", or for nothing, get this back end on the CPU."""
    import torch

    original = distributed.Backend.__new__

    def chosen(name):
        if name == "undefined":
            name = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        parts = [part.split(":") for part in name.split(",")]
        if ["gloo"] in parts or ["cpu", "gloo"] in parts:
            _tell()
        return ",".join(":".join("muster" if word == "gloo" and (len(part) == 1 or part[0] == "cpu") else word
                                 for word in part) for part in parts)

    def new(cls, name):
        return original(cls, chosen(name.lower()) if isinstance(name, str) else name)

    distributed.Backend.__new__ = new


@functools.lru_cache(maxsize=None)
def _tell():
    if os.environ.get("RANK", "0") == "0":
        print("muster: process groups on the CPU use the back end muster instead of gloo (MUSTER_TORCH_BACKEND=muster)",
              file=sys.stderr, flush=True)
