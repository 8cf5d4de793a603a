"""What tests/integration/capi/python_test.py runs on each rank. First argument: which of the functions below."""
import array
import ctypes
import gc
import os
import sys
import threading
import weakref

import muster
import python_moves
import python_reductions


def raises(kind, words, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except kind as error:
        assert words in str(error), f"{words!r} is not in {error!r}"
        return error
    raise AssertionError(f"nothing was raised; expected {kind.__name__} with {words!r}")


def operations(context):
    world, rank, size = context.world, context.rank, context.world_size
    total = size * (size + 1) / 2
    assert (world.rank, world.size) == (rank, size) and context.place.local_rank == rank
    assert world.transport in ("shared memory", "tcp", "alone")

    for code in "fdilqBbhIQ":
        values = array.array(code, [rank + 1] * 3)
        world.all_reduce(values)
        assert list(values) == [total] * 3, values
    python_reductions.check(world, raises)
    grid = (ctypes.c_double * 2 * 3)()
    grid[2][1] = rank
    world.all_reduce(grid, op="avg")
    assert grid[2][1] == (size - 1) / 2
    weighted = array.array("d", [rank])
    world.all_reduce_weighted(weighted, rank + 0.5)
    assert abs(weighted[0] - sum(r * (r + 0.5) for r in range(size)) / sum(r + 0.5 for r in range(size))) < 1e-12

    pieces = array.array("i", [-1] * 2 * size)
    world.all_gather(bytes(array.array("i", [rank, 7])), pieces, type="i32")  # a read-only input
    assert list(pieces) == [value for r in range(size) for value in (r, 7)]
    own = array.array("i", [0, 0])
    world.reduce_scatter(pieces, own)
    assert list(own) == [size * rank, size * 7]
    out = array.array("i", [0] * size)
    world.all_to_all(array.array("i", [10 * rank + r for r in range(size)]), out)
    assert list(out) == [10 * r + rank for r in range(size)]
    python_moves.with_a_root(world)
    python_moves.uneven(world)
    text = bytearray(b"root" if rank == size - 1 else b"????")
    world.broadcast(text, size - 1)
    assert text == b"root"
    world.broadcast(bytearray(), 0)
    if size > 1:
        sent = world.send(array.array("q", [rank]), (rank + 1) % size, wait=False)
        got = array.array("q", [-1])
        world.receive(got, (rank - 1) % size)
        assert got[0] == (rank - 1) % size
        sent.wait()
    group = world.split(rank % 2 if rank < 2 else -1)
    assert (group is None) == (rank >= 2)
    if group is not None:
        assert group.size == 1 and group.rank == 0
        group.close()
        raises(muster.MusterError, "released", group.barrier)
    world.barrier()


def background(context):
    """Started work keeps its memory, also when everything about it is dropped."""
    world = context.world
    shared = world.allocate((4, 5), "f64")
    assert shared.shape == (4, 5) and shared[3, 4] == 0
    shared[3, 4] = context.rank + 1
    work = world.all_reduce(shared, timeout=60, wait=False)
    work.wait()
    aside = world.split(0)
    if context.rank > 0:
        aside.barrier()  # rank 0's operation cannot end before
    values = array.array("f", [1] * 10000)
    dropped = weakref.ref(values)
    world.all_reduce(values, wait=False)
    del values
    gc.collect()
    if context.rank == 0:
        assert dropped() is not None
        aside.barrier()
    world.barrier()
    world.barrier(wait=False).wait()
    gc.collect()
    assert dropped() is None
    last = world.barrier(wait=False)
    last.wait()
    assert work.done and work.took > 0
    work.wait()
    assert shared[3, 4] == sum(range(1, context.world_size + 1))
    world.check()


def threads(context):
    """A thread that waits in the library leaves the interpreter to the others."""
    world, aside = context.world, context.world.split(0)
    begun = threading.Event()

    def let_the_others_come():
        begun.wait()
        aside.barrier()

    helper = threading.Thread(target=let_the_others_come)
    if context.rank == 0:
        helper.start()
        begun.set()
    else:
        aside.barrier()
    world.barrier(timeout=60)
    if context.rank == 0:
        helper.join()


def train(context):
    world, rank, size = context.world, context.rank, context.world_size
    weight, bias = array.array("f", [rank] * 6), array.array("d", [rank])
    reducer = muster.GradientReducer(world, {"weight": memoryview(weight).cast("B").cast("f", (2, 3)), "bias": bias},
                                     bucket_cap_mb="auto", uneven_inputs=True)
    assert list(weight) == [0] * 6 and bias[0] == 0, "rank 0's"
    assert reducer.description.startswith("2 parameters"), reducer.description
    applied = []
    for step in range(rank + 3):  # rank r has r + 3 batches
        moved = reducer.begin_step(samples=1)
        assert moved in (True, False)
        gradient = reducer.gradient("weight")
        assert gradient.shape == (2, 3)
        gradient[1, 2] = rank + 1
        reducer.mark_ready(0)
        reducer.finish()
        live = [r + 1 for r in range(size) if r + 3 > step]
        assert abs(gradient[1, 2] - sum(live) / len(live)) < 1e-6
        assert reducer.used("weight") and not reducer.used("bias")
        applied.append(step)
    reducer.add_data_wait(0.25)
    assert reducer.last_step.total > 0 and reducer.last_step.samples == 1 + (size - 1 - rank)
    reducer.join(lambda: applied.append("joined"))
    assert len(applied) == size + 2
    assert reducer.first_step.samples == size and reducer.mean_step.total >= 0
    assert len(reducer.lateness) == size and min(reducer.lateness) >= 0

    reducer = muster.GradientReducer(world, [("weight", weight)], wire="bf16", finite_check=True, order="registered")
    reducer.begin_local_step()
    reducer.gradient(0)[0] = 3
    reducer.mark_ready("weight")
    reducer.finish()
    assert reducer.gradient(0)[0] == 3
    reducer.zero_gradients()
    reducer.begin_step()
    reducer.gradient(0)[0] = 3
    reducer.mark_ready("weight")
    reducer.finish()
    assert reducer.clip_grad_norm(1) == 3
    assert abs(reducer.gradient(0)[0] - 1) < 1e-6
    report = reducer.scaling_report(world_size=1, samples_per_second=1e9, samples_per_step=1)
    assert report.text and report.estimated <= 1
    view = reducer.gradient(0)
    del reducer
    gc.collect()
    view[0] = 5  # an array keeps the reducer that it points into


class InPieces(muster.Exchange):
    """Each rank adds up its piece in f64, and sends it to all."""
    name = "in pieces"

    def __init__(self, world, fails=None):
        self.world = world
        self.fails = fails
        self.prepared = []
        self.remembers = b"nothing yet"

    def prepare(self, buckets):
        assert all(bucket.gradients is None and bucket.samples is None and bucket.step is None for bucket in buckets)
        self.prepared = [(bucket.index, tuple(bucket.slices)) for bucket in buckets]

    def collective_count(self, bucket):
        return 2

    def average(self, bucket):
        size = self.world.size
        count = -(-len(bucket.gradients) // size)
        weighted = array.array("d", [bucket.samples * value for value in bucket.gradients] + [0] * (count * size))
        pieces, own = weighted[:count * size], array.array("d", [0] * count)
        yield muster.Collective.reduce_scatter(pieces, own)
        yield muster.Collective.all_gather(own, pieces)
        for i in range(len(bucket.gradients)):
            bucket.gradients[i] = pieces[i] / (size * (size + 1) / 2)
        self.remembers = f"step {bucket.step}".encode()

    def keep(self):
        return self.remembers

    def restore(self, kept):
        self.remembers = kept


def exchange(context):
    world = context.world
    rank, size = context.rank, context.world_size
    weight, bias = array.array("f", [0] * 300), array.array("f", [0] * 5)

    def make(own, **options):
        return muster.GradientReducer(world, {"weight": weight, "bias": bias}, exchange=own, order="registered",
                                      bucket_cap_mb=0.001, first_bucket_mb=0.0001, **options)

    def step(reducer):
        reducer.begin_step(samples=rank + 1)
        for name in ("bias", "weight"):
            gradient = reducer.gradient(name)
            for i in range(len(gradient)):
                gradient[i] = rank + 1 + i
            reducer.mark_ready(name)
        reducer.finish()

    own = InPieces(world)
    reducer = make(own)
    assert "wire in pieces" in reducer.description, reducer.description
    assert own.prepared == [(0, ((1, 0, 5),)), (1, ((0, 0, 300),))], own.prepared
    for _ in range(2):
        step(reducer)
        for name in ("bias", "weight"):
            gradient = reducer.gradient(name)
            for i in range(len(gradient)):
                assert abs(gradient[i] - ((2 * size + 1) / 3 + i)) < 1e-4, (name, i, gradient[i])
    kept = reducer.keep()
    assert kept.own.startswith(b"step 1"), kept
    other = InPieces(world)
    make(other).restore(kept.plan, kept.own)
    assert other.remembers == b"step 1"

    raises(TypeError, "with a name", make, object())
    raises(muster.MusterError, "either `exchange` or `wire`", make, InPieces(world), wire="bf16")
    raises(ValueError, "op is 'median'", muster.Collective.all_reduce, weight, "median")
    parameter = weakref.ref(weight := Floats([1]))
    reducer = muster.GradientReducer(world, {"weight": weight}, exchange=InPieces(world))
    del reducer, weight
    assert parameter() is None, "it goes with its reducer"


class Floats(array.array):
    """One that can be watched."""

    def __new__(cls, values):
        return super().__new__(cls, "f", values)


def exchange_mistakes(context):
    """What goes wrong in one rank's exchange is raised there, and told to the others, at once."""
    world, rank, size = context.world, context.rank, context.world_size

    class Wrong(InPieces):
        def average(self, bucket):
            return self.fails(bucket, super().average(bucket)) if self.fails else super().average(bucket)

    class WrongCount(InPieces):
        def collective_count(self, bucket):
            return self.fails() if self.fails else 2

    class WrongStart(InPieces):
        def prepare(self, buckets):
            if self.fails:
                raise OSError("no room")

    def then(second):
        def average(bucket, right):
            yield next(right)
            yield second(bucket)
        return average

    def calls(what):
        def average(bucket, right):
            yield next(right)
            reducers[-1].mark_ready(what) if what is not None else reducers[-1].finish()
        return average

    def nothing(bucket, right):
        return iter(())

    def none_at_last(bucket, right):
        yield from right
        yield

    reducers = []
    number = "muster.Collective, not 5"
    for group_number, (kind, fails, error, words, there) in enumerate([
            (Wrong, then(lambda _: 5), TypeError, number, number),
            (Wrong, then(lambda bucket: muster.Collective.broadcast(bucket.gradients, 99)), muster.MusterError,
             "the ranks are 0 to", "the ranks are 0 to"),
            (Wrong, then(lambda bucket: muster.Collective.all_reduce_weighted(bucket.gradients, -1)), muster.MusterError,
             "weight must be a finite number", "weight must be a finite number"),
            (Wrong, nothing, muster.MusterError, "announced 2 collectives for bucket 0 and returned fewer", "returned fewer"),
            *([(Wrong, none_at_last, TypeError, "not None", None)] if size == 1 else []),  # others need no more of this rank
            (Wrong, calls("weight"), muster.MusterError, "must not call the reducer", "must not call the reducer"),
            (Wrong, calls(None), muster.MusterError, "must not call the reducer", "must not call the reducer"),
            (WrongCount, lambda: 1000, muster.MusterError, "returned 1000; 0 to 64", "returned 1000; 0 to 64"),
            (WrongCount, lambda: None, TypeError, "", "TypeError"),
            (WrongCount, lambda: 1 / 0, ZeroDivisionError, "division", "ZeroDivisionError: division"),
            (WrongStart, True, OSError, "no room", "OSError: no room")]):
        group = world.split(0)
        weight, bias = array.array("f", [0] * 300), array.array("f", [0] * 5)

        def train():
            own = kind(group, fails=fails if rank == size - 1 else False)
            reducer = muster.GradientReducer(group, {"weight": weight, "bias": bias}, exchange=own, order="registered",
                                             bucket_cap_mb=0.001, first_bucket_mb=0.0001)
            reducers.append(reducer)
            reducer.begin_step(samples=rank + 1)
            reducer.mark_ready("bias")
            reducer.mark_ready("weight")
            reducer.finish()

        guilty = rank == size - 1
        raised = raises(error if guilty else muster.MusterError, words if guilty else there, train)
        assert guilty or f"rank {size - 1}" in str(raised), (group_number, raised)
        world.barrier()  # which stands


def shard(context):
    """ZeRO-1: the same as an optimizer of one's own, and pieces that make up a checkpoint."""
    world, rank, size = context.world, context.rank, context.world_size
    weight, bias = array.array("f", [1] * 37), array.array("f", [2])
    reducer = muster.GradientReducer(world, {"weight": weight, "bias": bias}, own_piece=True)
    optimizer = muster.ShardedOptimizer(reducer, "sgd", learning_rate=0.5)
    for step in range(2):
        reducer.begin_step()
        for name in ("bias", "weight"):
            gradient = reducer.gradient(name)
            for i in range(len(gradient)):
                gradient[i] = i + rank
            reducer.mark_ready(name)
        reducer.finish()
        optimizer.step()
        optimizer.set_learning_rate(0.25)
    mean = (size - 1) / 2
    assert all(abs(weight[i] - (1 - 0.75 * (i + mean))) < 1e-4 for i in range(37)), weight
    assert abs(bias[0] - (2 - 0.75 * mean)) < 1e-5
    count = array.array("q", [0])
    for piece in optimizer.pieces:
        assert piece.first is None and piece.second is None and piece.updates[0] == 2
        count[0] += len(piece.values)
        for i in range(len(piece.values)):
            piece.values[i] = piece.offset + i + (100 if piece.parameter == "bias" else 0)
    world.all_reduce(count)
    assert count[0] == 38
    optimizer.reload()
    assert list(weight) == list(range(37)) and bias[0] == 100
    adam = muster.ShardedOptimizer(reducer, "adamw", beta1=0.8, weight_decay=0)
    assert all(len(piece.first) == len(piece.second) == len(piece.values) for piece in adam.pieces)
    raises(ValueError, "kind is 'lion'; known: sgd", muster.ShardedOptimizer, reducer, "lion")
    raises(TypeError, "sgd has no setting 'beta1'", muster.ShardedOptimizer, reducer, "sgd", beta1=1)
    raises(muster.MusterError, "own_piece", muster.ShardedOptimizer, muster.GradientReducer(world, {"w": bias}), "adam")


def services(context):
    """The store, and batch statistics of all ranks together."""
    world, rank, size = context.world, context.rank, context.world_size
    store = context.store
    if size > 1:
        if rank == 0:
            store.set("text", "of rank 0")
            store.set("large", bytes(10000))
        assert store.get("text", timeout=30) == b"of rank 0"
        assert store.get("large") == bytes(10000)
        store.add("sum", rank + 1)
        world.barrier()
        assert store.add("sum", 0) == size * (size + 1) // 2
        if rank == 0:
            assert store.erase("text") and not store.erase("text")
            assert raises(muster.MusterError, "text", store.get, "text", timeout=0.05).code == "timed_out"
            assert raises(muster.MusterError, "at most 8192 are possible", store.get, "k" * 9000, timeout=0.05).code == "limit_exceeded"
    else:
        store.set("key", b"1")
        assert store.get("key") == b"1" and store.add("key", 2) == 3 and store.erase("key")
    mean, variance = array.array("f", [rank, -rank]), array.array("f", [0, 0])
    assert world.batch_statistics(mean, variance, 2) == 2 * size
    expected = sum(range(size)) / size
    assert abs(mean[0] - expected) < 1e-6 and mean[1] == -mean[0]
    assert abs(variance[0] - (sum(r * r for r in range(size)) / size - expected * expected)) < 1e-5
    gradient, product = array.array("f", [1, 2]), array.array("f", [3, 4])
    world.batch_gradients(gradient, product)
    assert list(gradient) == [size, 2 * size] and list(product) == [3 * size, 4 * size]
    raises(TypeError, "statistics must be f32", world.batch_gradients, array.array("d", [1]), array.array("d", [1]))


def mistakes(context):
    world = context.world
    values = array.array("f", [1, 2])
    invalid = raises(muster.MusterError, "the ranks are 0 to", world.broadcast, values, context.world_size)
    assert invalid.code == "invalid_argument"
    raises(muster.MusterError, "average of integers", world.all_reduce, array.array("q", [1]), "avg")
    raises(ValueError, "op is 'median'; known: sum", world.all_reduce, values, "median")
    raises(ValueError, "type is 'f8'; known: f32", world.all_reduce, values, type="f8")
    raises(TypeError, "read-only", world.all_reduce, b"1234")
    raises(TypeError, "format 'H' may be u16, or the bits of bf16", world.all_reduce, array.array("H", [1]))
    raises(TypeError, "", world.all_reduce, [1, 2])
    raises(ValueError, "not contiguous", world.all_reduce, memoryview(array.array("f", [0] * 4))[::2])
    raises(ValueError, "not a whole number", world.all_reduce, bytearray(3), type="f32")
    raises(ValueError, "expected", world.all_gather, values, array.array("f", [0] * (2 * context.world_size + 1)))
    raises(ValueError, "timeout", world.barrier, timeout=0)
    started = world.broadcast(values, -1, wait=False)
    raises(muster.MusterError, "the ranks are 0 to", started.wait)
    raises(muster.MusterError, "occurs twice", muster.GradientReducer, world, [("w", values), ("w", values)])
    # What is wrong on one rank alone is an error on all, at once.
    if context.rank == 1:
        raises(ValueError, "wire is 'fp4'", muster.GradientReducer, world, {"w": values}, wire="fp4")
    elif context.world_size == 2:
        raises(muster.MusterError, "rank 1 could not make its gradient reducer", muster.GradientReducer, world,
               {"w": values})
    reducer = muster.GradientReducer(world, {"w": values})
    raises(KeyError, "there is no parameter 'v'", reducer.gradient, "v")
    raises(muster.MusterError, "there is no parameter 1", reducer.gradient, 1)
    raises(muster.MusterError, "marked ready before begin_step", reducer.mark_ready, "w")
    world.barrier()
    reducer = muster.GradientReducer(world, {"w": values}, uneven_inputs=True)
    if context.rank == 1:
        reducer.begin_step()
        reducer.mark_ready(0)
        reducer.finish()
    elif context.world_size == 2:
        raises(ZeroDivisionError, "division", reducer.join, lambda: 1 / 0)


def forked(context):
    """A data loader's process that ends in order takes nothing of the job with it."""
    context.world.barrier()
    child = os.fork()
    if child == 0:
        sys.exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    context.world.barrier()


def death(context):
    context.world.barrier()
    if context.rank == 1:
        os._exit(0)
    error = raises(muster.MusterError, "rank 1", context.world.barrier)
    assert error.code == "peer_closed"
    raises(muster.MusterError, "rank 1", context.world.check)


def packages(context):
    """Arrays of numpy and torch, where they are there, without copies, and what comes back is of their kind."""
    world, size = context.world, context.world_size
    assert "torch" not in sys.modules and "numpy" not in sys.modules
    import torch
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8):
        tensor = torch.full((2, 3), context.rank + 1, dtype=dtype)
        world.all_reduce(tensor)
        assert (tensor == size * (size + 1) // 2).all(), tensor
    raises(ValueError, "contiguous", world.all_reduce, torch.zeros(4, 4).t()[1:])
    raises(TypeError, "torch.complex64", world.all_reduce, torch.zeros(1, dtype=torch.complex64))
    shared = world.allocate((3, 2), like=torch.zeros(0, dtype=torch.bfloat16))
    assert shared.dtype == torch.bfloat16 and shared.shape == (3, 2)
    layer = torch.nn.Linear(3, 2)
    reducer = muster.GradientReducer(world, layer.named_parameters())
    assert isinstance(reducer.gradient("weight"), torch.Tensor) and reducer.gradient("weight").shape == (2, 3)

    class Halves(muster.Exchange):
        name = "halves"

        def average(self, bucket):
            half = bucket.gradients.to(torch.bfloat16)
            yield muster.Collective.all_reduce_weighted(half, bucket.samples)
            bucket.gradients.copy_(half)

    reducer = muster.GradientReducer(world, layer.named_parameters(), exchange=Halves())
    reducer.begin_step()
    for name in ("bias", "weight"):
        reducer.gradient(name).fill_(1 + 2 * context.rank)
        reducer.mark_ready(name)
    reducer.finish()
    assert (reducer.gradient("weight") == size).all()
    try:
        import numpy
    except ImportError:
        return
    values = numpy.full((2, 2), context.rank, numpy.float16)
    world.all_reduce(values, "max")
    assert (values == size - 1).all()
    raises(ValueError, "contiguous", world.all_reduce, numpy.zeros((4, 4))[:, 1])
    reducer = muster.GradientReducer(world, {"w": numpy.zeros((2, 3))})
    assert isinstance(reducer.gradient("w"), numpy.ndarray) and reducer.gradient("w").shape == (2, 3)


if __name__ == "__main__":
    with muster.Context(operation_timeout=100) as opened:
        globals()[sys.argv[1]](opened)
        print(f"rank {opened.rank} of {opened.world_size}: {sys.argv[1]} done", flush=True)
