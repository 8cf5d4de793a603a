"""Tensors of torch and arrays of numpy in checkpoints, for checkpoint_worker.py."""
import muster
from python_worker import raises


def on_a_gpu(torch, values):
    """A tensor whose memory the host cannot see: only copies reach it."""
    class Elsewhere(torch.Tensor):
        device = property(lambda self: torch.device("cuda", 0))

        def detach(self):
            return self

        def data_ptr(self):
            raise AssertionError("an address of another device was used")

        def cpu(self):
            return self.as_subclass(torch.Tensor).clone()
    return values.clone().as_subclass(Elsewhere)


def tensors(torch, numpy, fill):
    """`fill` makes all of them one or zero."""
    all_types = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8,
                 torch.bool, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.uint64, torch.float8_e4m3fn,
                 torch.float8_e5m2]
    torch_ones = {str(dtype): torch.full((2, 3), fill, dtype=torch.float32).to(dtype) for dtype in all_types}
    grid = torch.arange(12.).reshape(3, 4) * fill
    tied = torch.nn.Parameter(torch.arange(5.) * fill)
    cut = torch.arange(600_000.) * fill
    return {"torch": torch_ones,
            "numpy": {name: numpy.full((3, 2), fill, name) for name in
                      ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
                       "uint64", "bool")},
            "transposed": grid.t(), "column": grid.clone()[:, 1], "scalar": torch.tensor(2.5 * fill),
            "channels": torch.arange(24.).reshape(1, 2, 3, 4).mul(fill).contiguous(memory_format=torch.channels_last),
            "none": torch.zeros(0, 4), "tied": tied, "tied again": tied, "cut": cut, "gpu": on_a_gpu(torch, grid),
            "numpy scalar": numpy.array(3.5 * fill), "fortran": numpy.asfortranarray(numpy.arange(6.).reshape(2, 3) * fill),
            "every second": (numpy.arange(10) * fill)[::2], "a number": numpy.float64(1.25 * fill)}


def equal(torch, numpy, left, right):
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal(torch, numpy, left[key], right[key]) for key in left)
    if isinstance(left, torch.Tensor):
        left, right = (x.as_subclass(torch.Tensor).detach().contiguous() for x in (left, right))
        return left.dtype == right.dtype and left.shape == right.shape and \
            bytes(left.reshape(-1).view(torch.uint8).tolist() if left.numel() else []) == \
            bytes(right.reshape(-1).view(torch.uint8).tolist() if right.numel() else [])
    if isinstance(left, numpy.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and (left == right).all()
    return left == right


def check_survivor(context, folder, torch, numpy):
    """Rank 0 is clean, and gives its state to the others: also of tensors that come by way of a copy. Before a text is saved."""
    checkpointer = muster.Checkpointer(context, f"{folder}/survivor")
    clean = muster.CleanStep()
    if context.rank == 0:
        with clean.to(4):
            pass
    state = tensors(torch, numpy, 1 if context.rank == 0 else 0)
    loaded = checkpointer.load(state, clean)
    assert (loaded.step, loaded.source, clean.step) == (4, "survivor", 4), (loaded.step, loaded.source, loaded.skipped)
    assert equal(torch, numpy, state, tensors(torch, numpy, 1))
    checkpointer.close()


def check_tensors(context, folder, torch, numpy):
    checkpointer = muster.Checkpointer(context, folder)
    wanted = tensors(torch, numpy, 1)
    checkpointer.save(5, wanted, rank_value=muster.random_state())
    drawn = (torch.rand(4).tolist(), numpy.random.rand(4).tolist())
    checkpointer.finish()
    state = tensors(torch, numpy, 0)
    tied, transposed = state["tied"], state["transposed"]
    assert not equal(torch, numpy, state, wanted)
    loaded = checkpointer.load(state)
    assert equal(torch, numpy, state, wanted)
    assert state["tied"] is tied and tied.requires_grad and state["transposed"] is transposed
    assert not transposed.is_contiguous()
    assert muster.set_random_state(loaded.rank_value)
    assert (torch.rand(4).tolist(), numpy.random.rand(4).tolist()) == drawn
    fresh = checkpointer.load_state().state
    assert equal(torch, numpy, fresh, wanted)
    fresh["torch"]["torch.bfloat16"].add_(1)
    assert isinstance(checkpointer.load_state(like="numpy").state["torch"]["torch.float32"], numpy.ndarray)

    one = torch.ones(3)
    for state, kind, words in (
            ({"a": {"z": torch.zeros(2, dtype=torch.complex64)}}, TypeError, "a.z: a tensor of complex64"),
            ({"a": one.to_sparse()}, TypeError, "a: a tensor that is sparse"),
            ({"a": torch.zeros(2, device="meta")}, TypeError, "without memory (meta)"),
            ({"a": numpy.array([object()])}, TypeError, "a: an array of object"),
            ({"a": numpy.zeros(2, ">f4")}, TypeError, "the opposite byte order"),
            ({"a": numpy.ma.zeros(2)}, TypeError, "a: a masked array"),
            ({"a": torch.device("cpu")}, TypeError, "a is a device"),
            ({"a": torch.nn.Linear(1, 1)}, TypeError, "a is a Linear")):
        raises(kind, words, checkpointer.save, 6, state)
    frozen = numpy.zeros(2)
    frozen.flags.writeable = False
    raises(ValueError, "a: the array is read-only", checkpointer.load, {"a": frozen})
    raises(ValueError, "a: an expanded tensor", checkpointer.load, {"a": one[:1].expand(3)})
    checkpointer.close()


def run(torch, steps, model, optimizer):
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(torch.rand(8, 4)), torch.rand(8, 2)).backward()
        optimizer.step()


