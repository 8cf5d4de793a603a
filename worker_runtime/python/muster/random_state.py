"""The random generators of this process as a text, for the `rank_value` of a checkpoint."""

from __future__ import annotations

import base64
import json
import random
import sys


def _text(data):
    return base64.b64encode(bytes(data)).decode()


def random_state() -> str:
    """The global generators of Python, and of numpy and torch (with the current CUDA device) if they are imported."""
    version, words, gauss = random.getstate()
    state = {"python": [version, list(words), gauss]}
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        name, words, position, has_gauss, gauss = numpy.random.get_state()
        state["numpy"] = [name, words.tolist(), int(position), int(has_gauss), float(gauss)]
    if torch is not None:
        state["torch"] = _text(torch.get_rng_state().tolist())
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            state["cuda"] = _text(torch.cuda.get_rng_state().tolist())
    return json.dumps(state)


def set_random_state(text: str) -> bool:
    """Sets the generators in `text` that are imported here. Returns False if the text is empty, as after a load by a rank
    that was not in the saved world; seed from the step and the rank then."""
    if not text:
        return False
    state = json.loads(text)
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and "numpy" in state:
        name, words, position, has_gauss, gauss = state["numpy"]
        numpy.random.set_state((name, numpy.array(words, "uint32"), position, has_gauss, gauss))
    if torch is not None and "torch" in state:
        torch.set_rng_state(_tensor(torch, state["torch"]))
        if "cuda" in state and torch.cuda.is_available():
            torch.cuda.set_rng_state(_tensor(torch, state["cuda"]))
    return True


def _tensor(torch, text):
    return torch.tensor(list(base64.b64decode(text)), dtype=torch.uint8)
