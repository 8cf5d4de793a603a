#!/usr/bin/env python3
"""Activation checkpointing and torch.compile under DDP: blocks are computed again in the backward pass instead of kept.

    muster --standalone --nproc-per-node=2 ddp_checkpointing_compile.py [BACKEND]

BACKEND is that of torch.compile: inductor by default, which needs a C++ compiler; aot_eager needs none.
"""
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range(3))
        self.head = torch.nn.Linear(8, 1)

    def forward(self, values):
        for block in self.blocks:
            values = checkpoint(block, values, use_reentrant=False)  # what torch.compile can trace
        return self.head(values)


def main():
    dist.init_process_group("muster")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(Network())
    compiled = torch.compile(model, backend=sys.argv[1] if len(sys.argv) > 1 else "inductor")  # of the wrapper: one graph for each bucket
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)

    generator = torch.Generator().manual_seed(1 + rank)
    for step in range(40):
        batch = torch.randn(16, 8, generator=generator)  # one shape, so one compilation
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(compiled(batch), batch.sum(dim=1, keepdim=True))
        loss.backward()
        optimizer.step()
        if step == 0:
            first = loss.item()

    weights = sum(values.sum().item() for values in model.parameters())
    print(f"rank {rank} of {world}: loss {first:.3f} to {loss.item():.3f}, weights {weights:.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
