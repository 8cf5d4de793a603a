"""One rank: every collective of the back end against a reference computed from what all ranks are known to pass."""

import datetime
import functools
import math
import operator
import os
import sys
import warnings

import torch
import torch.distributed as dist

warnings.filterwarnings("ignore")  # torch warns of its own older names

MOVED = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16, torch.int32,
         torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.uint16]
SUMMED = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16, torch.int32,
          torch.int64, torch.bool, torch.complex64]
UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]  # torch itself has little arithmetic of them
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
WHOLE = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool]


def same(got, expected, what):
    got, expected = got.contiguous().view(-1), expected.contiguous().view(-1)
    assert got.dtype == expected.dtype, (what, got.dtype, expected.dtype)
    assert torch.equal(got.view(torch.uint8), expected.view(torch.uint8)), (what, got, expected)


def given(rank, dtype, shape=(3, 5)):
    """What a rank passes: small whole numbers, so that every sum is exact in every type."""
    count = 1
    for size in shape:
        count *= size
    numbers = (torch.arange(count) * (rank + 2) + rank) % 5 + 1
    if dtype == torch.bool:
        return (numbers % 2 == rank % 2).view(shape)
    if dtype.is_complex:
        return torch.complex(numbers.float(), -numbers.float()).to(dtype).view(shape)
    return numbers.to(torch.float32).to(dtype).view(shape)


def reduced(ranks, dtype, op, shape=(3, 5)):
    wide = torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else torch.int64
    pieces = [given(rank, dtype, shape).to(wide) for rank in range(ranks)]
    out = pieces[0]
    for piece in pieces[1:]:
        out = {"SUM": torch.add, "AVG": torch.add, "PRODUCT": torch.mul, "MIN": torch.minimum, "MAX": torch.maximum,
               "BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}[op](out, piece)
    if dtype == torch.bool:
        return out != 0
    return (out / ranks if op == "AVG" else out).to(dtype)


def check_reductions(rank, ranks):
    cases = [(dtype, op) for op in ("SUM",) for dtype in SUMMED]
    cases += [(dtype, op) for op in ("MIN", "MAX") for dtype in FLOATS + WHOLE]
    cases += [(dtype, "PRODUCT") for dtype in FLOATS + WHOLE]
    cases += [(dtype, op) for op in ("BAND", "BOR", "BXOR") for dtype in WHOLE]
    cases += [(torch.float64, "AVG"), (torch.complex128, "AVG")] if ranks == 2 else []
    for dtype, op in cases:
        what = (dtype, op)
        how = getattr(dist.ReduceOp, op)
        tensor = given(rank, dtype)
        dist.all_reduce(tensor, how)
        same(tensor, reduced(ranks, dtype, op), ("all_reduce", *what))
        for root in (0, ranks - 1):
            tensor = given(rank, dtype)
            dist.reduce(tensor, root, how)
            same(tensor, reduced(ranks, dtype, op) if rank == root else given(rank, dtype), ("reduce", *what))
        pieces = [given(rank, dtype, (ranks, 4))[piece].clone() for piece in range(ranks)]
        expected = reduced(ranks, dtype, op, (ranks, 4))[rank]
        out = torch.empty_like(pieces[0])
        dist.reduce_scatter(out, pieces, how)
        same(out, expected, ("reduce_scatter", *what))
        out = torch.empty_like(pieces[0])
        dist.reduce_scatter_tensor(out, given(rank, dtype, (ranks, 4)), how)
        same(out, expected, ("reduce_scatter_tensor", *what))
    for dtype in UNSIGNED:
        for op, expected in (("SUM", 3 * ranks), ("MAX", ranks + 2), ("PRODUCT", math.prod(range(3, ranks + 3))),
                             ("BOR", functools.reduce(operator.or_, range(3, ranks + 3)))):
            how = getattr(dist.ReduceOp, op)
            tensor = torch.tensor([3 if op == "SUM" else rank + 3], dtype=dtype)
            dist.all_reduce(tensor, how)
            assert tensor.item() == expected, (dtype, op, tensor)
    # No float is a third, and f64 keeps it.
    thirds = torch.full((4,), 3.0, dtype=torch.float64)
    dist.all_reduce(thirds, dist._make_nccl_premul_sum(1 / 3))
    assert torch.equal(thirds, torch.full_like(thirds, ranks)), thirds
    for dtype in (torch.float16, torch.bfloat16, torch.complex64):
        tensor = given(rank, dtype)
        dist.all_reduce(tensor, dist._make_nccl_premul_sum(0.5))
        same(tensor, reduced(ranks, dtype, "SUM") / 2, ("premul_sum", dtype))
    factor = dist._make_nccl_premul_sum(0.5)
    for dtype in (torch.float32, torch.complex64):
        source = given(rank, dtype)
        expected = reduced(ranks, dtype, "SUM") / 2 if rank == 0 else source.clone()
        dist.reduce(source, 0, factor)
        same(source, expected, ("reduce of premul_sum", dtype))
    source = given(rank, torch.float32, (ranks, 4))
    kept = source.clone()
    out = torch.empty(4)
    dist.reduce_scatter_tensor(out, source, factor)
    same(out, reduced(ranks, torch.float32, "SUM", (ranks, 4))[rank] / 2, "premul_sum")
    same(source, kept, "the input of premul_sum")


def check_moves(rank, ranks):
    for dtype in MOVED:
        for root in range(ranks):
            tensor = given(rank, dtype)
            dist.broadcast(tensor, root)
            same(tensor, given(root, dtype), ("broadcast", dtype))
        expected = [given(other, dtype) for other in range(ranks)]
        out = [torch.empty_like(expected[0]) for _ in range(ranks)]
        dist.all_gather(out, given(rank, dtype))
        for got, due in zip(out, expected):
            same(got, due, ("all_gather", dtype))
        flat = torch.empty((ranks * 3, 5), dtype=dtype)
        dist.all_gather_into_tensor(flat, given(rank, dtype))
        same(flat, torch.cat([one.view(torch.uint8) for one in expected]).view(dtype), ("all_gather_into_tensor", dtype))
        root = ranks - 1
        out = [torch.empty_like(expected[0]) for _ in range(ranks)] if rank == root else None
        dist.gather(given(rank, dtype), out, root)
        for got, due in zip(out or [], expected):
            same(got, due, ("gather", dtype))
        out = torch.empty((3, 5), dtype=dtype)
        dist.scatter(out, [given(other + 7, dtype) for other in range(ranks)] if rank == 0 else None, 0)
        same(out, given(rank + 7, dtype), ("scatter", dtype))
        out = [torch.empty((3, 5), dtype=dtype) for _ in range(ranks)]
        dist.all_to_all(out, [given(10 * rank + to, dtype) for to in range(ranks)])
        for other, got in enumerate(out):
            same(got, given(10 * other + rank, dtype), ("all_to_all", dtype))
        # Rank r sends r + to rows to rank `to`: some of them none.
        rows = [rank + to for to in range(ranks)]
        source = torch.cat([given(10 * rank + to, dtype, (rank + to, 2)).view(-1, 2).view(torch.uint8)
                            for to in range(ranks)]).view(dtype)
        out = torch.empty((sum(rows), 2), dtype=dtype)
        dist.all_to_all_single(out, source, rows, rows)
        due = torch.cat([given(10 * other + rank, dtype, (rank + other, 2)).view(-1, 2).view(torch.uint8)
                         for other in range(ranks)]).view(dtype)
        same(out, due, ("all_to_all_single", dtype))
        if ranks == 1:  # torch sends nothing to the sender itself
            continue
        following, before = (rank + 1) % ranks, (rank - 1) % ranks
        out = torch.empty((3, 5), dtype=dtype)
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, given(rank, dtype), following, tag=3),
                                        dist.P2POp(dist.irecv, out, before, tag=3)])
        for work in works:
            work.wait()
        same(out, given(before, dtype), ("send", dtype))


