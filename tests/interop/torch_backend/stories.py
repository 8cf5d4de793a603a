"""What befalls a process group: each function is one rank of a story. stories_test.py forks the ranks."""

import datetime
import hashlib
import io
import os
import re
import resource
import signal
import sys
import threading
import time
import types
import warnings
from pathlib import Path

import torch
import torch.distributed as dist

PATIENCE = datetime.timedelta(seconds=60)


def meet(folder, rank, ranks, timeout=PATIENCE):
    """By a FileStore: nothing of a launcher is there."""
    dist.init_process_group("muster", init_method=f"file://{folder}/store", rank=rank, world_size=ranks, timeout=timeout)
    # Who ends early does so when all have their group: else the last one's would not come about.
    store = dist.distributed_c10d._get_default_store()
    store.set(f"has group/{rank}", "1")
    store.wait([f"has group/{other}" for other in range(ranks)])
    return dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))


def failure_of(function):
    try:
        function()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("it succeeded")


def death(folder, rank, ranks):
    """Rank 1 is killed inside an all_reduce. The others get an exception that names it."""
    meet(folder, rank, ranks)
    data = torch.ones(4_000_000)
    if rank == 1:
        def kill():
            time.sleep(0.3)
            with open(f"{folder}/killed", "w") as file:
                file.write(f"{os.getpid()} {time.monotonic()}")
            os.kill(os.getpid(), signal.SIGKILL)
        threading.Thread(target=kill).start()

    def work():
        while True:
            dist.all_reduce(data)

    text = failure_of(work)
    now = time.monotonic()
    with open(f"{folder}/killed") as file:
        pid, at = file.read().split()
    assert re.search(rf"rank 1 \(pid {pid} on \S+\) died", text), text
    print(f"death: told rank {rank} after {(now - float(at)) * 1000:.1f} ms")
    assert now - float(at) < 30  # the operation's own deadline is at 60 s
    again = failure_of(lambda: dist.all_reduce(data))
    assert "rank 1" in again, again


def abort(folder, rank, ranks):
    """abort() in another thread frees a blocked operation, here and on the other ranks."""
    backend = meet(folder, rank, ranks)
    at = []
    if rank == 0:
        def end():
            while not os.path.exists(f"{folder}/receives"):
                time.sleep(0.005)
            time.sleep(0.2)
            at.append(time.monotonic())
            backend.abort()
        threading.Thread(target=end).start()
        text = failure_of(lambda: dist.all_reduce(torch.ones(10)))
        print(f"abort: freed after {(time.monotonic() - at[0]) * 1000:.1f} ms")
        assert time.monotonic() - at[0] < 30
    else:
        open(f"{folder}/receives", "w").close()
        text = failure_of(lambda: dist.recv(torch.ones(10), 0))
    assert "abort" in text, text


def exit_pending(folder, rank, ranks, mode):
    """The end of a script with works pending: no abort, no hang."""
    import muster.torch
    muster.torch._EXIT_GRACE_SECONDS = 0.2
    meet(folder, rank, ranks)
    seen = []
    works = []
    if rank == 0 or mode != "alone":
        for _ in range(20):
            work = dist.all_reduce(torch.ones(100_000), async_op=True)
            work.get_future().then(lambda future: seen.append(future.value()))
            works.append(work if mode == "kept" else None)
    if mode == "destroyed":
        dist.destroy_process_group()
    if mode == "alone" and rank == 1:
        # Takes part in nothing until rank 0 has ended.
        failure_of(lambda: dist.recv(torch.ones(1), 0))
    sys.exit(0)


def exit_daemon(folder, rank, ranks):
    """The end of a script while a daemon thread is in a call: it never comes back into an interpreter that ends."""
    import muster.torch
    muster.torch._EXIT_GRACE_SECONDS = 0.2
    meet(folder, rank, ranks)
    begun = threading.Event()

    def receive():
        begun.set()
        while True:
            try:
                dist.recv(torch.ones(1), 1 - rank)
            except RuntimeError:
                pass

    threading.Thread(target=receive, daemon=True).start()
    begun.wait()
    dist.barrier()
    sys.exit(0)