def check_training(context, folder, torch):
    """An optimizer that has no state before its first step goes on as if nothing had happened."""
    def fresh():
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 3)

    model, optimizer, scheduler = fresh()
    run(torch, 5, model, optimizer)
    scheduler.step()
    checkpointer = muster.Checkpointer(context, f"{folder}/adam")
    checkpointer.save(5, {"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                          "scheduler": scheduler.state_dict()}, rank_value=muster.random_state())
    run(torch, 5, model, optimizer)  # the copy is taken: this changes nothing of it
    wanted = model.state_dict()
    checkpointer.finish()

    model, optimizer, scheduler = fresh()
    loaded = checkpointer.load_state()
    model.load_state_dict(loaded.state["model"])
    optimizer.load_state_dict(loaded.state["optimizer"])
    scheduler.load_state_dict(loaded.state["scheduler"])
    muster.set_random_state(loaded.rank_value)
    assert scheduler.last_epoch == 1
    run(torch, 5, model, optimizer)
    assert all(torch.equal(value, wanted[name]) for name, value in model.state_dict().items())
    error = raises(muster.MusterError, "which the state does not have", checkpointer.load, {"model": model.state_dict()})
    assert error.code == "invalid_argument"


def check_batch_norm(context, folder, torch):
    """Ranks that saw different samples have different statistics: what comes back is rank 0's model, and not a mixture."""
    torch.manual_seed(context.rank)
    model = torch.nn.Sequential(*(layer for _ in range(4) for layer in (torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64))))
    model(torch.rand(32, 64))
    checkpointer = muster.Checkpointer(context, f"{folder}/norm", verify_replicas=False)
    checkpointer.save(1, model.state_dict())
    checkpointer.finish()
    loaded = checkpointer.load_state().state
    for name, tensor in model.state_dict().items():
        context.world.broadcast(tensor, 0)
        assert torch.equal(loaded[name], tensor), f"{name} is not rank 0's"
    strict = muster.Checkpointer(context, f"{folder}/strict", verify_replicas=True)
    error = raises(muster.MusterError, "tensor '0.bias' is not the same on all ranks: rank 1 differs from rank 0", strict.save, 1,
                   {name: tensor + context.rank if tensor.is_floating_point() else tensor for name, tensor in loaded.items()})
    assert error.code == "invalid_argument"
