"""A script that knows nothing of muster: it asks for gloo, and for a group of its own, and trains with DDP. With an
argument, an empty folder, rank 1 hangs instead."""

import datetime
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist

if sys.argv[1:]:  # The time for one operation is the time for the meeting, too: that begins when all have imported torch.
    folder = pathlib.Path(sys.argv[1])
    (folder / os.environ["RANK"]).touch()
    while len(list(folder.iterdir())) < int(os.environ["WORLD_SIZE"]):
        time.sleep(0.01)
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20 if sys.argv[1:] else 60))
rank = dist.get_rank()
if sys.argv[1:]:
    dist.barrier()
    if rank == 1:
        time.sleep(120)
    dist.all_reduce(torch.ones(77))
group = dist.new_group(backend="gloo")
dist.barrier(group)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 10))
for _ in range(3):
    model(torch.full((2, 10), float(rank))).sum().backward()
gradients = [torch.empty_like(model.module.weight.grad) for _ in range(dist.get_world_size())]
dist.all_gather(gradients, model.module.weight.grad)
assert all(torch.equal(one, gradients[0]) for one in gradients)
backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
print(f"rank {rank}: {backend.name()}", flush=True)
dist.destroy_process_group()
