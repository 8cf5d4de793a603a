"""Prints the folder of torch, its major and minor version, and whether it has the new C++ strings, as a list of CMake.

Reads files instead of importing torch, which takes seconds. Prints nothing if torch or its headers are missing.
"""

import importlib.util
import re
from pathlib import Path

spec = importlib.util.find_spec("torch")
if spec and spec.origin:
    folder = Path(spec.origin).parent
    version = folder / "version.py"
    header = folder / "include/torch/csrc/distributed/c10d/Backend.hpp"
    if version.exists() and header.exists():
        number = re.search(r"__version__ = '(\d+\.\d+)", version.read_text())
        if number:
            # Wheels have the new strings since 2.6.
            major, minor = map(int, number[1].split("."))
            print(folder, number[1], int((major, minor) >= (2, 6)), sep=";")