def check_views(rank, ranks):
    """Tensors that are not contiguous, with strides that differ between ranks: what lies between their elements stays."""
    def view(rows=3):
        return torch.full((5, 2 * rows), -1.0).t()[::2] if rank % 2 == 0 else torch.full((rows, 10), -1.0)[:, ::2]

    def of(seed, rows=3):
        return view(rows).copy_(given(seed, torch.float32, (rows, 5)))

    def check(got, seed, what):
        expected = seed if torch.is_tensor(seed) else given(seed, torch.float32)
        same(got, expected, (what, "of views"))
        assert got._base.eq(-1).sum() == got.numel(), what

    everyone, last = range(ranks), ranks - 1
    tensor = of(rank)
    dist.broadcast(tensor, last)
    check(tensor, last, "broadcast")
    tensor = of(rank)
    dist.all_reduce(tensor)
    check(tensor, reduced(ranks, torch.float32, "SUM"), "all_reduce")
    tensor = of(rank)
    dist.reduce(tensor, 0)
    check(tensor, rank if rank else reduced(ranks, torch.float32, "SUM"), "reduce")
    tensor = view()
    dist.reduce_scatter(tensor, [of(rank) for _ in everyone])
    check(tensor, reduced(ranks, torch.float32, "SUM"), "reduce_scatter")
    tensor = view()
    dist.scatter(tensor, [of(to) for to in everyone] if rank == last else None, last)
    check(tensor, rank, "scatter")
    lists = [view() for _ in everyone]
    dist.gather(of(rank), lists if rank == last else None, last)
    for other, tensor in enumerate(lists if rank == last else []):
        check(tensor, other, "gather")
    lists = [view() for _ in everyone]
    dist.all_gather(lists, of(rank))
    for other, tensor in enumerate(lists):
        check(tensor, other, "all_gather")
    lists = [view() for _ in everyone]
    dist.all_to_all(lists, [of(10 * rank + to) for to in everyone])
    for other, tensor in enumerate(lists):
        check(tensor, 10 * other + rank, "all_to_all")
    if rank == last and ranks > 1:
        dist.send(of(rank), 0)
    elif rank == 0 and ranks > 1:
        tensor = view()
        dist.recv(tensor, last)
        check(tensor, last, "recv")


