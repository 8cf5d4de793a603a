#!/usr/bin/env python3
"""A learning rate that follows the world size: the batch of a rank stays the same, so the batch of a step grows with the ranks.

    muster --nnodes=1:4 --nproc-per-node=2 --max-restarts=3 --rdzv-backend=c10d --rdzv-endpoint=HOST:29400 \\
        ddp_scaled_learning_rate.py [linear|sqrt]

The linear rule (Goyal et al., 2017) is for SGD, with a warmup; the square root is usual for Adam. An elastic job starts the script again
when nodes join or leave, so the rate is computed at each start.
"""
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

BASE_RATE = 0.02  # found with one rank
BATCH_OF_A_RANK = 16
WARMUP_STEPS = 5


def scaled(rate, world, rule):
    return rate * (world if rule == "linear" else world ** 0.5)


def main():
    rule = sys.argv[1] if len(sys.argv) > 1 else "linear"
    dist.init_process_group("muster")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    peak = scaled(BASE_RATE, world, rule)
    optimizer = torch.optim.SGD(model.parameters(), lr=peak)
    # From the rate of one rank to that of all: large steps with fresh weights diverge.
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=BASE_RATE / peak, total_iters=WARMUP_STEPS)

    generator = torch.Generator().manual_seed(1 + rank)
    rates = []
    for _ in range(40):
        batch = torch.randn(BATCH_OF_A_RANK, 8, generator=generator)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(batch), batch.sum(dim=1, keepdim=True))
        loss.backward()
        optimizer.step()
        rates.append(optimizer.param_groups[0]["lr"])
        warmup.step()

    print(f"rank {rank} of {world}: rate {rates[0]:.4f} to {rates[-1]:.4f}, loss {loss.item():.3f}, "
          f"weights {model.module.weight.sum().item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
