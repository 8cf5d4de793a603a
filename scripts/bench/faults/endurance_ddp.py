"""A DDP training (back end muster) for `endurance --kind torch`, whose survivors stay in their processes. Argument: the steps.

Writes the lines of tests/worker_programs/kept_steps.cpp to the file ELASTIC_LOG.
"""
import gc
import hashlib
import os
import re
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import muster
import muster.torch

torch.manual_seed(0)
network = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
clean = muster.CleanStep()
log = open(os.environ["ELASTIC_LOG"], "a", buffering=1)


def state():
    return {"model": network.state_dict(), "optimizer": optimizer.state_dict()}


def sizes():
    """What must not grow from one recovery to the next. Python collects a round's cycles, such as its DDP wrapper, only once
    a quarter of all objects are new, after hundreds of rounds."""
    gc.collect()
    resident_kib = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[1]
    return (f"descriptors={len(os.listdir('/proc/self/fd'))} mappings={len(Path('/proc/self/maps').read_text().splitlines())} "
            f"threads={len(os.listdir('/proc/self/task'))} resident_kib={resident_kib}")


def digest():
    found = hashlib.sha256()
    for tensor in [*network.parameters(), *(part for each in optimizer.state.values() for part in each.values())]:
        found.update(tensor.detach().numpy().tobytes())
    return found.hexdigest()[:16]


@muster.torch.recoverable
def main(context, resume, steps):
    dist.init_process_group("muster")
    checkpointer = muster.Checkpointer(context)
    loaded = checkpointer.load_state(own=state(), clean=clean)
    if loaded and loaded.step != clean.step:
        with clean.to(loaded.step):
            network.load_state_dict(loaded.state["model"])
            optimizer.load_state_dict(loaded.state["optimizer"])
    elif not loaded:
        checkpointer.snapshot(0, state())
    model = DistributedDataParallel(network)
    first = loaded.step if loaded else 0
    where = f"rank={context.rank} round={context.place.round}"
    print(f"start {where} pid={os.getpid()} count={resume.count} step={first} {sizes()}", file=log)
    for step in range(first, steps):
        samples = torch.Generator().manual_seed(step * context.world_size + context.rank)
        optimizer.zero_grad()
        model(torch.randn(8, 32, generator=samples)).square().mean().backward()
        with clean.to(step + 1):
            optimizer.step()
        checkpointer.snapshot(step + 1, state())
        print(f"step {where} step={step + 1}", file=log)
    print(f"sum rank={context.rank} value={digest()}", file=log)
    dist.destroy_process_group()


main(int(sys.argv[1]))