def check_other(rank, ranks):
    # Lists of unequal sizes, and outputs that are views of one memory.
    out = [torch.empty(other + 1) for other in range(ranks)]
    dist.all_gather(out, torch.full((rank + 1,), float(rank)))
    assert all(torch.equal(one, torch.full((other + 1,), float(other))) for other, one in enumerate(out)), out
    memory = torch.empty(ranks * 4)
    dist.all_gather(list(memory.chunk(ranks)), torch.full((4,), float(rank)))
    assert torch.equal(memory, torch.arange(ranks).repeat_interleave(4).float()), memory
    out = torch.empty(rank + 1)
    dist.reduce_scatter(out, [torch.ones(other + 1) for other in range(ranks)])
    assert torch.equal(out, torch.full((rank + 1,), float(ranks))), out
    # Receive from any; messages are larger than a slot of the channel.
    if rank == 0:
        seen = set()
        for _ in range(ranks - 1):
            message = torch.empty(100_000)
            source = dist.recv(message)
            assert torch.equal(message, torch.full((100_000,), float(source))), source
            seen.add(source)
        assert seen == set(range(1, ranks)), seen
    else:
        dist.send(torch.full((100_000,), float(rank)), 0)
    objects = [None] * ranks
    dist.all_gather_object(objects, {"rank": rank, "more": "x" * (rank * 100)})
    assert [one["rank"] for one in objects] == list(range(ranks))
    objects = [{"from": 0} if rank == 0 else None]
    dist.broadcast_object_list(objects, 0)
    assert objects == [{"from": 0}]
    sparse = torch.sparse_coo_tensor([[rank, ranks]], [1.0, 2.0], (ranks + 1,))
    dist.all_reduce(sparse)
    assert torch.equal(sparse.to_dense(), torch.tensor([1.0] * ranks + [2.0 * ranks])), sparse
    tensors = [torch.ones(3), torch.ones(5)]
    dist.all_reduce_coalesced(tensors)
    assert all(torch.equal(one, torch.full_like(one, ranks)) for one in tensors)
    dist.barrier()
    group = dist.distributed_c10d._get_default_group()
    group.monitored_barrier()
    assert group._get_backend(torch.device("cpu")).name() == "muster"


def check_groups(rank, ranks):
    """Groups of some ranks, made by these only, and in another order on each rank."""
    if ranks < 3:
        return
    group = dist.new_group([1, 2], timeout=datetime.timedelta(seconds=60))
    if rank in (1, 2):
        tensor = torch.tensor([float(rank)])
        dist.all_reduce(tensor, group=group)
        assert tensor.item() == 3
    alone = dist.new_group([0])
    if rank == 0:
        tensor = torch.ones(2)
        dist.all_reduce(tensor, group=alone)
        assert tensor.sum() == 2


def check_futures(rank, ranks):
    """A callback that waits for another collective, as PowerSGD's hook does; works whose last reference is dropped."""
    def nested(future):
        return dist.all_reduce(future.value()[0] * 2, async_op=True).get_future().wait()[0]

    for step in range(20):
        future = dist.all_reduce(torch.full((1000,), float(rank + step)), async_op=True).get_future().then(nested)
        expected = 2.0 * ranks * sum(other + step for other in range(ranks))
        assert torch.equal(future.wait(), torch.full((1000,), expected)), (step, expected)
    # The same with another operation in the queue behind it: the callback must not keep that one's thread. The last
    # rank comes when all others have queued both.
    store = dist.distributed_c10d._get_default_store()
    for step in range(5):
        last = rank == ranks - 1
        if last:
            store.wait([f"queued/{step}/{other}" for other in range(ranks - 1)])
        first = dist.all_reduce(torch.ones(1000), async_op=True)
        future = None if last else first.get_future().then(nested)
        behind = dist.all_reduce(torch.ones(1000), async_op=True)
        if last:
            behind.wait()
            result = dist.all_reduce(torch.full((1000,), 2.0 * ranks), async_op=True).get_future().wait()[0]
        else:
            store.set(f"queued/{step}/{rank}", "1")
            result = future.wait()
            behind.wait()
        assert torch.equal(result, torch.full((1000,), 2.0 * ranks * ranks)), step
    futures = [dist.all_reduce(torch.full((1000,), float(step)), async_op=True).get_future().then(lambda one: one.value()[0])
               for step in range(50)]
    for step, future in enumerate(futures):
        assert torch.equal(future.wait(), torch.full((1000,), float(step * ranks))), step
    for _ in range(50):
        dist.all_reduce(torch.ones(10_000), async_op=True)
    dist.barrier()


