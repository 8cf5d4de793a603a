"""What tests/integration/capi/checkpoint_test.py runs on each rank. First argument: which of the functions below; the
second: a folder for checkpoints."""
import array
import contextlib
import ctypes
import os
import random
import signal
import sys
import time

import muster
from python_worker import raises

FOLDER = sys.argv[2]


def model(step, rank, size):
    """One replicated tensor of 2 MiB, one that is sharded, and what is no tensor."""
    weight = array.array("f", [step + i % 1000 for i in range(1 << 19)])
    begin, end = 1003 * rank // size, 1003 * (rank + 1) // size
    part = array.array("d", [step + i for i in range(begin, end)])
    return {"model": {"weight": weight, "flags": (ctypes.c_bool * 3)(True, False, step > 5)},
            "optimizer": {"state": {0: {"step": step, "momentum": muster.Shard(part, (17, 59), begin)}},
                          "groups": [{"lr": 0.1 * step, "betas": (0.9, 0.999), "name": "é \" \\", "fused": None}]},
            "huge": 2**70, "infinite": float("inf"), "words": ["a", ["b", True]]}


def same(left, right):
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return type(left) is type(right) and len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, muster.Shard):
        return left.array == right.array
    if isinstance(left, ctypes.Array):
        return list(left) == list(right)
    return left == right and type(left) is type(right)


def save(context):
    checkpointer = muster.Checkpointer(context, FOLDER, keep_last=3)
    for step in (3, 6, 9):
        checkpointer.save(step, model(step, context.rank, context.world_size), {"note": f"of {step}"},
                          f"rank {context.rank} at {step}", when_busy="wait")
    checkpointer.finish()
    reports = checkpointer.reports()
    assert [report.step for report in reports] == [3, 6, 9] and all(report.persisted for report in reports), reports
    assert reports[2].path == f"{FOLDER}/step_00000009" and reports[2].trouble is None
    assert reports[2].bytes > 0 and reports[2].persist > 0
    assert checkpointer.reports() == []


def load(context):
    """In place: the same memory, the dicts and lists of the caller; shards of this world."""
    checkpointer = muster.Checkpointer(context, FOLDER)
    state = model(0, context.rank, context.world_size)
    weight, words, group = state["model"]["weight"], state["words"], state["optimizer"]["groups"][0]
    state["words"][:] = ["other"]
    state["only here"] = 7
    loaded = checkpointer.load(state)
    assert loaded.step == 9 and loaded.state is state and loaded.values == {"note": "of 9"}
    assert loaded.path == f"{FOLDER}/step_00000009" and loaded.skipped == []
    assert loaded.rank_value == (f"rank {context.rank} at 9" if context.rank < 3 else "")
    assert state["model"]["weight"] is weight and state["words"] is words and state["optimizer"]["groups"][0] is group
    assert state.pop("only here") == 7
    assert same(state, model(9, context.rank, context.world_size)), state["optimizer"]["groups"]
    state["model"]["more"] = array.array("f", [0])
    raises(muster.MusterError, "it has no tensor 'model.more'", checkpointer.load, state)


def load_state(context):
    """New memory, all of each tensor on each rank."""
    checkpointer = muster.Checkpointer(context, FOLDER)
    loaded = checkpointer.load_state()
    whole = model(9, 0, 1)
    momentum = loaded.state["optimizer"]["state"][0].pop("momentum")
    assert momentum.shape == (17, 59) and momentum.cast("B").cast("d").tolist() == \
        whole["optimizer"]["state"][0].pop("momentum").array.tolist()
    weight, flags = loaded.state["model"].pop("weight"), loaded.state["model"].pop("flags")
    assert weight == memoryview(whole["model"].pop("weight")) and flags.tolist() == list(whole["model"].pop("flags"))
    weight[0] = 1
    assert same(loaded.state, whole), loaded.state
    assert "torch" not in sys.modules and "numpy" not in sys.modules


def damaged(context):
    """The newest is passed over by both ways to load."""
    checkpointer = muster.Checkpointer(context, FOLDER)
    if context.rank == 0:
        with open(f"{FOLDER}/step_00000009/rank_00001.safetensors", "r+b") as file:
            file.seek(5000)
            byte = file.read(1)[0]
            file.seek(5000)
            file.write(bytes([byte ^ 4]))
    context.world.barrier()
    for loaded in (checkpointer.load_state(), checkpointer.load(model(0, context.rank, context.world_size))):
        assert loaded.step == 6 and loaded.values == {"note": "of 6"}
        assert len(loaded.skipped) == 1 and "damaged (checksum)" in loaded.skipped[0], loaded.skipped


