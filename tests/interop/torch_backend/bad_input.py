"""What users and their scripts do wrong, and what the back end says of it: each function is one rank of a story."""

import contextlib
import datetime
import io
import os
from pathlib import Path

import torch
import torch.distributed as dist
from stories import PATIENCE, failure_of, meet


def mismatch(folder, rank, ranks):
    meet(folder, rank, ranks)
    text = failure_of(lambda: dist.all_reduce(torch.ones(10 + rank)))
    assert "f32 x 10" in text and "f32 x 11" in text and "rank 0" in text and "rank 1" in text, text
    assert "; all ranks must call the same operations in the same order, with equal sizes and types" in text, text


def absent(folder, rank, ranks):
    """Rank 1 never comes."""
    if rank == 0:
        text = failure_of(lambda: meet(folder, rank, ranks, datetime.timedelta(seconds=6)))
        assert "rank 1 did not join" in text, text


def absent_of_some(folder, rank, ranks):
    """A group of ranks 1 and 2 that only rank 1 makes: the group's numbers are not those of the world."""
    meet(folder, rank, ranks)
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        text = failure_of(lambda: dist.new_group([1, 2], timeout=datetime.timedelta(seconds=1)))
        for words in ("rank 0 of 2: rank 1 did not join", "within 1000 ms all members must call", "new_group() with the same ranks",
                      "its members are the ranks [1, 2]"):
            assert words in text, text
        store.set("told", "1")
    store.wait(["told"])
    dist.barrier()


def other_torch(folder, rank, ranks):
    """There is no library for this version of torch, or the one that is named is another version's."""
    minor = ".".join(torch.__version__.split(".")[:2])
    torch.__version__ = "9.8.0"
    text = failure_of(lambda: meet(folder, rank, ranks))
    assert "no back end for torch 9.8.0" in text and minor in text, text
    from muster import library
    built = Path(library._find()).with_name(f"libmuster_torch_{minor.replace('.', '_')}.so")
    os.environ["MUSTER_TORCH_LIBRARY"] = str(built)
    text = failure_of(lambda: meet(folder, rank, ranks))
    assert f"{built} is muster's back end for torch {minor}, and this is torch 9.8.0: the two do not fit; unset" in text, text


def unregistered(folder, rank, ranks):
    """torch has changed what the entry point uses: `import torch` works, and whoever asked for muster is told."""
    import muster_torch

    def refuse(*words, **more):
        raise TypeError("register_backend() has other arguments")
    del dist.Backend._plugins["MUSTER"]
    dist.Backend.register_backend = refuse
    for asked, said in (("muster", "muster: PyTorch will use gloo in spite of MUSTER_TORCH_BACKEND=muster: TypeError: register_backend() has "
                         "other arguments; does this version of PyTorch fit to this muster?\n"), ("", "")):
        os.environ["MUSTER_TORCH_BACKEND"] = asked
        with contextlib.redirect_stderr(io.StringIO()) as told:
            muster_torch.autoload()
        assert told.getvalue().partition(" ")[2] == said, told.getvalue()  # behind the time