def exit_join(folder, rank, ranks):
    """A function that the end of the interpreter runs after muster's joins a thread that was in a call."""
    import atexit

    import muster.torch
    muster.torch._EXIT_GRACE_SECONDS = 0.2
    threads = []
    atexit.register(lambda: [thread.join() for thread in threads])
    meet(folder, rank, ranks)
    threads.append(threading.Thread(target=lambda: failure_of(lambda: dist.recv(torch.ones(1), 1 - rank)), daemon=True))
    threads[0].start()
    dist.barrier()
    sys.exit(0)


def excepthook(folder, rank, ranks):
    """A program's own sys.excepthook stays through recoveries, whenever it was set, and an error reaches it once."""
    from muster.torch.recover import _TorchRecovery

    def own(*error):
        calls.append(error)
        sys.__excepthook__(*error)

    for moment in ("before the call", "before the group", "with the group"):
        sys.excepthook = own if moment == "before the call" else sys.__excepthook__
        for turn in range(3):
            recovery = _TorchRecovery(types.SimpleNamespace(world=None))
            if moment == "before the group" and turn == 0:
                sys.excepthook = own
            dist.init_process_group("muster", init_method=f"file://{folder}/{moment.replace(' ', '_')}{turn}", rank=rank, world_size=ranks, timeout=PATIENCE)
            if moment == "with the group" and turn == 0:
                sys.excepthook = own
            dist.barrier()
            calls, usual, sys.stderr = [], sys.stderr, io.StringIO()
            sys.excepthook(ValueError, ValueError("planned"), None)
            told, sys.stderr = sys.stderr.getvalue(), usual
            assert len(calls) == 1 and told.count("[rank") <= 1, (moment, turn, calls, told)
            recovery.finish()
            recovery.leave(RuntimeError("of the round"))
            assert sys.excepthook is own, (moment, turn)


def ddp(folder, rank, ranks):
    """A plain script. Its weights go to a file, to be compared with another run's."""
    meet(folder, rank, ranks)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 200), torch.nn.ReLU(), torch.nn.Linear(200, 10))
    model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.05)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(rank)
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.randn(16, 64) * 10**rank).square().mean().backward()
        optimizer.step()
    weights = torch.cat([one.detach().flatten() for one in model.parameters()])
    with open(f"{folder}/weights.{rank}", "w") as file:
        file.write(hashlib.sha256(weights.numpy().tobytes()).hexdigest())