def first_start(context):
    os.environ["MUSTER_CHECKPOINT_DIR"] = f"{FOLDER}/new"
    checkpointer = muster.Checkpointer(context)
    assert checkpointer.load({"w": array.array("f", [1])}) is None and checkpointer.load_state() is None
    empty = {"empty": array.array("f"), "zero": ctypes.c_int * 0}
    raises(TypeError, "zero is a PyCArrayType", checkpointer.save, 1, empty)
    checkpointer.save(1, {"empty": array.array("f"), "none": {}, "nothing": []})
    checkpointer.finish()
    assert checkpointer.load_state().state["none"] == {}
    checkpointer.close()
    checkpointer.close()


def averages(reducer, rank, steps):
    """What the ranks get in these steps, whose gradients int8 cannot hold."""
    results = []
    for step in steps:
        reducer.begin_step()
        gradient = reducer.gradient("w")
        for i in range(len(gradient)):
            gradient[i] = 0.001 * (i + 1) * (rank + 1) + 0.01 * step
        reducer.mark_ready("w")
        reducer.finish()
        results.append(list(gradient))
    return results


def reducer_state(context):
    """A reducer that goes on from what was kept has the bits of one that never stopped; a local disk is told apart."""
    def reducer():
        return muster.GradientReducer(context.world, {"w": array.array("f", [0] * 1000)}, wire="int8")

    straight = averages(reducer(), context.rank, range(6))
    first = reducer()
    head = averages(first, context.rank, range(3))
    kept = first.keep()
    assert isinstance(kept, muster.ReducerState) and kept.plan and len(kept.own) >= 4000
    state = {"step": 3, "one": array.array("f", [1])}
    terms = dict(local_directory=f"{FOLDER}.local", shared_every=2)
    checkpointer = muster.Checkpointer(context, FOLDER, **terms)
    for step in (3, 4):
        checkpointer.save(step, state, values={"reducer": kept.plan}, rank_bytes=kept.own)
        checkpointer.finish()
    loaded = checkpointer.load(state)
    assert (loaded.step, loaded.source, loaded.path) == (4, "local", "") and loaded.rank_bytes == kept.own
    checkpointer.close()
    checkpointer = muster.Checkpointer(context, FOLDER)
    loaded = checkpointer.load(state)
    assert (loaded.step, loaded.source, loaded.path) == (3, "shared", f"{FOLDER}/step_00000003"), loaded
    second = reducer()
    second.restore(loaded.values["reducer"], loaded.rank_bytes)
    assert head + averages(second, context.rank, range(3, 6)) == straight
    forgetful = reducer()
    forgetful.restore("")
    assert head + averages(forgetful, context.rank, range(3, 6)) != straight
    error = raises(muster.MusterError, "", reducer().restore, "no plan")
    assert error.code == "invalid_argument", error.code
    raises(TypeError, "rank_bytes is a list", checkpointer.save, 1, state, rank_bytes=[1])
    raises(ValueError, "shared_every is 0", muster.Checkpointer, context, FOLDER, shared_every=0)
    raises(muster.MusterError, "copy_bytes_per_second is 5; at least 65536", muster.Checkpointer, context, FOLDER + ".b",
           copy_bytes_per_second=5)


def own_model(rank):
    """What no two ranks have alike: statistics as BatchNorm layers keep them, and a large tensor."""
    state = {"step": 1, "large": array.array("f", [rank]) * (1 << 20)}
    for layer in range(8):
        state[f"layer{layer}"] = {"weight": array.array("f", [rank]) * 4096, "running_mean": array.array("f", [rank] * 64),
                                  "running_var": array.array("f", [rank + 0.5] * 64)}
    return state


def replicas(context):
    """What is no Shard comes back as rank 0 had it, every bit of it; a difference can be made an error."""
    rank = context.rank
    saved = own_model(rank)
    for folder, terms in (("rank 0", {}), ("spread", {"spread_replicas": True})):
        checkpointer = muster.Checkpointer(context, f"{FOLDER}/{folder}", verify_replicas=False, **terms)
        checkpointer.save(1, saved)
        checkpointer.finish()
        loaded = checkpointer.load_state("array").state
        large = set(loaded.pop("large"))
        expected = own_model(0)
        expected.pop("large")
        for layer, tensors in expected.items():
            for name in tensors if isinstance(tensors, dict) else ():
                assert loaded[layer][name] == memoryview(tensors[name]), f"{layer}.{name} of {folder} is not rank 0's"
        assert len(large) == 1 if terms else large == {0}, f"{folder}: the large tensor has elements of {large}"
        checkpointer.close()
    verify_replicas(context, saved)


