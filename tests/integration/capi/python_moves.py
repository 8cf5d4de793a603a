"""Collectives with a root, and with pieces of different sizes; for python_worker.py."""
import array


def refuses(words, function, *arguments):
    try:
        function(*arguments)
    except ValueError as error:
        assert words in str(error), f"{words!r} is not in {error!r}"
        return
    raise AssertionError(f"nothing was raised; expected {words!r}")


def with_a_root(world):
    rank, size = world.rank, world.size
    root = size - 1
    own = array.array("i", [rank, 7])
    whole = array.array("i", [-1] * 2 * size) if rank == root else None
    world.gather(own, whole, root)
    assert rank != root or list(whole) == [value for r in range(size) for value in (r, 7)]
    piece = array.array("i", [-1, -1])
    world.scatter(whole, piece, root, wait=False).wait()
    assert list(piece) == [rank, 7]
    world.reduce(own, own if rank == 0 else None, 0, "max")
    assert list(own) == [root if rank == 0 else rank, 7]
    refuses("one array has", world.gather, own, array.array("i", []), rank)
    refuses("op is 'median'", world.reduce, own, own, 0, "median")


def uneven(world):
    """Rank r gets r + 1 elements of each, after the first place of its array."""
    rank, size = world.rank, world.size
    given = array.array("i", [10 * rank + r for r in range(size) for _ in range(r + 1)])
    taken = array.array("i", [-1] * (size * (rank + 1) + 1))
    sent, expected = [r + 1 for r in range(size)], [rank + 1] * size
    offsets = [1 + r * (rank + 1) for r in range(size)]
    world.all_to_all_uneven(given, taken, sent, expected, expected_offsets=offsets, wait=False).wait()
    assert list(taken) == [-1] + [10 * r + rank for r in range(size) for _ in range(rank + 1)]
    nothing = [0] * size
    world.all_to_all_uneven(array.array("i"), array.array("i"), nothing, nothing)
    refuses("counts and", world.all_to_all_uneven, given, taken, [1] * (size + 1), expected)
    refuses("not within the array's", world.all_to_all_uneven, given, taken, [100] * size, expected)
    refuses("not within the array's", world.all_to_all_uneven, given, taken, [-1] * size, expected)
