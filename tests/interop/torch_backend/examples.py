"""The examples of worker_runtime/python/examples that need nothing but PyTorch, with two ranks each. stories_test.py runs them.

torch.compile uses aot_eager, because inductor starts a compiler for seconds.
"""
import os
import pathlib
import re
import runpy
import sys

import torch
import torch.distributed as dist
import torch.distributed.fsdp  # noqa: F401  # here once for all ranks
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "worker_runtime/python/examples"
LINES_MAX = 60
LONGER = ("ddp_checkpoints.py", "ddp_torch_save.py")  # whole scripts on real data, which tests/interop/training runs


def example(folder, rank, ranks, name, *arguments):
    os.environ.update(MASTER_ADDR="127.0.0.1", TORCHELASTIC_USE_AGENT_STORE="True")
    sys.argv = [name, *arguments]
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


class Counted(DistributedDataParallel):
    """DDP that counts what it communicates."""

    sums = 0

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.register_comm_hook(None, self.sum_up)

    @staticmethod
    def sum_up(state, bucket):
        Counted.sums += 1
        return allreduce_hook(state, bucket)


def no_sync(folder, rank, ranks, name):
    torch.nn.parallel.DistributedDataParallel = Counted
    example(folder, rank, ranks, name)
    assert Counted.sums == 20, f"{Counted.sums} sums in 20 steps"


def outputs(play, name, *arguments, ranks=2, story=example):
    """What each rank printed."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # as the agent has one
    folder = play(story, name, *arguments, ranks=ranks, name=name, environment={"MASTER_PORT": str(store.port)})
    texts = [pathlib.Path(folder, f"log.{rank}").read_text() for rank in range(ranks)]
    for rank, text in enumerate(texts):
        assert re.search(rf"^rank {rank} of {ranks}: .*\n\Z", text, re.MULTILINE), f"{name}: {text}"  # torch may warn before
    return texts


def numbers(texts, pattern):
    return [tuple(map(float, re.search(pattern, text).groups())) for text in texts]


def check_ddp(play):
    texts = outputs(play, "ddp.py")
    first, second = numbers(texts, r"loss (\S+), weights (\S+)\n")
    assert first == second and first[0] < 0.01 and abs(first[1] - 8) < 0.1, texts
    # The same samples in each step, whatever the number of ranks.
    alone = outputs(play, "ddp.py", ranks=1)
    assert abs(numbers(alone, r"weights (\S+)\n")[0][0] - first[1]) < 1e-3, (texts, alone)


def check_fsdp2(play):
    texts = outputs(play, "fsdp2.py")
    for first, last, mine, whole in numbers(texts, r"loss (\S+) to (\S+), (\d+) of (\d+) weights\n"):
        assert last < first / 2 and (mine, whole) == (32, 64), texts


def check_no_sync(play):
    for ranks in (2, 1):
        texts = outputs(play, "ddp_no_sync.py", ranks=ranks, story=no_sync)
        weights = {mine for _, mine in numbers(texts, r"loss (\S+), weights (\S+)\n")}
        assert len(weights) == 1 and abs(weights.pop() - 8) < 1, texts


def check_compile(play):
    texts = outputs(play, "ddp_checkpointing_compile.py", "aot_eager")
    found = numbers(texts, r"loss (\S+) to (\S+), weights (\S+)\n")
    assert found[0][2] == found[1][2] and all(last < first / 2 for first, last, _ in found), texts


def check_learning_rate(play):
    for rule, peak in (("linear", 0.04), ("sqrt", 0.0283)):
        texts = outputs(play, "ddp_scaled_learning_rate.py", rule)
        found = numbers(texts, r"rate (\S+) to (\S+), loss (\S+), weights (\S+)\n")
        assert found[0][3] == found[1][3] and all(one[:2] == (0.02, peak) and one[2] < 2 for one in found), texts


def check(play):
    for one in (check_ddp, check_fsdp2, check_no_sync, check_compile, check_learning_rate):
        one(play)
    for path in EXAMPLES.glob("*.py"):
        if "muster --" in path.read_text() and path.name not in LONGER:
            assert len(path.read_text().splitlines()) <= LINES_MAX, f"{path.name} has more than {LINES_MAX} lines"