def verify_replicas(context, saved):
    checkpointer = muster.Checkpointer(context, f"{FOLDER}/verified", verify_replicas=context.rank == 1 or None)
    for call in (checkpointer.save, checkpointer.snapshot):
        error = raises(muster.MusterError, "tensor 'large' is not the same on all ranks: ranks 1, 2 differ from rank 0, and so in "
                       "24 other tensors; ", call, 1, saved)
        assert error.code == "invalid_argument"
    same = own_model(0)
    if context.rank == 2:
        same["layer3"]["running_var"][63] = 7
    raises(muster.MusterError, "tensor 'layer3.running_var' is not the same on all ranks: rank 2 differs from rank 0; ",
           checkpointer.save, 1, same)
    if context.rank == 2:
        same["more"] = array.array("f", [0])
    raises(muster.MusterError, "rank 2 differs from rank 0, which has 25; rank 2 has 26", checkpointer.save, 1, same)
    checkpointer.save(1, own_model(0))
    checkpointer.finish()
    raises(muster.MusterError, "rank 1: local_directory, shared_every or replicas differs from rank 0's", muster.Checkpointer, context,
           f"{FOLDER}/mixed", spread_replicas=context.rank == 1)


def debug(context):
    """Python's development mode compares replicas unless told otherwise."""
    state = {"w": array.array("f", [context.rank])}
    checkpointer = muster.Checkpointer(context, FOLDER)
    raises(muster.MusterError, "tensor 'w' is not the same on all ranks: rank 1 differs from rank 0", checkpointer.save, 1, state)
    checkpointer.close()
    checkpointer = muster.Checkpointer(context, FOLDER, verify_replicas=False)
    checkpointer.save(1, state)
    checkpointer.finish()


def mistakes(context):
    raises(ValueError, "keep_last is 0", muster.Checkpointer, context, FOLDER, keep_last=0)
    raises(ValueError, "when_busy is 'later'", muster.Checkpointer, context, FOLDER, when_busy="later")
    os.environ.pop("MUSTER_CHECKPOINT_DIR", None)
    error = raises(muster.MusterError, "no checkpoint directory", muster.Checkpointer, context)
    assert error.code == "invalid_argument"
    checkpointer = muster.Checkpointer(context, FOLDER)
    value = array.array("f", [1])
    for state, kind, words in (
            ([value], TypeError, "the state is a list"),
            ({"a": {"b": {1, 2}}}, TypeError, "a.b is a set, which a checkpoint cannot hold"),
            ({"a": b"bytes"}, TypeError, "a is a bytes"),
            ({"a": 1j}, TypeError, "a is a complex"),
            ({"a": {(1, 2): 3}}, TypeError, "a has the key (1, 2)"),
            ({"a": {True: 3}}, TypeError, "a has the key True"),
            ({"a.b": value, "a": {"b": value}}, ValueError, "two tensors are called 'a.b'"),
            ({"a\0b": value}, ValueError, "zero byte"),
            ({"a[0:2]": value}, muster.MusterError, "ends like the name of a part"),
            ({"a": muster.Shard(value, (3,), 3)}, muster.MusterError, "shard beyond its end")):
        raises(kind, words, checkpointer.save, 1, state)
    raises(TypeError, "the value of 'k' is a int", checkpointer.save, 1, {"a": value}, {"k": 1})
    raises(ValueError, "reserved for the checkpointer", checkpointer.save, 1, {"a": value}, {"muster.state": "x"})
    raises(TypeError, "rank_value is a dict", checkpointer.save, 1, {"a": value}, None, {})
    raises(muster.MusterError, "0 or more", checkpointer.save, -1, {"a": value})
    raises(ValueError, "read-only", checkpointer.load, {"a": memoryview(bytes(4))})
    raises(ValueError, "like is 'jax'", checkpointer.load_state, "jax")
    checkpointer.save(1, {"a": memoryview(bytes(4)), "b": memoryview(array.array("h", [1, 2, 3, 4]))[::2]})
    checkpointer.finish()
    assert checkpointer.load_state().state["b"].tolist() == [1, 3]
    checkpointer.close()
    raises(muster.MusterError, "not a valid checkpointer, or already released", checkpointer.finish)


