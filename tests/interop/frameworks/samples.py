"""What every script here trains: a small network, its samples, its optimizer; and how the script ends.

One worker stands still in the middle: the first time that anybody asks for the sample of HALT=SAMPLE:FILE, its process
writes its pid to FILE and waits for a signal. The test kills it. The scripts themselves know nothing of that."""
import os
import pathlib
import signal

import torch
import torch.distributed as dist

STEPS, BATCH, SAVE_EVERY = 8, 4, 3


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))


def optimizer_of(model):
    """With momentum: a checkpoint without the optimizer's state gives other weights."""
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def loss_of(outputs, targets):
    return torch.nn.functional.mse_loss(outputs, targets)


class Samples(torch.utils.data.Dataset):
    """One epoch: STEPS batches of each rank."""

    def __init__(self, a_step):
        generator = torch.Generator().manual_seed(1)
        self.inputs = torch.randn(STEPS * a_step, 8, generator=generator)
        self.targets = self.inputs.sum(1, keepdim=True).tanh()
        sample, _, file = os.environ.get("HALT", "-1:").partition(":")
        self.halt_at, self.file = int(sample), pathlib.Path(file)

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        if index == self.halt_at and not self.file.exists():
            unfinished = self.file.with_suffix(".new")
            unfinished.write_text(str(os.getpid()))
            unfinished.rename(self.file)
            signal.alarm(600)  # in case that nobody is left who kills it
            signal.pause()
        return self.inputs[index], self.targets[index]


def finish(model, began, folder):
    """Rank 0 writes the weights, from which step, over which back end and in which round of muster. Over gloo it ends the process."""
    weights = {name: getattr(value, "full_tensor", lambda value=value: value)().clone() for name, value in model.state_dict().items()}
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu")).name()
    if dist.get_rank() == 0:
        torch.save({"weights": weights, "began": began, "backend": backend, "world": dist.get_world_size(),
                    "round": os.environ.get("MUSTER_ROUND", "not muster's")}, pathlib.Path(folder) / "result.pt")
    dist.barrier()
    dist.destroy_process_group()
    # Under DDP gloo's threads outlive destroy_process_group(), and PyTorch aborts where one of them lets go of a tensor
    # while Python ends (its issue 190489). Over muster the script ends as a user's does.
    if backend == "gloo":
        os._exit(0)
