"""Operations that were started and run in a thread of the back end: each function is one rank of a story."""

import datetime
import threading
import time
import weakref

import torch
import torch.distributed as dist
from stories import failure_of, meet


def lost_failure(folder, rank, ranks):
    """The first of several tensors cannot be written."""
    meet(folder, rank, ranks)
    inputs = [torch.ones(3), torch.ones(2)]
    outputs = [[torch.zeros(1).expand(3), torch.zeros(2)] for _ in range(ranks)]
    failure_of(lambda: dist.distributed_c10d._get_default_group().allgather_coalesced(outputs, inputs).wait())


def freed(folder, rank, ranks):
    """A tensor is gone with the caller's last reference. Seldom, on a busy host often, the thread's is the last one, which then
    waits for the next operation."""
    meet(folder, rank, ranks)
    gone = 0
    for _ in range(1000):
        data = torch.ones(1000)
        seen = weakref.ref(data)
        work = dist.all_reduce(data, async_op=True)
        work.wait()
        del data, work
        gone += seen() is None
    assert gone > 0


def slow_work(folder, rank, ranks):
    """wait(timeout) says for what it waited."""
    meet(folder, rank, ranks)
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        work = dist.all_reduce(torch.ones(1), async_op=True)
        text = failure_of(lambda: work.wait(datetime.timedelta(milliseconds=50)))
        assert "muster:all_reduce of group torch/0 has not ended in the 50 ms" in text, text
        store.set("told", "1")
        work.wait()
    else:
        store.wait(["told"])
        dist.all_reduce(torch.ones(1))


def inference_mode(folder, rank, ranks):
    """The thread of the back end may write what only code in inference mode may change."""
    meet(folder, rank, ranks)
    with torch.inference_mode():
        pieces = [torch.empty(3) for _ in range(ranks)]
        dist.all_gather(pieces, torch.full((3,), float(rank)), async_op=True).wait()
        assert torch.equal(torch.stack(pieces), torch.arange(float(ranks)).repeat(3, 1).t()), pieces
        column = torch.full((3, 2), float(rank))[:, 0]
        dist.all_reduce(column, async_op=True).wait()
        assert torch.equal(column, torch.full((3,), sum(range(ranks), 0.0))), column
    column = torch.full((3, 2), float(rank), requires_grad=True)
    with torch.no_grad():
        dist.broadcast(column[:, 0], 0, async_op=True).wait()
    assert torch.equal(column[:, 0], torch.zeros(3)), column


def coalesced_end(folder, rank, ranks):
    """The thread that waits for coalesced operations destroys no tensor that others have left: it may have a Python object."""
    meet(folder, rank, ranks)
    store, group, cpu = dist.distributed_c10d._get_default_store(), dist.group.WORLD, torch.device("cpu")
    turns = range(20)
    if rank == 1:
        for turn in turns:
            for moment in ("dropped", "over"):
                store.wait([f"{moment}/{turn}"])
                dist.send(torch.ones(4), 0)
        return
    ends = []
    for turn in turns:
        tensors, works = [torch.empty(4), torch.empty(4)], []
        for tensor in tensors:
            group._start_coalescing(cpu)
            dist.irecv(tensor, 1)
            works.append(group._end_coalescing(cpu))
        weakref.finalize(tensors[0], lambda: ends.append(threading.get_ident()))
        del tensor, tensors
        store.set(f"dropped/{turn}", "1")
        while not works[0].is_completed():
            time.sleep(0.001)
        store.set(f"over/{turn}", "1")
        works[1].wait()
    while len(ends) < len(turns):
        works[1].wait()
    assert set(ends) == {threading.get_ident()}, ends