def clean_steps(context):
    """Rank 0 is clean. What ends a load on rank 1 leaves it so; what the program saves beside its state does not. A state that
    was torn is not a new one."""
    checkpointer = muster.Checkpointer(context, FOLDER)
    clean = muster.CleanStep()
    weight = array.array("f", [context.rank])
    assert checkpointer.load({"weight": weight}, clean) is None and clean.step == -1, clean.step
    if context.rank == 0:
        with clean.to(4):
            pass
        with contextlib.suppress(KeyError), clean.to(5):
            raise KeyError
        assert clean.step == -2, clean.step
    for load in (lambda: checkpointer.load({"weight": weight}, clean), lambda: checkpointer.load_state(clean=clean)):
        raises(muster.MusterError, "no copy and no checkpoint to return to", load)
    assert clean.step == (-2 if context.rank == 0 else -1), clean.step
    if context.rank == 0:
        with clean.to(4):
            pass
    raises(muster.MusterError, "'other'", checkpointer.load, {"weight" if context.rank == 0 else "other": weight}, clean)
    assert clean.step == (4 if context.rank == 0 else -1), clean.step
    loaded = checkpointer.load({"weight": weight}, clean)
    assert (loaded.step, loaded.source, weight[0], clean.step) == (4, "survivor", 0, 4), (loaded, weight, clean.step)
    checkpointer.save(2, {"weight": weight})
    checkpointer.finish()
    if context.rank == 1:
        checkpointer.reserve({"weight": weight}, rank_value="random")
    for load in (lambda: checkpointer.load({"weight": weight}, clean), lambda: checkpointer.load_state(own={"weight": weight}, clean=clean)):
        with clean.to(4):
            pass
        loaded = load()
        assert loaded.source == "shared" and "rank_value" in loaded.skipped[0], loaded
        assert context.rank == 0 or clean.step == -2, clean.step
    checkpointer.save(3, {"weight": weight}, {"cursor": "7"})
    checkpointer.finish()
    assert clean.step == -2, clean.step
    with clean.to(5):
        pass
    loaded = checkpointer.load({"weight": weight}, clean)
    assert (loaded.step, loaded.source, loaded.values, clean.step) == (3, "shared", {"cursor": "7"}, -2), (loaded, clean.step)


def no_memory(context):
    """What goes wrong where Python makes the memory comes out as itself, on that rank; the others are told who it was."""
    checkpointer = muster.Checkpointer(context, FOLDER)
    if context.rank == 1:
        muster.tensors.fresh = lambda number, shape: 1 // 0
        raises(ZeroDivisionError, "division", checkpointer.load_state)
    else:
        raises(muster.MusterError, "rank 1", checkpointer.load_state)


def snapshots(context):
    """Nothing is written to a disk: after a kill the agent gives back the last step of both."""
    checkpointer = muster.Checkpointer(context, FOLDER)
    state = model(0, context.rank, context.world_size)
    loaded = checkpointer.load(state)
    if loaded is not None:
        assert loaded.step == 5 and loaded.source == "memory" and loaded.path == "" and loaded.values == {"note": "of 5"}, loaded
        assert loaded.rank_value == f"rank {context.rank}" and same(state, model(5, context.rank, context.world_size))
        return
    assert checkpointer.copied_step == -1
    raises(TypeError, "a is a complex", checkpointer.snapshot, 1, {"a": 1j})
    raises(TypeError, "a is a complex", checkpointer.reserve, {"a": 1j})
    raises(muster.MusterError, "0 or more", checkpointer.snapshot, -1, state)
    checkpointer.reserve(state)
    for step in (4, 5):
        while time.monotonic() < snapshots.due:  # a snapshot soon after another is left out
            pass
        checkpointer.snapshot(step, model(step, context.rank, context.world_size), {"note": f"of {step}"}, f"rank {context.rank}")
        checkpointer.finish()
        snapshots.due = time.monotonic() + 0.1
        context.world.barrier()
    assert checkpointer.reports() == []
    if context.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


snapshots.due = 0


def generators(context):
    random.seed(context.rank)
    text = muster.random_state()
    drawn = [random.random() for _ in range(5)]
    random.seed(99)
    assert muster.set_random_state(text) and [random.random() for _ in range(5)] == drawn
    assert not muster.set_random_state("")


def notice(context):
    """A signal to one rank is seen by all in the same step; what they save then is there, and the code is 76."""
    notice = muster.PreemptionNotice(context)
    raises(muster.MusterError, "already", muster.PreemptionNotice, context)
    checkpointer = muster.Checkpointer(context, FOLDER)
    for step in range(100):
        if step == 7 and context.rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        if notice.agreed():
            assert step == 7 and notice.count == (1 if context.rank == 1 else 0)
            checkpointer.save(step, {"step": step, "w": array.array("f", [step])}, when_busy="wait")
            checkpointer.finish()
            print(f"rank {context.rank} of {context.world_size}: left after {step}", flush=True)
            sys.exit(muster.EXIT_SAVED_AND_LEFT)


def packages(context):
    """Tensors and arrays of every kind that torch and numpy have for them, there and back, in place and new."""
    import numpy
    import torch
    from checkpoint_tensors import check_batch_norm, check_survivor, check_tensors, check_training
    check_survivor(context, FOLDER, torch, numpy)
    check_tensors(context, FOLDER, torch, numpy)
    check_training(context, FOLDER, torch)
    check_batch_norm(context, FOLDER, torch)


if __name__ == "__main__":
    with muster.Context(operation_timeout=100) as opened:
        globals()[sys.argv[1]](opened)
        print(f"rank {opened.rank} of {opened.world_size}: {sys.argv[1]} done", flush=True)
