"""PyTorch training that survives the failure of another rank in its own process. PYTORCH.md is the guide."""

import functools
import inspect
import os
import sys
import threading
import weakref

import torch
import torch.distributed as dist
from muster.checkpoint import none_is_clean
from muster.library import MusterError
from muster.recover import CannotBeKept, Recovery, decorated
from torch.nn.parallel import DistributedDataParallel

# The agent kills a process that has not left its round after 5 s.
_LEAVE_SECONDS = 3.0
# Between two looks at whether the round has ended, where NCCL's operations wait on the GPU and hear nothing of it.
_LOOK_SECONDS = 0.05
# A lost node is missed for a lease, so NCCL or a store may fail long before the agent says that the round is over.
_WORD_SECONDS = 15.0
# gloo's errors are plain RuntimeErrors, like those of a program; they begin with the name of their source file, in this folder.
_SOURCES_OF_GLOO = "gloo/"
# What it does after an operation has failed would end the process, or hold up its next round. Read when a group of NCCL is made.
_NCCL_VARIABLES = {
    # Otherwise PyTorch ends the process when NCCL misses a peer.
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    # After an error its watchdog sleeps four times this long, a minute by default, for others to write their records,
    # and the end of the process group waits for it.
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "1",
}
_NCCL_DEFAULTS = {"TORCH_NCCL_DUMP_ON_TIMEOUT": "0", "TORCH_NCCL_RETHROW_CUDA_ERRORS": "0"}
# Their abort() ends what is in progress. That of others, which PyTorch lets do nothing, would leave it to write on.
_WITH_END = ("muster", "nccl")


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
        return (MusterError, dist.DistError, *([RuntimeError] if _without_end() else []))

    def __init__(self, context):
        _remember_wrappers()
        self._world = context.world
        self._over = threading.Event()
        self._watcher = None
        self._variables = {}
        # Without an agent nobody is kept, and PyTorch deals with NCCL as ever.
        if torch.cuda.is_available() and os.environ.get("MUSTER_AGENT_SOCKET"):
            wanted = {name: os.environ.get(name, value) for name, value in _NCCL_DEFAULTS.items()} | _NCCL_VARIABLES
            self._variables = {name: os.environ.get(name) for name in wanted}
            os.environ.update(wanted)
            self._watcher = threading.Thread(target=self._abort_at_end, daemon=True)
            self._watcher.start()

    def finish(self):
        self._over.set()
        for name, before in self._variables.items():
            if before is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = before

    def may_end_the_round(self, failure):
        return isinstance(failure, (MusterError, dist.DistError)) or _SOURCES_OF_GLOO in str(failure)

    def patience(self, failure):
        return _WORD_SECONDS if isinstance(failure, dist.DistError) else 0

    def leave(self, failure):
        """In a thread: NCCL or the GPU may never answer."""
        if torch.cuda.is_initialized():
            # backward() and step() have only queued their work. Behind an aborted sum of NCCL it used the rank's own gradients.
            none_is_clean()
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
        # init_process_group() puts one around the last one: a traceback would have a "[rank0]" more for each round.
        hook = sys.excepthook
        while getattr(hook, "__module__", None) == dist.distributed_c10d.__name__:
            hook = inspect.getclosurevars(hook).nonlocals.get("old_hook")
        sys.excepthook = hook or sys.excepthook

    def _has_ended(self):
        try:
            self._world.check()
        except MusterError:
            return True
        return False

    def _abort_at_end(self):
        """So that NCCL's kernels end when the round does."""
        while not self._over.wait(_LOOK_SECONDS):
            if self._has_ended():
                if not self._over.is_set():
                    _abort_operations()
                return


def _abort_operations():
    """Of all groups side by side, because the ends of communicators that share a GPU wait for each other. PyTorch's
    _abort_process_group() ends one after the other: its one call of NCCL around them has no effect, as each ends in a thread of
    its own."""

    def abort(group):
        try:
            group.abort()
        except Exception:  # noqa: BLE001: leave() meets it again, and says so. The others end here
            pass

    threads = [threading.Thread(target=abort, args=(group,), daemon=True) for group in list(dist.distributed_c10d._world.pg_map)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _without_end():
    """Why operations in progress cannot be ended, if they cannot."""
    if not dist.is_initialized():
        return None
    if dist.get_debug_level() == dist.DebugLevel.DETAIL:
        return "TORCH_DISTRIBUTED_DEBUG=DETAIL uses gloo, whose operations cannot be ended; unset it"
    configurations = ",".join(dist.distributed_c10d._world.pg_backend_config.values())
    names = (part.rpartition(":")[2] for part in configurations.split(","))
    name = next((one for one in names if one not in _WITH_END), None)
    return name and f'a process group uses {name}, whose operations cannot be ended; use init_process_group("muster")'


def _leave_groups(why):
    """Ends all operations, and closes all groups, whoever still has them, also where the script has called
    destroy_process_group(). Returns what is in the way."""
    if why_not := _without_end():
        return why_not
    has_library = hasattr(torch.ops.muster, "_leave_round")
    if has_library and not torch.ops.muster._leave_round(f"the round has ended: {why}", _LEAVE_SECONDS):
        return "an operation of a process group did not end"
    if dist.is_initialized():
        _abort_operations()
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
        if named.get("init_sync", True):
            none_is_clean()  # a new rank 0 gives its weights to all
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
