"""What `import torch` runs, so it imports nothing of muster: that takes longer than the rest of it. See muster/torch."""

import contextlib
import functools
import importlib.util
import os
import shutil
import sys
import threading

_LAUNCHER = "torch.distributed.launcher.api"
_COMPAT = b"\n# torchrun, python and python3 for scripts that call"  # the second line of scripts/torchrun-compat/torchrun


def autoload():
    """The entry point. An exception here would break `import torch` of every program, so errors wait for the first use. But
    a script that asks for gloo would get it then, so whoever has asked for muster is told."""
    try:
        register()
    except Exception as error:  # noqa: BLE001
        if os.environ.get("MUSTER_TORCH_BACKEND") == "muster":
            tell(f"muster: PyTorch will use gloo in spite of MUSTER_TORCH_BACKEND=muster: {type(error).__name__}: {error}; "
                 "does this version of PyTorch fit to this muster?")
    try:
        if os.environ.get("MUSTER_TORCH_STEPS") == "1":
            from muster.torch import steps

            steps.report()
    except Exception as error:  # noqa: BLE001
        tell_no_steps(error)
    try:
        follow_torchrun()
    except Exception as error:  # noqa: BLE001
        _tell_launcher(error)


def tell(line):
    """stderr may be closed, or nobody may read it: `import torch` must not fail by this."""
    with contextlib.suppress(Exception):
        print(_line_time() + line, file=sys.stderr, flush=True)


def _line_time():
    """What a line of muster's own begins with where neither a terminal nor the journal has the time (rendezvous/base/log.h)."""
    with contextlib.suppress(Exception):  # not every sys.stderr is a file
        facts = os.fstat(sys.stderr.fileno())
        if sys.stderr.isatty() or os.environ.get("JOURNAL_STREAM") == f"{facts.st_dev}:{facts.st_ino}":
            return ""
    from datetime import datetime

    return datetime.now().astimezone().isoformat(timespec="milliseconds") + " "


def tell_no_steps(error):
    if os.environ.get("LOCAL_RANK", "0") == "0":
        tell(f"muster: no steps are reported: {type(error).__name__}: {error}")


def register():
    """Makes "muster" known to torch.distributed. MUSTER_TORCH_BACKEND=muster makes it the back end of the CPU, too."""
    from torch import distributed

    if not distributed.is_available() or "MUSTER" in distributed.Backend._plugins:
        return
    distributed.Backend.register_backend("muster", _create, extended_api=True, devices=["cpu"])
    if os.environ.get("MUSTER_TORCH_BACKEND") == "muster":
        _replace_gloo(distributed)


def follow_torchrun():
    """Where `torchrun` in PATH is muster's, PyTorch's Python API that starts jobs is, too: muster/compat."""
    found = shutil.which("torchrun")
    if found is None:
        return
    try:
        with open(found, "rb") as file:
            start = file.read(len(_COMPAT) + 100)
    except OSError:  # one that may be run and not read is not muster's
        return
    if _COMPAT not in start:
        return
    if _LAUNCHER in sys.modules:
        _attach(sys.modules[_LAUNCHER])
    else:  # most programs never import it
        sys.meta_path.insert(0, _LauncherFinder())


class _LauncherFinder:
    """Finds one module as the other finders do, and has it changed when it has been run."""

    asks = False

    def find_spec(self, name, path=None, target=None):
        if name != _LAUNCHER or self.asks:
            return None
        self.asks = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.asks = False
        run = spec.loader.exec_module

        def exec_module(module):
            sys.meta_path.remove(self)
            run(module)
            _attach(module)

        spec.loader.exec_module = exec_module
        return spec


def _attach(module):
    try:
        from muster import compat

        compat.attach(module)
    except Exception as error:  # noqa: BLE001
        _tell_launcher(error)


def _tell_launcher(error):
    tell(f"muster: PyTorch's own launcher is used: {type(error).__name__}: {error}; does this version of PyTorch fit to this muster?")


def _create(*arguments):
    from muster import torch as backend

    return backend._create(*arguments)


def _replace_gloo(distributed):
    """Scripts that ask for "gloo", or for nothing, get this back end on the CPU."""
    import torch

    original = distributed.Backend.__new__

    def chosen(name):
        cuda = torch.cuda.is_available()
        if name == "undefined":
            if not cuda and _has_other_accelerator(torch):
                return name  # torch knows the back end of that device
            name = "cpu:gloo,cuda:nccl" if cuda else "gloo"
        elif name == "gloo" and cuda:
            name = "cpu:gloo,cuda:gloo"  # gloo serves both
        parts = [part.split(":") for part in name.split(",")]
        if ["gloo"] in parts or ["cpu", "gloo"] in parts:
            _tell()
        return ",".join(":".join("muster" if word == "gloo" and (len(part) == 1 or part[0] == "cpu") else word
                                 for word in part) for part in parts)

    config = distributed.distributed_c10d.BackendConfig
    original_config = config.__init__
    parsing = threading.local()  # torch reads the parts of "cpu:muster,cuda:gloo" as names, too: they are chosen already

    def new(cls, name):
        is_whole = isinstance(name, str) and not getattr(parsing, "parts", False)
        return original(cls, chosen(name.lower()) if is_whole else name)

    def new_config(self, backend):
        whole = distributed.Backend(backend)
        parsing.parts = True
        try:
            original_config(self, whole)
        finally:
            parsing.parts = False

    distributed.Backend.__new__ = new
    config.__init__ = new_config


def _has_other_accelerator(torch):
    accelerator = getattr(torch, "accelerator", None)  # since torch 2.6
    return accelerator is not None and accelerator.is_available()


@functools.lru_cache(maxsize=None)
def _tell():
    # Without RANK nobody knows which of many processes this is, so all keep quiet.
    if os.environ.get("RANK") == "0":
        tell("muster: process groups on the CPU use the back end muster instead of gloo (MUSTER_TORCH_BACKEND=muster)")
