"""A plain PyTorch DDP training (gloo) that saves and goes on by itself, as users write it; it knows nothing of muster.

    chaos_ddp.py STEPS FOLDER      saves into FOLDER/ddp.pt every 20 steps; the weights go into FOLDER/result.pt;
                                   FOLDER/pause has the milliseconds before each step
"""
import hashlib
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

STEPS, FOLDER = int(sys.argv[1]), Path(sys.argv[2])
FILE, PAUSE = FOLDER / "ddp.pt", FOLDER / "pause"


def batch(step, rank):
    dice = torch.Generator().manual_seed(step * 1000 + rank)
    x = torch.randn(16, 32, generator=dice)
    return x, (x[:, :4].sum(1, keepdim=True) > 0).float()


def save(step, model, optimizer):
    part = FILE.with_suffix(".part")
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, part)
    os.replace(part, FILE)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    rank = dist.get_rank()
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    first = 0
    if FILE.exists():
        kept = torch.load(FILE, weights_only=True)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        first = kept["step"]
    agreed = torch.tensor([first])
    dist.broadcast(agreed, 0)
    if int(agreed) != first:
        sys.exit(f"rank {rank} read step {first}, and rank 0 step {int(agreed)}")
    if rank == 0:
        print(f"world {dist.get_world_size()}: continuing from the file of step {first}", flush=True)
    # Otherwise DDP puts its buckets in another order after the first step of every start, and gloo adds in another order:
    # a training that is merely stopped and resumed (under torchrun, too) then differs in the last bits.
    parallel = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
    loss = torch.nn.BCEWithLogitsLoss()
    for step in range(first + 1, STEPS + 1):
        try:
            time.sleep(int(PAUSE.read_text()) / 1000)  # a slow training on a small machine
        except (OSError, ValueError):
            pass
        x, y = batch(step, rank)
        optimizer.zero_grad()
        loss(parallel(x), y).backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step}", flush=True)
        if step % 20 == 0:
            if rank == 0:
                save(step, model, optimizer)
            dist.barrier()
    if rank == 0:
        whole = torch.cat([one.detach().reshape(-1) for one in model.parameters()])
        torch.save(whole, FOLDER / "result.pt")
        print(f"weights {hashlib.sha256(whole.numpy().tobytes()).hexdigest()[:16]}", flush=True)
    dist.destroy_process_group()


main()
