"""One rank of scripts/bench/death with PyTorch: death_torch.py RANK WORLD PORT RESIDENT_MIB gloo|muster; prints as death_rank."""
import os
import sys
import time

import torch
import torch.distributed as dist

rank, world, port, resident_mib = map(int, sys.argv[1:5])
dist.init_process_group(sys.argv[5], init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
memory = bytearray(b"\1") * (resident_mib << 20) if rank == 1 else b""
data = torch.zeros(100_000)
dist.barrier()
print(rank, os.getpid(), "ready", flush=True)
try:
    while True:
        dist.all_reduce(data)
except RuntimeError as error:
    print(rank, "failed", time.monotonic_ns(), str(error).split("\n")[0], flush=True)
    os._exit(0)
