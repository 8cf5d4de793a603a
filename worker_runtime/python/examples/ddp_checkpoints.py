#!/usr/bin/env python3
"""DistributedDataParallel with checkpoints that lose no work. Beside it, ddp_torch_save.py does what torch.save alone can.

    muster --standalone --nproc-per-node=2 --max-restarts=3 --checkpoint-dir ckpt ddp_checkpoints.py --data digits.csv

Python finds muster in worker_runtime/python (PYTHONPATH). A worker that dies costs the steps since the last checkpoint:
weights, optimizer, random numbers and the place in the data go on from there, and no sample is skipped or repeated, also
in a world of another size. After SIGTERM (a preemption notice) all ranks save in the same step and leave with exit code
76: nothing is lost at all.
"""
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import muster
from digits_data import load_digits
from example_job import digest, options


def main():
    asked = options(__doc__)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    context = muster.Context()
    notice = muster.PreemptionNotice(context)
    checkpointer = muster.Checkpointer(context)  # a collective; the directory is --checkpoint-dir's

    data = load_digits(asked.data)
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Dropout(0.1),
                                  torch.nn.Linear(32, 10))
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    sampler = muster.ElasticSampler(data, batch_size=64, seed=0)  # 64 samples a step over all ranks, whatever their number
    torch.manual_seed(1 + context.rank)  # dropout differs from rank to rank

    # All ranks load, all ranks save. AdamW has no state before its first step: load_state() makes one as it was saved.
    step = 0
    loaded = checkpointer.load_state()
    if loaded:
        step = loaded.step
        network.load_state_dict(loaded.state["model"])
        optimizer.load_state_dict(loaded.state["optimizer"])
        sampler.load_state_dict(loaded.state["sampler"])
        muster.set_random_state(loaded.rank_value)
        if context.rank == 0:
            print(f"continuing from step {loaded.step} of", loaded.path or "the agents' memory", flush=True)
    model = DistributedDataParallel(network)

    def save(when_busy=None):
        state = {"model": network.state_dict(), "optimizer": optimizer.state_dict(), "sampler": sampler.state_dict()}
        checkpointer.save(step, state, rank_value=muster.random_state(), when_busy=when_busy)

    loss = None
    while step < asked.steps:
        for indices in sampler:  # from the cursor to the end of its epoch
            images, labels = data[indices]
            # DDP averages over the ranks, whose shares may differ, and even be empty at an epoch's end: so each sample
            # counts 1/64, wherever it is.
            loss = torch.nn.functional.cross_entropy(model(images), labels, reduction="sum") * context.world_size / 64
            if asked.die_once and step == 23 and context.rank == 1 and not os.path.exists(asked.die_once):
                open(asked.die_once, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            epoch = sampler.epoch
            sampler.commit()  # these samples are seen: what is saved from here on knows it
            step += 1
            if asked.order:
                with open(f"{asked.order}.{context.rank}", "a") as order:
                    print(step, epoch, *indices, file=order)
            if notice.agreed():  # the same answer on all ranks, so all save this step
                save(when_busy="wait")
                checkpointer.finish()
                sys.exit(muster.EXIT_SAVED_AND_LEFT)
            if step == asked.steps:
                save(when_busy="wait")  # the last one must not be left out
            elif step % asked.save_every == 0:
                save()  # waits for a copy in memory alone; left out where the one before is still being written
            if step == asked.steps:
                break
    checkpointer.finish()
    if context.rank == 0:
        result = f"loss {loss.item():.4f}" if loss is not None else "nothing left to train:"
        print(f"{result} weights {digest(network)}", flush=True)
    dist.barrier()  # nobody takes the store away from a rank that is still at work
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