def power_sgd(folder, rank, ranks):
    """torch's hook that waits for collectives inside callbacks of others."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
    meet(folder, rank, ranks)
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(128, 128))
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    for _ in range(5):
        model(torch.randn(4, 128)).sum().backward()


def detail(folder, rank, ranks):
    """TORCH_DISTRIBUTED_DEBUG=DETAIL wraps the back end."""
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    dist.set_debug_level_from_env()
    dist.init_process_group("muster", init_method=f"file://{folder}/store", rank=rank, world_size=ranks, timeout=PATIENCE)
    data = torch.ones(10)
    dist.all_reduce(data)
    assert data.sum() == 10 * ranks
    text = failure_of(lambda: dist.all_reduce(torch.ones(10 + rank)))
    assert "shape" in text.lower(), text


def forked(folder, rank, ranks):
    """A forked child has the group but not its threads."""
    meet(folder, rank, ranks)
    child = os.fork()
    if child == 0:
        text = failure_of(lambda: dist.all_reduce(torch.ones(1)))
        os._exit(0 if "forked child" in text else 1)
    assert os.waitpid(child, 0)[1] == 0
    dist.barrier()


def keyless(folder, rank, ranks):
    """The job has a key and this worker cannot get it."""
    os.environ["MUSTER_RANKS_SECURITY"] = "auth"
    os.environ.pop("MUSTER_AGENT_SOCKET", None)
    text = failure_of(lambda: meet(folder, rank, ranks))
    assert "MUSTER_AGENT_SOCKET is not set" in text, text


def reopened(folder, rank, ranks):
    """The same store again, whose keys of the first meeting are still there."""
    store = dist.FileStore(f"{folder}/again", ranks)
    for value in (1.0, 2.0):
        dist.init_process_group("muster", store=store, rank=rank, world_size=ranks, timeout=PATIENCE)
        data = torch.full((3,), value)
        dist.all_reduce(data)
        assert torch.equal(data, torch.full((3,), value * ranks))
        dist.destroy_process_group()


def parent_had_group(folder, rank, ranks):
    """A forked child makes a group of its own: it has threads, and hears of a death."""
    dist.init_process_group("muster", init_method=f"file://{folder}/own{rank}", rank=0, world_size=1)
    dist.all_reduce(torch.ones(3), async_op=True).wait()
    dist.destroy_process_group()
    child = os.fork()
    if child == 0:
        try:
            meet(folder, rank, ranks)
            assert dist.all_reduce(torch.ones(3), async_op=True).wait(PATIENCE)
            dist.barrier()
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            began = time.monotonic()
            text = failure_of(lambda: dist.all_reduce(torch.ones(3)))
            assert re.search(r"rank 1 \(pid \d+ on \S+\) died", text), text
            assert time.monotonic() - began < 30
            os._exit(0)
        except BaseException as error:
            print(error, flush=True)
            os._exit(1)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert ended == (-signal.SIGKILL if rank == 1 else 0), ended


def mapping_of(tensor):
    """The line of /proc/self/maps that has the tensor."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            begin, end = (int(word, 16) for word in line.split()[0].split("-"))
            if begin <= tensor.data_ptr() < end:
                return line
    raise AssertionError("the tensor is in no mapping")


def check_pool_limit(backend, folder, rank):
    """Where the system gives no more shared memory, a tensor is ordinary memory, and one warning says why."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)  # of memfds, too
    stderr = os.dup(2)
    count = 64 << 20
    with open(Path(folder) / f"warning_{rank}", "w+") as told, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        os.dup2(told.fileno(), 2)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
        try:
            tensors = [backend.allocate_tensor(count, dtype=torch.float32, device=torch.device("cpu")) for _ in range(2)]
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            os.dup2(stderr, 2)
            os.close(stderr)
        told.seek(0)
        text = told.read() + "".join(str(one.message) for one in caught)
    for tensor in tensors:
        assert tensor.shape == (count,) and "memfd:muster" not in mapping_of(tensor), mapping_of(tensor)
    assert text.count("cannot reserve 262144 KiB of shared memory") == 1, text
    assert "give the job more memory" in text and "ordinary memory, which collectives copy" in text, text


def pooled(folder, rank, ranks):
    """Tensors in memory that the ranks share, although each rank allocates in its own way; DDP's buckets are such."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    backend = meet(folder, rank, ranks)
    cpu = torch.device("cpu")

    def allocate(count, dtype=torch.float32):
        tensor = backend.allocate_tensor(count, dtype=dtype, device=cpu)
        assert tensor.shape == (count,) and tensor.dtype == dtype
        assert "memfd:muster" in mapping_of(tensor), mapping_of(tensor)
        return tensor

    assert backend.supports_tensor_alloc(cpu)
    torch.manual_seed(rank)
    kept = []
    for turn in range(4):
        kept.append(allocate(1 + rank * 1_500_000 * turn, torch.float64))
        count = 300_001
        expected = torch.randn(count)
        data = allocate(count + rank)[rank:].copy_(expected)
        dist.all_reduce(expected)
        dist.all_reduce(data, async_op=True).wait()
        assert torch.equal(data, expected)
        # One rank's is its own.
        data = data if rank else data.clone()
        dist.all_reduce(data)
        assert torch.equal(data, expected * ranks)
        if turn == 2:
            kept.clear()
    assert backend.allocate_tensor(0, dtype=torch.float32, device=cpu).numel() == 0
    text = failure_of(lambda: backend.allocate_tensor(1, dtype=torch.float32, device=torch.device("meta")))
    assert "serves the CPU" in text, text
    check_pool_limit(backend, folder, rank)

    seen = []

    def hook(_, bucket):
        seen.append(mapping_of(bucket.buffer()))
        return allreduce_hook(None, bucket)

    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(300, 300), gradient_as_bucket_view=True)
    model.register_comm_hook(None, hook)
    for _ in range(3):
        model(torch.randn(4, 300)).sum().backward()
    assert len(seen) >= 3 and all("memfd:muster" in line for line in seen), seen