def check_refusals(rank, ranks):
    """Refused alike on all ranks, and the group lives on. What is wrong with a rank's own arguments names that rank."""
    def refused(words, function, *arguments, **more):
        try:
            function(*arguments, **more)
        except (RuntimeError, ValueError) as error:
            assert words in str(error), (words, str(error))
            return
        raise AssertionError(f"not refused: {words}")

    def refused_here(words, *call, **more):
        refused(f"rank {rank} of group torch/0: {words}", *call, **more)

    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    refused("No backend type associated with device type cuda", dist.group.WORLD._get_backend, torch.device("cuda"))
    on_meta = "the tensor is on meta, and the muster back end serves tensors on the CPU; move it there"
    refused_here(f"all_reduce: {on_meta}", backend.allreduce, [torch.zeros(2, device="meta")])
    three, four = [torch.zeros(3) for _ in range(ranks)], torch.zeros(4)
    refused_here(f"all_gather: {on_meta}", dist.all_gather, [*three[1:], torch.zeros(3, device="meta")], torch.zeros(3))
    for name, which, piece, *call in (("gather", "input", 0, dist.gather, four, three, rank), ("all_gather", "input", rank, dist.all_gather, three, four),
                                      ("scatter", "output", 0, dist.scatter, four, three, rank),
                                      ("reduce_scatter", "output", rank, dist.reduce_scatter, four, three)):
        refused_here(f"{name}: tensor {piece} of the list has 3 elements of Float, and the {which} 4 of Float; both need", *call)
    refused_here(f"all_gather: the list has {ranks + 1} tensors; it needs one for each of the {ranks} ranks", dist.all_gather, [*three, four], four)
    refused_here(f"broadcast: the root is rank {ranks}, and the group has the ranks 0 to {ranks - 1}; pass one", backend.broadcast, four, ranks)
    refused_here("SUM of Float8_e4m3fn is not supported", dist.all_reduce, torch.zeros(2, dtype=torch.float8_e4m3fn))
    if ranks > 1:
        ones, rows = [1] * ranks, ranks + 1
        for words, given, sizes in ((f"the input has {rows} rows, which {ranks} ranks cannot share equally; pass split sizes", rows, []),
                                    (f"the input has {rows} rows, and its {ranks} split sizes add up to {ranks}; pass one for", rows, ones),
                                    (f"the input has {rows} rows, and its {rows} split sizes add up to {rows}; pass one for", rows, [*ones, 1]),
                                    ("a split size of the input is -1; it is a number of rows", ranks, [rows, *[0] * (ranks - 2), -1])):
            refused_here(f"all_to_all_single: {words}", dist.all_to_all_single, torch.zeros(ranks), torch.zeros(given), ones, sizes)
    refused("AVG of Int is not supported", dist.all_reduce, torch.zeros(2, dtype=torch.int32), dist.ReduceOp.AVG)
    refused("BAND of Float is not supported", dist.all_reduce, torch.zeros(2), dist.ReduceOp.BAND)
    refused("PREMUL_SUM of Int is not supported", dist.all_reduce, torch.zeros(2, dtype=torch.int32),
            dist._make_nccl_premul_sum(0.5))
    refused("output tensor size must be equal", dist.all_gather_into_tensor, torch.zeros(3 * ranks), torch.zeros(2))
    if ranks > 1:
        rows = [2] * ranks
        if rank == 1:
            rows[0] = 3
        refused("rank 0 passes the shape [1, 1] with 2 sparse dimensions, and rank 1 [2, 2] with 2 sparse", dist.all_reduce, torch.eye(rank + 1).to_sparse())
        refused("sends 3 elements of f32 to rank 0", dist.all_to_all_single,
                torch.zeros(2 * ranks), torch.zeros(sum(rows)), [2] * ranks, rows)
    dist.barrier()


def main():
    store = sys.argv[1] if len(sys.argv) > 1 else "env://"
    more = {} if store == "env://" else {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
    dist.init_process_group("muster", init_method=store, timeout=datetime.timedelta(seconds=60), **more)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    check_refusals(rank, ranks)
    check_reductions(rank, ranks)
    check_moves(rank, ranks)
    check_views(rank, ranks)
    check_other(rank, ranks)
    check_groups(rank, ranks)
    check_futures(rank, ranks)
    dist.destroy_process_group()
    print(f"rank {rank} of {ranks} good")


if __name__ == "__main__":
    main()
