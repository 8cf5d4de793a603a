"""What @muster.torch.recoverable does about NCCL, gloo and a GPU, with stand-ins for them."""
import os
import queue
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
    """The abort of a communicator ends when those of the others on the same GPU have begun."""

    def __init__(self, error=None):
        self.error = error
        self.aborted = threading.Event()

    def abort(self):
        begun.wait(30)
        if self.error:
            raise self.error
        self.aborted.set()


class EndsWithTheCall:
    """The call of the function is over before the round's end is found."""

    def __init__(self):
        self.over_of = queue.Queue()

    def check(self):
        self.over_of.get(timeout=30).set()
        raise muster.RoundEnded("round_ended", "the round ended")


def why_not(**patches):
    patches.setdefault("_LEAVE_SECONDS", 30.0)
    with mock.patch.multiple(recover, **patches):
        try:
            recover._TorchRecovery(mock.Mock(world=World())).leave(ValueError("the failure"))
        except CannotBeKept as why:
            return str(why)
    return ""


groups = [Group(RuntimeError("cannot be aborted")), Group(), Group()]
begun = threading.Barrier(len(groups))
for name in (*recover._NCCL_VARIABLES, *recover._NCCL_DEFAULTS):
    os.environ.pop(name, None)
with mock.patch.object(torch.cuda, "is_available", return_value=True), \
        mock.patch.dict(dist.distributed_c10d._world.pg_map, {group: None for group in groups}):
    os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "3"
    os.environ.pop("MUSTER_AGENT_SOCKET", None)
    recovery = recover._TorchRecovery(mock.Mock(world=World()))
    assert recovery._watcher is None and os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "3", "nobody is kept without an agent"

    os.environ["MUSTER_AGENT_SOCKET"] = "@an-agent"
    world = World()
    recovery = recover._TorchRecovery(mock.Mock(world=world))
    assert os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "0"
    assert os.environ["TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"] == "1"
    assert not groups[1].aborted.wait(0.2), "aborted before the end of the round"
    world.over.set()
    assert all(group.aborted.wait(30) for group in groups[1:]), "not aborted at the end of the round"
    recovery.finish()
    assert os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "3"
    assert "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC" not in os.environ

    world = World()
    recovery = recover._TorchRecovery(mock.Mock(world=world))
    recovery.finish()
    recovery._watcher.join(30)
    assert not recovery._watcher.is_alive(), "the thread of a call that is over goes on"

    # The script's own error comes while the watcher looks: from then on the groups are leave()'s, which aborts them itself.
    with mock.patch.object(recover, "_abort_operations") as abort:
        world = EndsWithTheCall()
        recovery = recover._TorchRecovery(mock.Mock(world=world))
        world.over_of.put(recovery._over)
        recovery._watcher.join(30)
        assert not recovery._watcher.is_alive() and not abort.called, "two threads end the groups at once"

# Leaving a round: PyTorch ends the groups one after the other, so all must have begun to end before it does.
groups = [Group(), Group(), Group()]
begun, ended = threading.Barrier(len(groups)), []
pg_map = dist.distributed_c10d._world.pg_map
with mock.patch.object(dist, "is_initialized", return_value=True), mock.patch.dict(pg_map, {group: None for group in groups}), \
        mock.patch.object(dist.distributed_c10d, "_abort_process_group", side_effect=lambda: ended.extend(group.aborted.is_set() for group in groups)):
    assert recover._leave_groups("why") is None
    assert ended == [True] * len(groups), "PyTorch was to end the groups one after the other"

clean = muster.CleanStep()
with clean.to(7):
    pass
assert why_not() == "" and clean.step == 7, "a CPU has ended its step when the block ends"
with mock.patch.object(torch.cuda, "is_initialized", return_value=True):
    why_not(_leave_groups=lambda why: "one reason")
assert clean.step == -2, "on a GPU the step was only queued, maybe behind a sum that was aborted"
never = threading.Event()
assert "did not end their work" in why_not(_LEAVE_SECONDS=0.1, _leave_groups=lambda why: never.wait())
assert why_not(_leave_groups=lambda why: "one reason") == "one reason"
with mock.patch.object(torch.cuda, "is_initialized", return_value=True), \
        mock.patch.object(torch.cuda, "synchronize", side_effect=RuntimeError("CUDA error: an illegal memory access\nmore")):
    assert why_not() == "its GPU is in an error state: CUDA error: an illegal memory access"

recovery = recover._TorchRecovery(mock.Mock(world=World()))
assert recovery.may_end_the_round(dist.DistBackendError("of NCCL"))
assert recovery.may_end_the_round(RuntimeError("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error: Connection reset"))
assert not recovery.may_end_the_round(RuntimeError("shapes differ")), "an error of the program"
assert recovery.patience(dist.DistNetworkError("the store")) > 5 > recovery.patience(muster.RoundEnded("round_ended", "over"))

for configuration, is_kept in {"cpu:muster,cuda:nccl": True, "cpu:muster": True, "cpu:muster,cuda:ucc": False, "cpu:gloo,cuda:nccl": False}.items():
    with mock.patch.object(dist, "is_initialized", return_value=True), \
            mock.patch.dict(dist.distributed_c10d._world.pg_backend_config, {object(): configuration}):
        assert (recover._without_end() is None) == is_kept, configuration
with mock.patch.object(dist, "is_initialized", return_value=True), \
        mock.patch.object(dist, "get_debug_level", return_value=dist.DebugLevel.DETAIL):
    assert "TORCH_DISTRIBUTED_DEBUG=DETAIL" in why_not()


def enter(context, failure, patience):
    return muster.recover._enter_next_round(context, mock.Mock(patience=lambda _: patience), failure)


running = muster.MusterError("invalid_argument", "the round has not ended")
late = mock.Mock(_rejoin=mock.Mock(side_effect=[running, running, None]))
assert enter(late, dist.DistBackendError("of NCCL"), 30) is None, "the agent's word came too late"
assert enter(mock.Mock(_rejoin=mock.Mock(side_effect=running)), ValueError(), 0) is running

# A script that has destroyed its groups, and still has its wrapper: nothing of that round is heard of in the next one.
dist.init_process_group("muster", store=dist.HashStore(), rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
dist.destroy_process_group()
assert "reducer" in vars(model)
assert why_not() == ""
assert "reducer" not in vars(model)
print("ok")
