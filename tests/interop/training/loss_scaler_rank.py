"""One rank: muster.LossScaler beside torch.amp.GradScaler, on the same gradients of which some are infinite or NaN."""
import random
import struct
import sys

import torch

import muster

OPTIONS = ((65536.0, 2.0, 0.5, 3), (77.7, 1.3, 0.37, 2), (2.0**127, 2.0, 0.5, 1), (1.0, 3.7, 0.9, 5))


def bits(scale):
    return struct.pack("f", scale)


def history(context, options, steps):
    generator = random.Random(5)  # equal on all ranks
    names = ("init_scale", "growth_factor", "backoff_factor", "growth_interval")
    scaler = muster.LossScaler(*options)
    reference = torch.amp.GradScaler("cpu", **dict(zip(names, options)))
    gradient = torch.nn.Parameter(torch.zeros(100))
    optimizer = torch.optim.SGD([gradient], lr=1.0)
    reducer = muster.GradientReducer(context.world, {"weight": torch.zeros(100)})
    assert reference.scale(torch.ones(1)).item() == scaler.scale
    for step in range(steps):
        odd = generator.choice([None, None, None, None, float("inf"), -float("inf"), float("nan")])
        culprit = generator.randrange(context.world_size)
        place = generator.randrange(100)
        values = torch.arange(100, dtype=torch.float32) / 1000
        if odd is not None and culprit == context.rank:
            values[place] = odd
        reducer.begin_step(1)
        reducer.gradient("weight").copy_(values)
        reducer.mark_ready("weight")
        reducer.finish()
        # torch gets the average that DDP would have, and steps by itself.
        averaged = reducer.gradient("weight").clone()
        gradient.grad = averaged
        reference.unscale_(optimizer)
        finite = scaler.unscale(reducer)
        assert finite == (odd is None), (step, odd, finite)
        assert finite == bool(torch.isfinite(gradient.grad).all()), step
        if finite:
            unscaled = reducer.gradient("weight")
            assert torch.equal(unscaled, gradient.grad), step
        reference.step(optimizer)
        reference.update()
        scaler.update()
        mine, theirs = scaler.state_dict(), reference.state_dict()
        assert bits(mine["scale"]) == bits(theirs["scale"]) and mine == theirs, (step, mine, theirs)
        if step == steps // 2:  # torch's state, in the middle of an interval
            scaler = muster.LossScaler()
            scaler.load_state_dict(theirs)


def main():
    torch.set_num_threads(1)
    with muster.Context() as context:
        for options in OPTIONS:
            history(context, options, 60)
        try:
            muster.LossScaler(growth_factor=0.5)
            raise AssertionError("it shrinks")
        except muster.MusterError as error:
            assert "growth factor is 0.5" in str(error), error
        print(f"rank {context.rank}: as torch", flush=True)


if __name__ == "__main__":
    sys.exit(main())
