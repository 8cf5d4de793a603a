#!/usr/bin/env python3
"""DistributedDataParallel with torch.save alone: the least that does not lose a checkpoint. ddp_checkpoints.py does more.

    muster --standalone --nproc-per-node=2 --max-restarts=3 --checkpoint-dir ckpt ddp_torch_save.py --data digits.csv

Rank 0 writes everything to a temporary name, flushes it, and renames it: a reader finds the old file or the new one,
never a half. What this costs against muster.Checkpointer: training stands still for all of the writing; one file is
written by one rank; a flipped bit is found out by nobody; and the world must keep its size. DistributedSampler knows no
place inside an epoch, so the steps of the epoch that were taken are passed over after a restart.
"""
import os
import signal

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from digits_data import load_digits
from example_job import digest, options


def save(path, state):
    """There after a power cut, or the one before is."""
    with open(path + ".new", "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".new", path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    os.fsync(folder)  # the name itself
    os.close(folder)


def main():
    asked = options(__doc__)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    path = os.path.join(os.environ["MUSTER_CHECKPOINT_DIR"], "training.pt")
    os.makedirs(os.path.dirname(path), exist_ok=True)

    data = load_digits(asked.data)
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Dropout(0.1),
                                  torch.nn.Linear(32, 10))
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    sampler = torch.utils.data.DistributedSampler(data, seed=0)
    loader = torch.utils.data.DataLoader(range(len(data)), batch_size=64 // world, sampler=sampler)
    torch.manual_seed(1 + rank)  # dropout differs from rank to rank

    step = 0
    if os.path.exists(path):
        loaded = torch.load(path, weights_only=True)
        step = loaded["step"]
        network.load_state_dict(loaded["model"])
        optimizer.load_state_dict(loaded["optimizer"])
        torch.set_rng_state(loaded["generators"][rank])
        if rank == 0:
            print(f"continuing from step {step} of {path}", flush=True)
    model = DistributedDataParallel(network)

    loss = None
    while step < asked.steps:
        epoch, taken = divmod(step, len(loader))
        sampler.set_epoch(epoch)
        for place, indices in enumerate(list(loader.batch_sampler)):
            if place < taken:
                continue  # taken before the restart
            images, labels = data[indices]
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            if asked.die_once and step == 23 and rank == 1 and not os.path.exists(asked.die_once):
                open(asked.die_once, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if asked.order:
                with open(f"{asked.order}.{rank}", "a") as order:
                    print(step, epoch, *indices, file=order)
            if step % asked.save_every == 0:
                generators = [torch.empty_like(torch.get_rng_state()) for _ in range(world)]
                dist.all_gather(generators, torch.get_rng_state())  # every rank has its own
                if rank == 0:
                    save(path, {"step": step, "model": network.state_dict(), "optimizer": optimizer.state_dict(),
                                "generators": generators})
                dist.barrier()  # nobody runs ahead of a checkpoint that may fail
            if step == asked.steps:
                break
    if rank == 0:
        result = f"loss {loss.item():.4f}" if loss is not None else "nothing left to train:"
        print(f"{result} weights {digest(network)}", flush=True)
    dist.barrier()  # nobody takes the store away from a rank that is still at work
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
