"""PyTorch training that survives the failure of another rank in its own process. PYTORCH.md is the guide."""

import functools
import os
import threading
import weakref

import torch
import torch.distributed as dist
from muster.library import MusterError
from muster.recover import CannotBeKept, Recovery, decorated
from torch.nn.parallel import DistributedDataParallel

# The agent kills a process that has not left its round after 5 s.
_LEAVE_SECONDS = 3.0
# Between two looks at whether the round has ended, where NCCL's operations wait on the GPU and hear nothing of it.
_LOOK_SECONDS = 0.05


def recoverable(function=None, **options):
    """muster.recoverable for a function that uses torch.distributed: function(context, resume, ...). It calls
    init_process_group() itself, and finds nothing of the last round's process groups when it is called again. It wraps its
    network in DistributedDataParallel anew, so that the buckets are those of a new process.

    If a worker or a node fails, an operation of torch.distributed or a call of muster's raises an error here, most often a
    DistBackendError. Let it pass. The groups must be those of "muster" or NCCL: gloo's operations cannot be ended.
    """
    if function is None:
        return functools.partial(recoverable, **options)
    return decorated(function, options, _TorchRecovery)


class _TorchRecovery(Recovery):
    @property
    def errors(self):
        # Those of gloo are no DistError.
        return (MusterError, dist.DistError, *([RuntimeError] if _without_end() else []))

    def __init__(self, context):
        _remember_wrappers()
        self._over = threading.Event()
        self._watcher = None
        if torch.cuda.is_available():
            # Otherwise PyTorch ends the process when NCCL misses a peer. Read when a group is made.
            os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
            # After an error its watchdog sleeps four times this long, a minute by default, for others to write their records,
            # and the end of the process group waits for it.
            os.environ["TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"] = "1"
            os.environ.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "0")
            os.environ.setdefault("TORCH_NCCL_RETHROW_CUDA_ERRORS", "0")
            self._watcher = threading.Thread(target=self._abort_at_end, args=(context.world,), daemon=True)
            self._watcher.start()

    def finish(self):
        self._over.set()

    def leave(self, failure):
        """In a thread: NCCL or the GPU may never answer."""
        found = ["its process groups or its GPU did not end their work within 3 s"]

        def end():
            try:
                if self._watcher is not None:
                    self._watcher.join()
                found[0] = _leave_groups(str(failure)) or _trouble_of_gpu()
            except Exception as error:  # noqa: BLE001: whatever it is, this process is not fit for another round
                found[0] = f"{type(error).__name__}: {error}"

        ending = threading.Thread(target=end, daemon=True)
        ending.start()
        ending.join(_LEAVE_SECONDS)
        if found[0]:
            raise CannotBeKept(found[0])

    def _abort_at_end(self, world):
        """So that NCCL's kernels end when the round does."""
        while not self._over.wait(_LOOK_SECONDS):
            try:
                world.check()
            except MusterError:
                if self._over.is_set():
                    return
                for group in list(dist.distributed_c10d._world.pg_map):
                    group.abort()
                return


def _backends():
    return ",".join(dist.distributed_c10d._world.pg_backend_config.values())


def _without_end():
    """Why operations in progress cannot be ended, if they cannot."""
    if not dist.is_initialized():
        return None
    if dist.get_debug_level() == dist.DebugLevel.DETAIL:
        return "TORCH_DISTRIBUTED_DEBUG=DETAIL uses gloo, whose operations cannot be ended; unset it"
    name = next((one for one in ("gloo", "mpi") if one in _backends()), None)
    return name and f'a process group uses {name}, whose operations cannot be ended; use init_process_group("muster")'


def _leave_groups(why):
    """Ends all operations, and closes all groups, whoever still has them. Returns what is in the way."""
    if not dist.is_initialized():
        return None
    if why_not := _without_end():
        return why_not
    if "muster" in _backends() and not torch.ops.muster._leave_round(f"the round has ended: {why}", _LEAVE_SECONDS):
        return "an operation of a process group did not end"
    dist.distributed_c10d._abort_process_group()
    _disarm_gradient_hooks()
    return None


_wrappers = weakref.WeakSet()


@functools.lru_cache(maxsize=None)
def _remember_wrappers():
    """To look for them among all objects, or to collect garbage, takes 0.1 s and more of each recovery."""
    original = DistributedDataParallel.__init__

    @functools.wraps(original)
    def make(self, *arguments, **named):
        _wrappers.add(self)
        original(self, *arguments, **named)

    DistributedDataParallel.__init__ = make


def _disarm_gradient_hooks():
    """A DistributedDataParallel is part of a cycle, so it may live on. Its reducer has hooks at the parameters, and after an
    unfinished step they would start operations of a group that is gone."""
    for wrapper in list(_wrappers):
        vars(wrapper).pop("logger", None)
        vars(wrapper).pop("reducer", None)


def _trouble_of_gpu():
    """An error of CUDA stays until the process ends."""
    if not torch.cuda.is_initialized():
        return None
    try:
        torch.cuda.synchronize()
        torch.ones(1, device="cuda").add_(1).item()
    except RuntimeError as error:
        return f"its GPU is in an error state: {str(error).splitlines()[0]}"
    return None
