"""What @muster.torch.recoverable does about NCCL and a GPU, with stand-ins for both."""
import os
import threading
from unittest import mock

import torch
import torch.distributed as dist

import muster
from muster.recover import CannotBeKept
from muster.torch import recover


class World:
    def __init__(self):
        self.over = threading.Event()

    def check(self):
        if self.over.is_set():
            raise muster.RoundEnded("round_ended", "the round ended")


class Group:
    def __init__(self):
        self.aborted = threading.Event()

    def abort(self):
        self.aborted.set()


def why_not(**patches):
    patches.setdefault("_LEAVE_SECONDS", 30.0)
    with mock.patch.multiple(recover, **patches):
        try:
            recover._TorchRecovery(mock.Mock(world=World())).leave(ValueError("the failure"))
        except CannotBeKept as why:
            return str(why)
    return ""


with mock.patch.object(torch.cuda, "is_available", return_value=True), \
        mock.patch.dict(dist.distributed_c10d._world.pg_map, {Group(): ("nccl", None)}):
    world, (group,) = World(), dist.distributed_c10d._world.pg_map
    recovery = recover._TorchRecovery(mock.Mock(world=world))
    assert os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "0"
    assert os.environ["TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"] == "1"
    assert not group.aborted.wait(0.2), "aborted before the end of the round"
    world.over.set()
    assert group.aborted.wait(30), "not aborted at the end of the round"
    recovery.finish()

    world = World()
    recovery = recover._TorchRecovery(mock.Mock(world=world))
    recovery.finish()
    recovery._watcher.join(30)
    assert not recovery._watcher.is_alive(), "the thread of a call that is over goes on"

assert why_not() == ""
never = threading.Event()
assert "did not end their work" in why_not(_LEAVE_SECONDS=0.1, _leave_groups=lambda why: never.wait())
assert why_not(_leave_groups=lambda why: "one reason") == "one reason"
with mock.patch.object(torch.cuda, "is_initialized", return_value=True), \
        mock.patch.object(torch.cuda, "synchronize", side_effect=RuntimeError("CUDA error: an illegal memory access\nmore")):
    assert why_not() == "its GPU is in an error state: CUDA error: an illegal memory access"
print("ok")
