"""PyTorch's back end "muster": torch.distributed.init_process_group("muster").

torch calls muster_torch.autoload() at the end of `import torch`, because the distribution names it as an entry point of
the group `torch.backends`. So a script imports nothing. PYTORCH.md is the guide.

recoverable() keeps the survivors of a failure in their processes.
"""

import atexit
import functools
import os
from pathlib import Path

from muster.torch.recover import recoverable
from muster_torch import autoload, register

__all__ = ["autoload", "recoverable", "register"]

# How long the end of the interpreter waits for operations in progress before it aborts them.
_EXIT_GRACE_SECONDS = 5.0
_LONGEST_TIMEOUT_MS = 366 * 24 * 3600 * 1000  # of the library


def _create(options, _backend_options):
    """Called by torch on each member of a new group."""
    import torch

    _load()
    _finish_at_exit(os.getpid())
    if torch.cuda.device_count() == 0:
        # DDP takes the memory of its buckets from the back end then. With GPUs it would ask NCCL, too, which is torch's choice.
        os.environ.setdefault("DDP_DISABLE_COMM_MEM", "0")
    timeout_ms = min(max(1, round(options.timeout.total_seconds() * 1000)), _LONGEST_TIMEOUT_MS)
    shell = torch.distributed.ProcessGroup(options.store, options.group_rank, options.group_size)
    torch.ops.muster._attach(shell.boxed(), f"torch/{options.group_id}", list(options.global_ranks_in_group), timeout_ms)
    return shell._get_backend(torch.device("cpu"))


def _refusal(path):
    """Why a library of the user's cache is not loaded: it is code, so nobody else may be able to write it. None: it is loaded."""
    for entry in (path, path.parent):
        try:
            state = entry.stat()
        except OSError as error:
            return f"{entry} is not used: {error.strerror}"
        if state.st_uid != os.getuid():
            return f"{path} is not used, because {entry} belongs to another user (uid {state.st_uid})"
        if state.st_mode & 0o022:
            return f"{path} is not used, because other users may write {entry} (chmod go-w {entry})"
    return None


def _candidates(name):
    """Where the library of the back end may be: MUSTER_TORCH_LIBRARY, this folder, beside libmuster.so, the user's cache."""
    from muster import library
    from muster.torch_build import cache_folder

    named = os.environ.get("MUSTER_TORCH_LIBRARY")
    if named:
        return [Path(named)]
    return [Path(__file__).resolve().parent / name, Path(library._find()).resolve().parent / name, cache_folder() / name]


def _not_there(torch, candidates):
    there = sorted({path.stem.removeprefix("libmuster_torch_").replace("_", ".") for candidate in candidates
                    for path in candidate.parent.glob("libmuster_torch_*.so")})
    return RuntimeError(
        f"muster has no back end for torch {torch.__version__}: {candidates[0].name} is not in "
        f"{' or '.join(dict.fromkeys(str(path.parent) for path in candidates))}, which "
        f"{'has those for torch ' + ', '.join(there) if there else 'has none'}; make it with `muster torch-build` "
        "(needs a C++ compiler), install one of these versions, or set MUSTER_TORCH_LIBRARY to its path")


@functools.lru_cache(maxsize=None)
def _load():
    import torch

    from muster import library

    library._library()  # the one that is in the process already, if the program uses muster's own module, too
    minor = ".".join(torch.__version__.split(".")[:2])
    candidates = _candidates(f"libmuster_torch_{minor.replace('.', '_')}.so")
    refusals = []
    for path in filter(os.path.exists, candidates):  # where this user may look
        refusal = _refusal(path) if path in candidates[2:] else None  # the cache's
        if not refusal:
            try:
                torch.ops.load_library(str(path))
                return _check_version(torch, path, minor)
            except OSError as error:
                refusal = str(error.__cause__ or error)  # torch's own text has no reason
        refusals.append(refusal)
    if not refusals:
        raise _not_there(torch, candidates)
    raise RuntimeError(f"muster cannot load its back end for torch {torch.__version__}: {'; '.join(refusals)}; a library that was built for "
                       "another build of torch does not load: make one with `muster torch-build` (needs a C++ compiler), or set "
                       "MUSTER_TORCH_LIBRARY to the path of one that fits")


def _check_version(torch, path, minor):
    built_for = torch.ops.muster._built_for()
    if built_for != minor:
        raise RuntimeError(f"{path} is muster's back end for torch {built_for}, and this is torch {torch.__version__}: the two "
                           "do not fit; unset MUSTER_TORCH_LIBRARY, or set it to the path of one that was built for this torch")


@functools.lru_cache(maxsize=None)
def _finish_at_exit(process):
    """Once in each process: a forked child has its parent's functions of atexit, and perhaps groups of its own."""
    import torch

    atexit.register(lambda: os.getpid() == process and torch.ops.muster._finish(_EXIT_GRACE_SECONDS))
