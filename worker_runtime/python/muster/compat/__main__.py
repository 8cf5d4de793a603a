"""`python -m muster.compat PROGRAM ARGS...` runs a program so that what it starts with torchrun is started with muster.

It puts muster's torchrun, python and python3 in front in PATH. PyTorch's Python API follows `torchrun` in PATH (muster_torch.py).
"""

import os
import shutil
import signal
import site
import subprocess
import sys
from pathlib import Path
from typing import NoReturn, Optional

from muster import __main__ as module

USAGE = """usage: python -m muster.compat PROGRAM [ARGUMENT ...]
       python -m muster.compat -m MODULE [ARGUMENT ...]

Runs the program, a Python script or a Python module, with muster in torchrun's place. `torchrun`, `python -m torch.distributed.run` and
PyTorch's Python API start muster. For example: python -m muster.compat accelerate launch --multi_gpu train.py"""

_ASK_LIMIT_SECONDS = 20
# Exits with 0 if PyTorch would load this package. "": the current directory, where a script does not look for modules.
_ASK = """import sys
sys.path[:] = filter(None, sys.path)
from importlib.metadata import distributions
sys.exit(not any(point.group == "torch.backends" and point.name == "muster_backend" for found in distributions() for point in found.entry_points))"""


def _folder() -> Optional[Path]:
    """torchrun-compat: of a wheel, of the repository, or below the prefix of a package."""
    package = Path(__file__).resolve().parents[1]
    for place in (package / "torchrun-compat", package.parents[2] / "scripts/torchrun-compat",
                  package.parents[3] / "share/muster/torchrun-compat"):
        if (place / "torchrun").exists():
            return place
    return None


def _prepare(folder: Path) -> None:
    # As if the virtual environment of this Python were active.
    active = [str(Path(sys.executable).parent)] if sys.prefix != sys.base_prefix else []
    os.environ["PATH"] = os.pathsep.join([str(folder), *active, os.environ.get("PATH", os.defpath)])
    program = module.find_program()
    if program:
        os.environ.setdefault("MUSTER_PROGRAM", program)
    # PyTorch finds this package by its entry point. A directory of Python's own has other packages too, for this Python alone.
    package = Path(__file__).resolve().parents[2]
    own = [*site.getsitepackages(), site.getusersitepackages()]
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if not any(package == Path(path).resolve() for path in own + paths):
        os.environ["PYTHONPATH"] = os.pathsep.join([*paths, str(package)])


def _command(words: list[str], folder: Path) -> list[str]:
    if words[0] == "-m" or words[0].endswith(".py"):
        return [sys.executable, *words]
    # A script of the environment in which this Python is, active or not.
    places = os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]])
    found = shutil.which(words[0], path=places)
    if found is None:
        sys.exit(f"python -m muster.compat: there is no program {words[0]} beside this Python, nor in PATH; give its path, or install it")
    return [found, *words[1:]]


def _tell_if_unreached(program: str) -> None:
    """A script of another environment may run with a Python that does not have this package, and then PyTorch starts torchrun."""
    try:
        with open(program, "rb") as file:
            line = file.readline(4096)
    except OSError:
        return
    interpreter = line[2:].decode(errors="replace").split() if line.startswith(b"#!") else []
    if interpreter and Path(interpreter[0]).name == "env":
        interpreter = interpreter[2 if interpreter[1:2] == ["-S"] else 1:]
    if not interpreter or not Path(interpreter[0]).name.startswith("python") or interpreter == [sys.executable]:
        return
    problem = _problem(interpreter)
    if problem:
        print(f"python -m muster.compat: {program} runs with {' '.join(interpreter)}, which {problem}: PyTorch's Python API may start "
              "torch's own launcher there; install muster for that Python", file=sys.stderr, flush=True)


def _problem(interpreter: list[str]) -> str:
    """Empty if PyTorch of this Python loads muster."""
    nothing = subprocess.DEVNULL
    try:
        done = subprocess.run([*interpreter, "-c", _ASK], stdin=nothing, stdout=nothing, stderr=nothing, timeout=_ASK_LIMIT_SECONDS)
    except OSError:
        return ""  # The program fails with the same error.
    except subprocess.TimeoutExpired:
        return f"did not answer within {_ASK_LIMIT_SECONDS} s whether it has the package muster"
    return "does not have the package muster" if done.returncode != 0 else ""


def main() -> NoReturn:
    words = sys.argv[1:]
    if words[:1] in (["-h"], ["--help"]):
        print(USAGE)
        sys.exit(0)
    if not words or words == ["-m"]:
        print(USAGE, file=sys.stderr)
        sys.exit(2)
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") != "1":
        sys.exit("python -m muster.compat: TORCH_DEVICE_BACKEND_AUTOLOAD keeps PyTorch from loading muster, so torchrun's Python API would "
                 "not start it; unset the variable")
    folder = _folder()
    if folder is None:
        sys.exit("python -m muster.compat: torchrun-compat is not there; install muster again")
    _prepare(folder)
    command = _command(words, folder)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C needs no traceback of this program.
    _tell_if_unreached(command[0])
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
