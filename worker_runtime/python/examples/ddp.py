#!/usr/bin/env python3
"""DistributedDataParallel: each rank takes its share of every batch, and gradients are averaged during the backward pass.

    muster --standalone --nproc-per-node=2 ddp.py
"""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    dist.init_process_group("muster")  # gloo or nccl work as well
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    inputs = torch.randn(256, 8)
    data = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
    sampler = DistributedSampler(data, seed=0)
    loader = DataLoader(data, batch_size=32 // world, sampler=sampler)

    # DDP broadcasts the weights of rank 0. Gradients are views of its buckets, which saves a copy.
    model = DistributedDataParallel(torch.nn.Linear(8, 1), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(5):
        sampler.set_epoch(epoch)  # a new order, the same on all ranks
        for batch, targets in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(batch), targets)
            loss.backward()
            optimizer.step()

    mean = loss.detach().clone()
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    print(f"rank {rank} of {world}: loss {mean.item():.6f}, weights {model.module.weight.sum().item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
