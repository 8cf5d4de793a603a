#!/usr/bin/env python3
"""Gradient accumulation: a step has four micro-batches, and only the last one communicates.

    muster --standalone --nproc-per-node=2 ddp_no_sync.py
"""
import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

MICRO_BATCHES = 4


def main():
    dist.init_process_group("muster")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    generator = torch.Generator().manual_seed(1 + rank)
    for _ in range(20):
        optimizer.zero_grad()
        for micro in range(MICRO_BATCHES):
            batch = torch.randn(8, 8, generator=generator)
            last = micro == MICRO_BATCHES - 1
            # Forward and backward belong inside: DDP decides in the forward pass whether this backward communicates.
            with contextlib.nullcontext() if last else model.no_sync():
                loss = torch.nn.functional.mse_loss(model(batch), batch.sum(dim=1, keepdim=True))
                (loss / MICRO_BATCHES).backward()  # the mean over the step, not the sum
        optimizer.step()

    print(f"rank {rank} of {world}: loss {loss.item():.6f}, weights {model.module.weight.sum().item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
