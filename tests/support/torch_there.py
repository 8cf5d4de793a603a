"""Whether a Python has PyTorch, asked without importing it: that takes a core more than a second."""
import pathlib
import subprocess

import own_processes  # noqa: F401


def has_torch(python):
    ask = "import importlib.util as u; assert u.find_spec('torch')"
    return pathlib.Path(python).is_file() and subprocess.run([python, "-c", ask], capture_output=True).returncode == 0
