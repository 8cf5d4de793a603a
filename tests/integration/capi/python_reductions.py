"""Products, bitwise operations, pre-multiplied sums and integers of every size in Python: part of python_worker.py."""
import array
import math

import muster


def check(world, raises):
    halves = array.array("H", [0x3f80 if world.rank == 0 else 0x4000])  # 1 and 2 in bf16
    world.all_reduce(halves, "max", type="bf16")
    assert halves[0] == (0x4000 if world.size > 1 else 0x3f80)
    shorts = array.array("H", [0xf0f0, 0x00ff + world.rank])
    world.all_reduce(shorts, "bxor", type="u16")
    assert shorts[0] == (0xf0f0 if world.size % 2 else 0)
    factorial = array.array("h", [world.rank + 1])
    world.all_reduce(factorial, "product")
    assert factorial[0] == math.factorial(world.size)
    for op, expected in (("band", 1), ("bor", 2 ** world.size - 1)):
        bits = array.array("Q", [2 ** (world.rank + 1) - 1])
        world.all_reduce(bits, op)
        assert bits[0] == expected, (op, bits)
    factor = 1 / 3 if world.rank == 0 else -2
    scaled = array.array("d", [3])
    world.all_reduce_premul(scaled, factor)
    assert scaled[0] == 1 - 6 * (world.size - 1)
    thirds, third = array.array("d", [3] * world.size), array.array("d", [0])
    world.reduce_scatter_premul(thirds, third, factor)
    assert third == scaled and thirds[0] == 3
    three, total = array.array("d", [3]), array.array("d", [0])
    world.reduce_premul(three, total if world.rank == 0 else None, 0, factor)
    assert total[0] == (scaled[0] if world.rank == 0 else 0) and three[0] == 3
    raises(muster.MusterError, "need integers", world.all_reduce, scaled, "band")
    raises(muster.MusterError, "multiply as you need", world.all_reduce_premul, factorial, 0.5)
    raises(ValueError, "op is 'premul_sum'; known: sum", world.all_reduce, scaled, "premul_sum")
