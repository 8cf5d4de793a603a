#!/usr/bin/env python3
"""A file compiled for AVX must not define inline functions that others define too: the linker keeps one of the copies,
and a processor without AVX would run into it. Arguments: nm, then object files."""

import subprocess
import sys

nm, objects = sys.argv[1], sys.argv[2:]
shared = []
for path in objects:
    if "_avx" not in path:
        continue
    for line in subprocess.run([nm, "-C", "--defined-only", path], text=True, capture_output=True, check=True,
                               timeout=60).stdout.splitlines():
        kind, symbol = line.split(maxsplit=2)[1:]
        if kind in "WVu":
            shared.append(f"{path}: {symbol}")
print("\n".join(shared))
sys.exit(1 if shared or not any("_avx" in path for path in objects) else 0)
