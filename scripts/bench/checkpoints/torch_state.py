"""torch's ways to save the same state, for scripts/bench/checkpoint: torch.save with fsync, and
torch.distributed.checkpoint.async_save. Prints "torch_save SAVE_MS LOAD_MS" and "async_save BLOCKED_MS TOTAL_MS LOAD_MS".

    torch_state.py DIRECTORY MIB TURNS
"""
import os
import shutil
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

directory, mib, turns = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
TENSOR = 16 << 20
state = {f"tensor{i}": torch.zeros(TENSOR // 4) for i in range((mib << 20) // TENSOR)}


def milliseconds_since(then):
    return (time.monotonic() - then) * 1e3


def drop_cache(path):
    """So that a load reads the disk, as ours does."""
    for folder, _, names in os.walk(path):
        for name in names:
            fd = os.open(os.path.join(folder, name), os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def torch_save(path):
    began = time.monotonic()
    with open(path, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    saved = milliseconds_since(began)
    drop_cache(os.path.dirname(path))
    began = time.monotonic()
    torch.load(path)
    print("torch_save", saved, milliseconds_since(began), flush=True)
    os.unlink(path)


def async_save(path):
    began = time.monotonic()
    future = dcp.async_save(state, checkpoint_id=path)
    blocked = milliseconds_since(began)
    future.result()
    total = milliseconds_since(began)
    drop_cache(path)
    began = time.monotonic()
    dcp.load(state, checkpoint_id=path)
    print("async_save", blocked, total, milliseconds_since(began), flush=True)
    shutil.rmtree(path)


dist.init_process_group("gloo", init_method=f"file://{directory}/rendezvous", rank=0, world_size=1)
for turn in range(turns):
    for tensor in state.values():
        tensor += 1
    torch_save(os.path.join(directory, "state.pt"))
    async_save(os.path.join(directory, "dcp"))
dist.destroy_process_group()
