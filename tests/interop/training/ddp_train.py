"""A plain PyTorch DDP script, as a user has it: nothing in it knows of muster.

Trains a small regression over gloo and, on rank 0, writes the first and last loss and the world as JSON to argv[1]."""
import json
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo", init_method="env://")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    inputs = torch.randn(256, 16)
    targets = inputs @ torch.randn(16, 1)
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(60):
        loss = torch.nn.functional.mse_loss(model(inputs[rank::world]), targets[rank::world])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / world)
    if rank == 0:
        with open(sys.argv[1], "w") as out:
            json.dump({"first": losses[0], "last": losses[-1], "world": world,
                       "restart": os.environ["TORCHELASTIC_RESTART_COUNT"]}, out)
    dist.barrier()  # nobody takes the store away from a rank that is still at work
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # Under DDP gloo's threads outlive destroy_process_group(), and PyTorch aborts where one of them lets go of a tensor
    # while Python ends (its issue 190489).
    os._exit(0)
