"""One rank of torch.distributed's all_reduce with the gloo back end as this PyTorch ships it. RANK, WORLD_SIZE,
MASTER_ADDR and MASTER_PORT come from the environment. The same loop as measure.h: the owner rewrites its buffer, all
ranks meet, each times its own all-reduce; rank 0 prints a JSON line a size."""
import json
import os
import sys
import time

import torch
import torch.distributed as dist

options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
sizes = [int(size) for size in options["--sizes"].split(",")]
seconds = float(options.get("--seconds", 0.2))
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
cores = sorted(os.sched_getaffinity(0))
torch.set_num_threads(1)
dist.init_process_group("gloo")
os.sched_setaffinity(0, {cores[rank % len(cores)]})


def timed_round(data):
    data.fill_(rank + 1)
    dist.barrier()
    start = time.perf_counter()
    dist.all_reduce(data)
    return (time.perf_counter() - start) * 1e6


for size in sizes:
    data = torch.empty(size // 4, dtype=torch.float32)
    first = [timed_round(data) for _ in range(3 if size < 64 << 20 else 1)][-1]
    if data[0] != world * (world + 1) / 2 or data[-1] != data[0]:
        sys.exit(f"wrong sum of {size} bytes")
    rounds = torch.tensor([min(max(int(seconds * 1e6 / (1.5 * first)), 3), 2000)])
    dist.broadcast(rounds, 0)
    times = sorted(timed_round(data) for _ in range(int(rounds)))
    if rank == 0:
        quantiles = [times[int(share / 20 * (len(times) - 1))] for share in range(21)]
        print(json.dumps({"bytes": size, "median_us": quantiles[10], "min_us": times[0], "p95_us": quantiles[19],
                          "rounds": len(times), "quantiles_us": quantiles}), flush=True)
dist.barrier()
dist.destroy_process_group()
