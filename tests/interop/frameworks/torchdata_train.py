"""DDP with torchdata's StatefulDataLoader: every rank saves the place of its loader."""
import pathlib
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader

from samples import BATCH, SAVE_EVERY, Samples, finish, loss_of, network, optimizer_of

folder = pathlib.Path(sys.argv[1])
latest = folder / "latest"
dist.init_process_group("gloo")
samples = Samples(BATCH * dist.get_world_size())
loader = StatefulDataLoader(samples, batch_size=BATCH, sampler=DistributedSampler(samples, shuffle=False))
model = network()
optimizer = optimizer_of(model)
began = 0
if latest.exists():
    began = int(latest.read_text())
    state = torch.load(folder / f"step_{began}.{dist.get_rank()}")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    loader.load_state_dict(state["loader"])
parallel = DistributedDataParallel(model)
for step, (inputs, targets) in enumerate(loader, began + 1):
    optimizer.zero_grad()
    loss_of(parallel(inputs), targets).backward()
    optimizer.step()
    if step % SAVE_EVERY == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "loader": loader.state_dict()},
                   folder / f"step_{step}.{dist.get_rank()}")
        dist.barrier()
        if dist.get_rank() == 0:
            latest.with_suffix(".new").write_text(str(step))
            latest.with_suffix(".new").rename(latest)
finish(model, began, folder)
