"""Compiles PyTorch's back end for the torch of this Python: `muster torch-build`, or python -m muster.torch_build.

A wheel has the back end for some versions of torch only, because torch's C++ interface changes between them. This makes
the one that is missing, with a C++ compiler and the headers that torch has with it. Nothing is downloaded.
"""

import argparse
import concurrent.futures
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from muster import library
from muster_torch import tell

COMPILE_LIMIT_SECONDS = 900  # of one file; it takes a minute on a fast core
_MEMORY_OF_A_COMPILER = 1.5 * 2**30
_FLAGS = ("-std=c++20", "-O2", "-DNDEBUG", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden", "-pthread")
_stopped_by = []  # No exception, which might come where a thread of the pool is started: the next program is not run


class Refused(Exception):
    """What is missing, and what to do."""


def cache_folder():
    """Where the result is, and where muster.torch looks for it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "muster/torch"


def _source():
    """The folder that has worker_runtime/torch and the headers: of the wheel, or of the repository."""
    here = Path(__file__).resolve()
    for folder, headers in ((here.parent / "torch/source", "include"), (here.parents[3], "worker_runtime/include")):
        if (folder / "worker_runtime/torch/backend.cpp").exists():
            return folder, folder / headers
    raise Refused(f"the sources of the back end are not in {here.parent / 'torch/source'}: install muster again")


def _find_torch(source):
    """(torch's folder, "2.13", whether it has the new C++ strings), without importing it."""
    limit = 60
    try:
        said = subprocess.run([sys.executable, source / "worker_runtime/torch/find_torch.py"], capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        raise Refused(f"{sys.executable} has not said within {limit} s which torch it has; try again when the disk is less busy") from None
    if not said.stdout.strip():
        raise Refused(f"{sys.executable} has no torch with C++ headers; install torch there (pip install torch), or name another "
                      "interpreter in PYTHON_EXEC")
    folder, version, new_strings = said.stdout.strip().split(";")
    return Path(folder), version, new_strings


def _find_compiler(named):
    """Its words: a program, whose path may have blanks, or a command such as "ccache g++"."""
    wanted = named or os.environ.get("CXX") or "c++"
    try:
        words = [wanted] if shutil.which(wanted) else shlex.split(wanted)
    except ValueError:  # a quote without its end
        words = [wanted]
    if not words or not shutil.which(words[0]):
        raise Refused(f"there is no C++ compiler '{wanted}': install one (apt install g++), or name it with --compiler or CXX")
    return [shutil.which(words[0]), *words[1:]]


def _run(words):
    if _stopped_by:
        raise Refused("stopped")
    try:
        done = subprocess.run(list(map(str, words)), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=COMPILE_LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        raise Refused(f"{Path(words[0]).name} did not end within {COMPILE_LIMIT_SECONDS} s") from None
    if done.returncode != 0:
        raise Refused(f"{' '.join(map(str, words))}: exit code {done.returncode}\n{done.stdout[-4000:]}")


def _jobs():
    """As many compilers as there are cores and memory for."""
    memory = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(len(os.sched_getaffinity(0)), int(memory / _MEMORY_OF_A_COMPILER)))


def _compile(source, headers, torch, compiler, scratch, name):
    folder, _, new_strings = torch
    flags = [*_FLAGS, f"-D_GLIBCXX_USE_CXX11_ABI={new_strings}", f"-I{source}", f"-I{headers}", "-isystem", folder / "include",
             "-isystem", folder / "include/torch/csrc/api/include"]
    units = sorted((source / "worker_runtime/torch").glob("*.cpp"))
    objects = [scratch / f"{unit.stem}.o" for unit in units]
    with concurrent.futures.ThreadPoolExecutor(_jobs()) as pool:
        list(pool.map(lambda unit, made: _run([*compiler, *flags, "-c", unit, "-o", made]), units, objects))
    _run([*compiler, "-shared", "-pthread", *objects, library._find(), folder / "lib/libtorch_cpu.so", folder / "lib/libc10.so",
          "-Wl,-rpath,$ORIGIN", "-Wl,-z,nodelete", "-Wl,-z,relro,-z,now", "-Wl,--no-undefined", "-o", scratch / name])


def _try(path, version):
    """Loads it as a script would, in a process of its own."""
    code = ("import sys, torch; from muster import library; library._library(); torch.ops.load_library(sys.argv[1]); "
            "sys.exit(torch.ops.muster._built_for() != sys.argv[2])")
    _run([sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {code}", path, version])


def build(out=None, compiler=None):
    """The path of the back end that was made. Refused: nothing was made, and why."""
    source, headers = _source()
    torch = _find_torch(source)
    compiler = _find_compiler(compiler)
    folder = Path(out) if out else cache_folder()
    name = f"libmuster_torch_{torch[1].replace('.', '_')}.so"
    print(f"muster: compiling the back end for torch {torch[1]} in {torch[0]} with {' '.join(compiler)}; this takes some minutes", flush=True)
    try:
        folder.mkdir(mode=0o777 if out else 0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".muster-torch-build-", dir=folder) as scratch:
            made = Path(scratch) / name
            _compile(source, headers, torch, compiler, Path(scratch), name)
            _try(made, torch[1])
            made.chmod(0o755)  # the linker leaves it to the umask, and what a group may write is not loaded
            os.replace(made, folder / name)  # a script that loads it now has the old one, whole
    except OSError as error:
        raise Refused(f"{folder}: {error.strerror}; name another folder with --out, and set MUSTER_TORCH_LIBRARY to the file there") from error
    return folder / name


def main():
    parser = argparse.ArgumentParser(prog="muster torch-build", description=__doc__.partition("\n")[0])
    parser.add_argument("--out", metavar="FOLDER", help="folder of the library (default: muster/torch in the user's cache, "
                        "where scripts look for it)")
    parser.add_argument("--compiler", metavar="CXX", help="C++ compiler (default: CXX, then c++)")
    options = parser.parse_args()
    for number in (signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) == signal.SIG_DFL:  # with nohup one is ignored
            signal.signal(number, lambda number, _frame: _stopped_by.append(number))
    try:
        made = build(options.out, options.compiler)
    except Refused as why:
        if _stopped_by:
            return 128 + _stopped_by[0]
        tell(f"muster: torch-build: {why}")
        return 1
    print(f"muster: made {made}" + ("" if not options.out else f"; scripts find it with MUSTER_TORCH_LIBRARY={made}"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