def differing(folder, rank, ranks):
    """What the runtime moves as bytes, or does under another name, is compared, too."""
    op = dist.ReduceOp
    two = [torch.zeros(4), torch.zeros(4)]

    def reduces(kind, type=torch.int64):
        return dist.all_reduce(torch.ones(2, dtype=type), kind)

    cases = (
        (("product i64", "bxor i64"), lambda: reduces(op.BXOR if rank else op.PRODUCT)),
        (("product f32", "product i32"), lambda: reduces(op.PRODUCT, torch.int32 if rank else torch.float32)),
        (("sum i8", "sum u8"), lambda: reduces(op.SUM, torch.uint8 if rank else torch.int8)),
        (("SUM of Bool", "max u8"), lambda: reduces(op.MAX if rank else op.SUM, torch.uint8 if rank else torch.bool)),
        (("premul_sum f32",), lambda: reduces(op.SUM if rank else dist._make_nccl_premul_sum(0.5), torch.float32)),
        (("all_to_all_uneven f32", "all_to_all_uneven i32"),
         lambda: dist.all_to_all_single(*[torch.zeros(4, dtype=torch.int32 if rank else torch.float32) for _ in range(2)])),
        (("of Short", "of Char"),
         lambda: dist.all_to_all_single(*[torch.zeros(4, dtype=torch.int8 if rank else torch.int16) for _ in range(2)])),
        (("of Short", "of Char"), lambda: dist.broadcast(torch.zeros(4, dtype=torch.int8) if rank
                                                         else torch.zeros(2, dtype=torch.int16), 0)),
        (("reduce sum f32 x 4 to rank 0", "reduce sum f32 x 4 to rank 1"), lambda: dist.reduce(torch.ones(4), rank)),
        (("gather f32 x 4 to rank 0", "gather f32 x 4 to rank 1"), lambda: dist.gather(torch.ones(4), two, rank)),
        (("reduce sum f32 x 4 to rank 1", "all_reduce sum"),
         lambda: dist.reduce(torch.ones(4), 1) if rank else dist.all_reduce(torch.ones(4))),
    )
    if rank == 0:
        cases += ((("Short, tag 5", "Char, tag 5"), lambda: (dist.send(torch.zeros(2, dtype=torch.int16), 1, tag=5), dist.barrier())),)
    else:
        cases += ((("Short, tag 5", "Char, tag 5"), lambda: dist.recv(torch.zeros(4, dtype=torch.int8), 0, tag=5)),)
    for number, (words, case) in enumerate(cases):
        dist.init_process_group("muster", init_method=f"file://{folder}/store{number}", rank=rank, world_size=ranks,
                                timeout=PATIENCE)
        text = failure_of(case)
        assert "rank 0" in text and "rank 1" in text and all(word in text for word in words), (number, text)
        dist.destroy_process_group()


def sparse_shapes(folder, rank, ranks):
    """Sparse tensors that no sum can have, also of different numbers of dimensions."""
    meet(folder, rank, ranks)
    square, cube = torch.ones(2, 2), torch.ones(2, 2, 3)
    for other, words in ((cube.to_sparse(), "[2, 2, 3] with 3 sparse dimensions"), (cube.to_sparse(2), "[2, 2, 3] with 2 sparse dimensions"),
                         (square.to_sparse(1), "[2, 2] with 1 sparse dimension"), (torch.zeros(2).to_sparse(), "[2] with 1 sparse dimension")):
        given = other if rank else square.to_sparse()
        text = failure_of(lambda: dist.all_reduce(given))  # noqa: B023
        assert f"rank 0 passes the shape [2, 2] with 2 sparse dimensions, and rank 1 {words}; pass one shape on all ranks" in text, text
    text = failure_of(lambda: dist.all_reduce(torch.sparse_coo_tensor([[0]] * 65, [1.0], (1,) * 65)))
    assert f"rank {rank} of group torch/0: all_reduce of a sparse tensor: it has 65 dimensions, and at most 64" in text, text
    dist.barrier()
    text = failure_of(lambda: dist.all_reduce(square.to_sparse() if rank else square))
    assert all(word in text for word in ("rank 0", "rank 1", "all_reduce sum f32 x 4", "SPARSE", "all ranks must call the same")), text


def absent_of_many(folder, rank, ranks):
    """A group of 10,000 ranks that never come: a few of them are named."""
    import muster.torch
    muster.torch._load()
    shell = dist.ProcessGroup(dist.HashStore(), 0, 10_000)
    text = failure_of(lambda: torch.ops.muster._attach(shell.boxed(), "many", list(range(0, 20_000, 2)), 300))
    for words in ("ranks 1, 2, 3, 4, 5, 6, 7, 8, others did not join", "within 300 ms all members must call",
                  "its members are the ranks [0, 2, 4, 6, 8, 10, 12, 14] and more to 19998 (10000 in all)"):
        assert words in text, text
    assert len(text) < 1000, text
