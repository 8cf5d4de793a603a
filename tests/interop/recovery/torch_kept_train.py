"""A DDP script whose survivors stay in their processes. Argument: "muster", "gloo", "broken" (an error of its own), "early"
(DDP before the load), or "fsdp" (FSDP2, made in each round).

Writes one line per event to ELASTIC_LOG. Rank 0 waits before step GATE for the file "go", so the others wait in a collective.
"""
import hashlib
import io
import os
import pathlib
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import muster
import muster.torch

GATE, STEPS = 8, 16


class Network(torch.nn.Module):
    """Its layers are not declared in the order in which they run, so DDP orders its buckets anew after the first step."""

    def __init__(self):
        super().__init__()
        self.last = torch.nn.Linear(64, 8)
        self.first = torch.nn.Linear(32, 64)

    def forward(self, inputs):
        return self.last(self.first(inputs).relu())


kind = sys.argv[1]
log = open(os.environ["ELASTIC_LOG"], "a", buffering=1)
torch.manual_seed(0)
network = Network()
optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
clean = muster.CleanStep()
wrappers = []  # the old ones live on, and do no harm
pending = []


def shard():
    """A new network and its optimizer, which hold process groups by name."""
    from torch.distributed.fsdp import fully_shard
    global network, optimizer
    torch.manual_seed(0)
    network = Network()
    for module in (network.last, network.first, network):
        fully_shard(module)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    for parameter in network.parameters():
        optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)


def prefix_count():
    """How often PyTorch puts "[rankN]" before a line of this process's traceback."""
    usual, sys.stderr = sys.stderr, io.StringIO()
    sys.excepthook(ValueError, ValueError("planned"), None)
    told, sys.stderr = sys.stderr.getvalue(), usual
    return told.count("[rank")


def shard_of(tensor):
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
    _, (row, *_) = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return muster.Shard(tensor.detach().to_local(), tensor.shape, row * tensor.shape[1:].numel())


def state():
    if kind == "fsdp":
        return {"shards": [[shard_of(each), shard_of(optimizer.state[each]["momentum_buffer"])] for each in network.parameters()]}
    return {"model": network.state_dict(), "optimizer": optimizer.state_dict()}


def digest():
    found = hashlib.sha256()
    for tensor in [*network.parameters(), *(part for each in optimizer.state.values() for part in each.values())]:
        whole = tensor.full_tensor() if kind == "fsdp" else tensor
        found.update(whole.detach().numpy().tobytes())
    return found.hexdigest()[:16]


def wait_for_nobody(rank, group):
    """An operation in progress, of a group that no dead rank is in."""
    try:
        dist.recv(torch.zeros(1), 3 - rank, group=group)
    except dist.DistError as error:
        print(f"pending rank={rank} said={str(error).replace(' ', '_')}", file=log)


@muster.torch.recoverable
def main(context, resume):
    dist.init_process_group("gloo" if kind == "gloo" else "muster")
    rank = dist.get_rank()
    print(f"start rank={rank} round={os.environ['MUSTER_ROUND']} pid={os.getpid()} count={resume.count} "
          f"group={dist.group.WORLD.group_name}", file=log)
    if dist.get_world_size() == 3:
        survivors = dist.new_group([1, 2])  # of these none fails
    if dist.get_world_size() == 3 and rank > 0 and not resume:
        pending.append(threading.Thread(target=wait_for_nobody, args=(rank, survivors), daemon=True))
        pending[-1].start()
    if kind == "fsdp":
        shard()
    model = DistributedDataParallel(network) if kind == "early" else network if kind == "fsdp" else None
    checkpointer = muster.Checkpointer(context)
    loaded = checkpointer.load(state()) if kind == "fsdp" else checkpointer.load_state(own=state(), clean=clean)
    print(f"loaded rank={rank} round={os.environ['MUSTER_ROUND']} source={loaded and loaded.source} kept={loaded and loaded.step == clean.step}", file=log)
    if loaded and loaded.step != clean.step and kind != "fsdp":
        with clean.to(loaded.step):
            network.load_state_dict(loaded.state["model"])
            optimizer.load_state_dict(loaded.state["optimizer"])
    elif not loaded:
        checkpointer.snapshot(0, state())
    model = model or DistributedDataParallel(network)  # after the load: it copies rank 0's weights to all
    wrappers.append(model)
    for step in range(loaded.step if loaded else 0, STEPS):
        while step == GATE and rank == 0 and not pathlib.Path("go").exists():
            time.sleep(0.005)
        if kind == "broken" and step == GATE and rank == 1:
            raise ValueError("not a round's end")
        inputs = torch.randn(8, 32, generator=torch.Generator().manual_seed(step * dist.get_world_size() + rank))
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        dist.all_reduce(loss.detach())  # here a failure finds DDP ready for its backward pass
        loss.backward()
        with clean.to(step + 1):
            optimizer.step()
        checkpointer.snapshot(step + 1, state())
        print(f"step rank={rank} round={os.environ['MUSTER_ROUND']} step={step + 1} at_ns={time.monotonic_ns()}", file=log)
    for thread in pending if resume else ():
        thread.join(60)  # the end of its round has freed it, and it says so
    print(f"end rank={rank} pid={os.getpid()} weights=x{digest()} prefixes={prefix_count()}", file=log)
    dist.destroy_process_group()


main()
