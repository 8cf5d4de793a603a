"""A plain PyTorch DDP script (gloo) that commits a fault: ddp_faults.py KIND RANK STEP [FOLDER].

It knows nothing of muster; the faults are written as users make them. Where a process only harms itself, its ranks add their gradients
by hand: DDP and the optimizers import PyTorch's compiler, which takes as long as PyTorch itself."""
import ctypes
import datetime
import mmap
import os
import pathlib
import sys
import time

KIND, RANK, STEP = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
FOLDER = pathlib.Path(sys.argv[4]) if len(sys.argv) > 4 else None
MINE = int(os.environ["RANK"]) == RANK

if KIND == "import" and MINE:
    import a_module_that_is_not_installed  # noqa: F401

import torch
import torch.distributed as dist
from torch.distributed.elastic import timer
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.elastic.timer.file_based_local_timer import FileTimerClient


def commit(step):
    if KIND == "crash":
        raise ValueError("a rehearsed crash")
    if KIND == "memory":
        taken = []
        while len(taken) < 512:
            taken.append(bytearray(b"x" * (16 << 20)))
    elif KIND == "bus":
        path = f"/dev/shm/rehearsed.{os.getpid()}"
        with open(path, "w+b") as file:
            file.truncate(1 << 30)
            with mmap.mmap(file.fileno(), 1 << 30) as memory:
                for at in range(0, 1 << 30, 4096):
                    memory[at] = 1
    elif KIND == "segment":
        ctypes.memset(0, 1, 1)
    elif KIND == "gpu":
        torch.ones(1, device="cuda")
    elif KIND == "disk":
        with open(FOLDER / "model.pt", "wb") as file:
            file.write(bytes(64 << 20))
    elif KIND == "swap":
        dist.broadcast(torch.zeros(3), src=0 if RANK else 1)
    elif KIND == "away":
        time.sleep(60)
    elif KIND == "size":
        dist.all_reduce(torch.ones(100_000))
    elif KIND == "timer":
        timer.configure(FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))
        with timer.expires(after=0.3, scope="a step"):
            time.sleep(60)
    elif KIND == "stop":
        os.kill(os.getpid(), 19)
    elif KIND == "slow":
        time.sleep(0.1)


def step_of(model):
    """One step of training, as a function."""
    def backward():
        model(torch.ones(4, 8)).sum().backward()

    def by_hand():
        backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.data -= 0.01 * parameter.grad
            parameter.grad = None

    if KIND in ("memory", "bus", "segment", "gpu", "disk", "timer"):
        return by_hand
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def by_ddp():
        optimizer.zero_grad()
        backward()
        optimizer.step()

    return by_ddp


@record
def main():
    dist.init_process_group("gloo")
    train = step_of(torch.nn.Linear(8, 8))
    if KIND in ("swap", "away", "stop"):  # gloo's half an hour is too long for a rehearsal
        dist.barrier()  # nobody's imports, of which an optimizer does some, count
        dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=12))
    for step in range(1, 201):
        if MINE and (step == STEP or KIND == "slow" and step > STEP):
            commit(step)
        train()
    dist.destroy_process_group()


# While Python ends, gloo's threads under DDP may abort it: PyTorch's issue 190489.
try:
    main()
except Exception:
    sys.excepthook(*sys.exc_info())
    sys.stderr.flush()
    os._exit(1)
os._exit(0)
