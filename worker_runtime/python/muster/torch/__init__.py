"""PyTorch's back end "muster": torch.distributed.init_process_group("muster").

torch calls autoload() at the end of `import torch`, because this package names it as an entry point of the group
`torch.backends`. So a script imports nothing. `import muster.torch` does the same. PYTORCH.md is the guide.
"""

import atexit
import functools
import os
import sys
from pathlib import Path

__all__ = ["autoload", "register"]

# How long the end of the interpreter waits for operations in progress before it aborts them.
_EXIT_GRACE_SECONDS = 5.0
_LONGEST_TIMEOUT_MS = 366 * 24 * 3600 * 1000  # of the library


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


def _create(options, _backend_options):
    """Called by torch on each member of a new group."""
    import torch

    _load()
    timeout_ms = min(max(1, round(options.timeout.total_seconds() * 1000)), _LONGEST_TIMEOUT_MS)
    shell = torch.distributed.ProcessGroup(options.store, options.group_rank, options.group_size)
    torch.ops.muster._attach(shell.boxed(), f"torch/{options.group_id}", list(options.global_ranks_in_group), timeout_ms)
    return shell._get_backend(torch.device("cpu"))


def _candidates(name):
    """Where the library of the back end may be: MUSTER_TORCH_LIBRARY, this folder, beside libmuster.so."""
    from muster import library

    named = os.environ.get("MUSTER_TORCH_LIBRARY")
    if named:
        return [Path(named)]
    return [Path(__file__).resolve().parent / name, Path(library._find()).resolve().parent / name]


@functools.lru_cache(maxsize=None)
def _load():
    import torch

    from muster import library

    library._library()  # the one that is in the process already, if the program uses muster's own module, too
    minor = "_".join(torch.__version__.split(".")[:2])
    candidates = _candidates(f"libmuster_torch_{minor}.so")
    found = next((path for path in candidates if path.exists()), None)
    if found is None:
        there = sorted({path.stem.removeprefix("libmuster_torch_").replace("_", ".") for candidate in candidates
                        for path in candidate.parent.glob("libmuster_torch_*.so")})
        raise RuntimeError(
            f"muster has no back end for torch {torch.__version__}: {candidates[0].name} is not in "
            f"{' or '.join(dict.fromkeys(str(path.parent) for path in candidates))}, which "
            f"{'has those for torch ' + ', '.join(there) if there else 'has none'}; install one of these versions, build "
            "it (cmake -DMUSTER_TORCH=ON -DMUSTER_TORCH_PYTHON=...), or set MUSTER_TORCH_LIBRARY to its path")
    try:
        torch.ops.load_library(str(found))
    except OSError as error:
        raise RuntimeError(f"muster's back end for torch {torch.__version__} cannot be loaded: {error}; it was built for "
                           f"another build of torch: build it again with this one") from None
    owner = os.getpid()
    atexit.register(lambda: os.getpid() == owner and torch.ops.muster._finish(_EXIT_GRACE_SECONDS))


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
