"""A plain PyTorch DDP script that resumes from torch.save: nothing in it knows of muster.

resumed_train.py FOLDER adam|sgd: each step takes 20 ms, so the round lasts until FOLDER/done is there. A second optimizer steps twice as often.
In its first run, once FOLDER/fail is there, it saves a checkpoint at the next step and kills itself 3 steps later. rank 0 keeps its last step in FOLDER/step."""
import os
import pathlib
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS_AFTER_CHECKPOINT = 3


def main():
    folder = pathlib.Path(sys.argv[1])
    kind = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[sys.argv[2]]
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    critic = torch.nn.Linear(16, 1)
    optimizer, other = kind(model.parameters(), lr=0.01), kind(critic.parameters(), lr=0.01)
    step, kill_at = 0, None
    if (folder / "checkpoint").exists():
        saved = torch.load(folder / "checkpoint")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    is_first_run = step == 0
    while True:
        inputs = torch.randn(8, 16)
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        for _ in range(2):
            critic(inputs).square().mean().backward()
            other.step()
        step += 1
        if rank == 0:
            (folder / "new").write_text(str(step))
            (folder / "new").rename(folder / "step")
        time.sleep(0.02)  # a step
        flags = torch.tensor([(folder / name).exists() for name in ("done", "fail")], dtype=torch.int32)
        dist.all_reduce(flags)
        if flags[0]:
            break
        if flags[1] and is_first_run and kill_at is None:
            kill_at = step + STEPS_AFTER_CHECKPOINT
            if rank == 0:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, folder / "checkpoint")
        if step == kill_at:
            dist.barrier()
            os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


if __name__ == "__main__":
    main()
    os._exit(0)  # as in ddp_train.py
