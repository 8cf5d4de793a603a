"""Nested dicts and lists of tensors, as state_dict() gives them, to and from tensors by name and a tree in JSON.

A tensor's name is the path to it, with dots: {"model": {"0.weight": t}} has a tensor "model.0.weight". The tree has
everything that is not a tensor, and the place of each tensor:

    {"dict": [[KEY, node], ...]} | {"list": [node, ...]} | {"tuple": [node, ...]} | {"is": LEAF} | {"tensor": KIND}

Leaves are None, booleans, numbers and strings; keys are strings and whole numbers. Anything else raises a
TypeError that names its place, because it would be restored as something else.
"""

from collections.abc import Mapping

from muster import tensors
from muster.arrays import is_a


def _join(name, key):
    return f"{name}.{key}" if name else str(key)


def pack(state):
    """(tree, tensors by name)."""
    if not isinstance(state, Mapping):
        raise TypeError(f"the state is a {type(state).__name__}; it must be a dict")
    found = {}
    return _pack(state, "", found), found


def _pack(node, name, found):
    kind = tensors.kind_of(node)
    if kind is not None:
        if name in found:
            raise ValueError(f"two tensors are called {name!r}: a key with dots equals a nested path")
        found[name] = node
        return {"tensor": kind}
    if isinstance(node, Mapping):
        for key in node:
            if isinstance(key, bool) or not isinstance(key, (str, int)):
                raise TypeError(f"{name or 'the state'} has the key {key!r}; keys are strings and whole numbers")
        return {"dict": [[key, _pack(child, _join(name, key), found)] for key, child in node.items()]}
    if isinstance(node, (list, tuple)) and not hasattr(node, "_fields"):
        children = [_pack(child, _join(name, index), found) for index, child in enumerate(node)]
        return {"tuple" if isinstance(node, tuple) else "list": children}
    if is_a(node, "numpy", "generic") and isinstance(node.item(), (bool, int, float, str)):
        return {"is": node.item()}
    if node is None or isinstance(node, (bool, int, float, str)):
        return {"is": node}
    raise TypeError(f"{name} is a {type(node).__name__}, which a checkpoint cannot hold: give tensors, numbers, strings, "
                    "booleans and None, in dicts, lists and tuples")


def unpack(tree, tensor_of):
    """A new state; tensor_of(name, kind) gives its tensors."""
    return _unpack(tree, "", tensor_of)


def _unpack(node, name, tensor_of):
    (what, content), = node.items()
    if what == "tensor":
        return tensor_of(name, content)
    if what == "dict":
        return {key: _unpack(child, _join(name, key), tensor_of) for key, child in content}
    if what == "is":
        return content
    children = [_unpack(child, _join(name, index), tensor_of) for index, child in enumerate(content)]
    return tuple(children) if what == "tuple" else children


def update(given, tree, found):
    """Fills `given`, whose tensors (`found`, by name) are filled already, with the tree's leaves. Dicts and lists change in
    place; tuples and leaves are new. Keys that the tree does not have stay."""
    return _update(given, tree, "", found)


def _update(given, node, name, found):
    (what, content), = node.items()
    if what == "dict" and isinstance(given, dict):
        for key, child in content:
            given[key] = _update(given.get(key), child, _join(name, key), found)
        return given
    if what == "list" and isinstance(given, list):
        old = given + [None] * len(content)
        given[:] = [_update(old[index], child, _join(name, index), found) for index, child in enumerate(content)]
        return given
    if what == "tuple" and isinstance(given, tuple):
        old = given + (None,) * len(content)
        return tuple(_update(old[index], child, _join(name, index), found) for index, child in enumerate(content))
    return _unpack(node, name, lambda tensor, _: found[tensor])
