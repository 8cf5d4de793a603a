"""FSDP2 with torch.distributed.checkpoint: any number of ranks shares the samples of a step, and loads what any other
number has saved."""
import pathlib
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

from samples import SAVE_EVERY, STEPS, Samples, finish, loss_of, network, optimizer_of

A_STEP = 12


def newest(folder):
    """A checkpoint is whole when it has its metadata."""
    return max((int(path.parent.name[5:]) for path in folder.glob("step_*/.metadata")), default=0)


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
folder = pathlib.Path(sys.argv[1])
model = network()
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = optimizer_of(model)
began = newest(folder)
if began:
    weights, moments = get_state_dict(model, optimizer)
    checkpoint.load({"model": weights, "optimizer": moments}, checkpoint_id=folder / f"step_{began}")
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
samples = Samples(A_STEP)
for step in range(began, STEPS):
    inputs, targets = zip(*(samples[step * A_STEP + row] for row in range(rank, A_STEP, world)))
    optimizer.zero_grad()
    loss_of(model(torch.stack(inputs)), torch.stack(targets)).backward()
    optimizer.step()
    if (step + 1) % SAVE_EVERY == 0:
        weights, moments = get_state_dict(model, optimizer)
        checkpoint.save({"model": weights, "optimizer": moments}, checkpoint_id=folder / f"step_{step + 1}")
finish(model, began, folder)