def no_pool(folder, rank, ranks):
    """Over TCP there is no such memory."""
    backend = meet(folder, rank, ranks)
    assert not backend.supports_tensor_alloc(torch.device("cpu"))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(30, 30))
    model(torch.randn(4, 30)).sum().backward()


def fsdp(folder, rank, ranks):
    """FSDP2 over a device mesh, a checkpoint by DCP, and DTensor: the weights of plain training."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    backend = meet(folder, rank, ranks)
    mesh = init_device_mesh("cpu", (ranks,))

    def model():
        torch.manual_seed(1)
        return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 6))

    def step(trained, reduce):
        optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
        torch.manual_seed(rank)
        trained(torch.randn(16, 64)).square().mean().backward()
        reduce()
        optimizer.step()

    plain = model()
    step(plain, lambda: [dist.all_reduce(one.grad, dist.ReduceOp.AVG) for one in plain.parameters()])
    sharded = model()
    for layer in (sharded[0], sharded[2], sharded):
        fully_shard(layer, mesh=mesh)
        layer.set_allocate_memory_from_process_group_for_comm(True)
    allocated = []
    allocate = type(backend).allocate_tensor
    type(backend).allocate_tensor = lambda *words, **more: allocated.append(allocate(*words, **more)) or allocated[-1]
    step(sharded, lambda: None)
    assert allocated and all("memfd:muster" in mapping_of(one) for one in allocated), len(allocated)
    weights = sharded.state_dict()
    for name, expected in plain.state_dict().items():
        assert torch.allclose(weights[name].full_tensor(), expected, atol=1e-6), name

    dcp.save({"model": weights}, checkpoint_id=f"{folder}/checkpoint")
    kept = {name: one.to_local().clone() for name, one in weights.items()}
    for one in weights.values():
        one.to_local().zero_()
    dcp.load({"model": weights}, checkpoint_id=f"{folder}/checkpoint")
    assert all(torch.equal(one.to_local(), kept[name]) for name, one in weights.items())

    whole = torch.arange(30.0).reshape(6, 5)
    cut = distribute_tensor(whole, mesh, [Shard(0)])
    assert torch.equal(cut.redistribute(mesh, [Shard(1)]).redistribute(mesh, [Replicate()]).to_local(), whole)


def gloo_on_gpus(folder, rank, ranks):
    """Where CUDA is there, --torch-backend makes "gloo" serve the GPUs only. gloo needs none to begin."""
    import muster_torch
    torch.cuda.is_available = lambda: True
    muster_torch._replace_gloo(dist)
    assert dist.Backend("gloo") == "cpu:muster,cuda:gloo" and dist.Backend("nccl") == "nccl"
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks, timeout=PATIENCE)
    group = dist.distributed_c10d._get_default_group()
    names = [group._get_backend(torch.device(device)).name() for device in ("cpu", "cuda")]
    assert names == ["muster", "gloo"], names
    data = torch.ones(3)
    dist.all_reduce(data)
    assert torch.equal(data, torch.full((3,), float(ranks)))
