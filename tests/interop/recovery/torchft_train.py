"""Each worker is a replica group of torchft: a small regression, averaged over those that live. Rank 1 kills itself
once, and the others train on without it. At the end writes the step, the weights and how often its worker was started
again to FOLDER/rank.json."""
import json
import os
import pathlib
import signal
import sys
import time
from datetime import timedelta

import torch
from torch.distributed import TCPStore
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

KILLED_AT_STEP, TIMEOUT = 8, timedelta(seconds=60)


def main(folder):
    rank = int(os.environ["RANK"])
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    torch.manual_seed(rank)  # the ranks begin with different weights: torchft has to bring them together
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def load(state):
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    if "MUSTER_STARTED_AGAIN" in os.environ:
        (pathlib.Path(folder) / "back").touch()
    manager = Manager(
        pg=ProcessGroupGloo(timeout=TIMEOUT), min_replica_size=2, load_state_dict=load, timeout=TIMEOUT,
        quorum_timeout=TIMEOUT, connect_timeout=TIMEOUT,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
        replica_id=f"replica{rank}", rank=0, world_size=1, store_addr="127.0.0.1", store_port=store.port,
        lighthouse_addr=os.environ["LIGHTHOUSE"], hostname="127.0.0.1")
    ddp = DistributedDataParallel(manager, model)
    optimizer = Optimizer(manager, optimizer)
    back = pathlib.Path(folder) / "back"
    world = int(os.environ["WORLD_SIZE"])
    while True:
        step = manager.current_step()
        inputs = torch.randn(16, 4)
        optimizer.zero_grad()
        loss = ((ddp(inputs) - inputs.sum(1, keepdim=True)) ** 2).mean()
        loss.backward()
        optimizer.step()
        if manager.current_step() == step or manager.num_participants() < world:
            time.sleep(0.05)  # leaves the cores to rank 1, which is on its way
            continue  # this step was not committed, or not by all
        if back.exists():
            break  # rank 1 is back: all see it in the same step
        if rank == 1 and manager.current_step() >= KILLED_AT_STEP:
            os.kill(os.getpid(), signal.SIGKILL)
    result = {"step": manager.current_step(), "pid": os.getpid(), "again": int(os.environ.get("MUSTER_STARTED_AGAIN", 0)),
              "round": int(os.environ["MUSTER_ROUND"]), "weights": [p.flatten().tolist() for p in model.parameters()]}
    (pathlib.Path(folder) / f"{rank}.json").write_text(json.dumps(result))
    manager.shutdown(wait=False)


main(sys.argv[1])
