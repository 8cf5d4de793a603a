#!/usr/bin/env python3
"""FSDP2: each rank keeps a shard of the weights, gradients and optimizer state, and gathers one block at a time.

    muster --standalone --nproc-per-node=2 fsdp2.py
"""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main():
    dist.init_process_group("muster")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(0)  # all ranks start with the same weights
    model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range(2)], torch.nn.Linear(8, 1))
    for block in model:
        fully_shard(block, mesh=mesh)  # a block is gathered and freed as one unit
    fully_shard(model, mesh=mesh)
    model.set_allocate_memory_from_process_group_for_comm(True)  # buffers in the memory that the ranks of a host share
    # After fully_shard(), because the optimizer must see the shards.
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)

    generator = torch.Generator().manual_seed(1 + rank)  # each rank has its own samples
    for step in range(40):
        batch = torch.randn(16, 8, generator=generator)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(batch), batch.sum(dim=1, keepdim=True))
        loss.backward()
        optimizer.step()
        if step == 0:
            first = loss.item()

    shard = model[0][0].weight.to_local()
    print(f"rank {rank} of {world}: loss {first:.3f} to {loss.item():.3f}, {shard.numel()} of {model[0][0].weight.numel()} weights", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
