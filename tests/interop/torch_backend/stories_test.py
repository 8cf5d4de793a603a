#!/usr/bin/env python3
"""PyTorch's back end muster with the real PyTorch: collectives, deaths, ends, and both launchers.

    stories_test.py               the test
    stories_test.py --ends N      N scripts of two ranks that end with works pending, a quarter of them in each of four ways

torch is imported once; the ranks of the stories are forked from here, because an import takes a core more than a second.
"""

import ctypes
import importlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
from torch_there import has_torch  # noqa: E402

PYTHON = os.environ.get("MUSTER_TEST_PYTHON") or str(ROOT / ".venv/bin/python")
BIN = pathlib.Path(os.environ.get("MUSTER_BIN", ROOT / "build/release/bin"))
LIBRARY = BIN.parent / "lib"


def go_on_with_torch():
    if not has_torch(PYTHON) or not list(LIBRARY.glob("libmuster_torch_*.so")):
        print("skipped: no PyTorch, or the build has no back end for it (MUSTER_TEST_PYTHON, MUSTER_TORCH)")
        sys.exit(1 if os.environ.get("CI") == "true" else 77)
    os.environ.update(MUSTER_LIBRARY=str(LIBRARY / "libmuster.so.1"), PYTHONPATH=str(ROOT / "worker_runtime/python"),
                      OMP_NUM_THREADS="1", IN_TORCH_BACKEND_TEST="1")
    os.execv(PYTHON, [PYTHON, *sys.argv])


if __name__ == "__main__" and not os.environ.get("IN_TORCH_BACKEND_TEST"):
    go_on_with_torch()

import own_tmpdir  # noqa: E402
import torch  # noqa: E402, F401
import bad_input  # noqa: E402
import collectives  # noqa: E402
import examples  # noqa: E402
import started  # noqa: E402
import stories  # noqa: E402

PATIENCE = 240


def rank_of(story, arguments, rank, ranks, folder, environment):
    """In the forked child: runs its rank and ends as a script does."""
    log = os.open(f"{folder}/log.{rank}", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(environment, RANK=str(rank), WORLD_SIZE=str(ranks))
    os.environ.pop("MASTER_ADDR", None)
    story(folder, rank, ranks, *arguments)
    sys.stdout.flush()


def collective_cases(folder, rank, ranks):
    sys.argv = ["collectives.py", f"file://{folder}/store"]
    collectives.main()


def play(story, *arguments, ranks=2, killed=(), environment=None, name=None, ends="at once"):
    """Forks the ranks. All but those in `killed` end with 0, in time, and without a word of a crash. The end of an
    interpreter with torch takes half a second, so most leave at once."""
    name = name or story.__name__
    folder = tempfile.mkdtemp(prefix=f"{name}-")
    began = time.monotonic()
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            rank_of(story, arguments, rank, ranks, folder, environment or {})
            if ends == "at once":
                os._exit(0)
            sys.exit(0)
        children.append(child)
    wait_for(name, children, folder, killed, began)
    print(f"{name}: {time.monotonic() - began:.2f} s", flush=True)
    return folder


def texts(folder):
    return "\n".join(f"--- {path.name}\n{path.read_text()}" for path in sorted(pathlib.Path(folder).glob("log.*")))


def wait_for(name, children, folder, killed, began):
    statuses = {}
    while len(statuses) < len(children):
        for rank, child in enumerate(children):
            if rank in statuses:
                continue
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                statuses[rank] = os.waitstatus_to_exitcode(status)
        if time.monotonic() > began + PATIENCE:
            for rank, child in enumerate(children):
                if rank not in statuses:
                    os.kill(child, signal.SIGKILL)
            raise AssertionError(f"{name}: ranks {set(range(len(children))) - set(statuses)} hang\n{texts(folder)}")
        time.sleep(0.002)
    for rank, status in statuses.items():
        expected = -signal.SIGKILL if rank in killed else 0
        assert status == expected, f"{name}: rank {rank} ended with {status}\n{texts(folder)}"
    text = texts(folder)
    assert "terminate called" not in text and "Fatal" not in text, f"{name}:\n{text}"
    for line in re.findall(r"^(?:death|abort):.*$", text, re.MULTILINE):
        print("   ", line)


def check_same_bits():
    """Three ranks: the sum of two does not depend on their order."""
    folders = [play(stories.ddp, ranks=3) for _ in range(2)]
    hashes = [pathlib.Path(folder, f"weights.{rank}").read_text() for folder in folders for rank in range(3)]
    assert len(set(hashes)) == 1, hashes


def launched(command, words, environment=None, code=0):
    began = time.monotonic()
    run = subprocess.run(command, text=True, capture_output=True, timeout=PATIENCE, env={**os.environ, **(environment or {})})
    text = run.stdout + run.stderr
    assert run.returncode == code, f"{command}\n{text}"
    for word in words:
        assert word in text, f"{word} is not in\n{text}"
    print(f"{pathlib.Path(command[0]).name}: {time.monotonic() - began:.2f} s", flush=True)
    return text


def check_launchers():
    script = str(HERE / "gloo_script.py")
    told = "process groups on the CPU use the back end muster instead of gloo"
    muster = [str(BIN / "muster"), "--standalone", "--nproc-per-node=2", "--torch-backend=muster", script]
    environment = {"PYTHON_EXEC": PYTHON, "PYTHONPATH": "", "MUSTER_LIBRARY": ""}
    text = launched(muster, [told, "rank 0: muster", "rank 1: muster"], environment)
    assert text.count(told) == 1, text
    # A launcher without the package would leave the script to gloo.
    lone = shutil.copy(BIN / "muster", tempfile.mkdtemp())
    launched([lone, *muster[1:]], ["muster's Python package is neither in PYTHONPATH nor beside this program"], environment, code=78)
    # A rank that hangs is named, also by the flight record that the script knows nothing of.
    text = launched([*muster, tempfile.mkdtemp()], ["rank 1 (pid", "did not reach it", "its timeout was 20000 ms"], environment, code=1)
    folder = re.search(r"run: muster flight '([^']+)'", text)[1]
    launched([str(BIN / "muster"), "flight", folder], ["is missing from operation 2 (all_reduce sum f32 x 77)"])
    launched([PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(HERE / "collectives.py")],
             ["rank 0 of 2 good", "rank 1 of 2 good"])


def check_ends(count):
    adopt_orphans(True)  # what a rank leaves becomes a child of this process
    before = left()
    for number in range(count):
        way = ("kept", "dropped", "destroyed", "alone")[number % 4]
        folder = play(stories.exit_pending, way, name=f"exit_{way}", ends="as a script")
        files = set(os.listdir(folder))
        assert files <= {"store", "log.0", "log.1"}, f"a script left {files}"
        shutil.rmtree(folder)
        assert left() == before, f"a script left {left()}, of which {before} was there"
    adopt_orphans(False)


def adopt_orphans(on):
    pr_set_child_subreaper = 36
    assert ctypes.CDLL(None).prctl(pr_set_child_subreaper, int(on), 0, 0, 0) == 0


def left():
    """What outlives a script: a process, files, descriptors that came here."""
    try:
        pid, _ = os.waitpid(-1, os.WNOHANG)
        raise AssertionError(f"a script left process {pid}" if pid else "a script left a process that runs on")
    except ChildProcessError:
        return os.listdir(own_tmpdir.folder), os.listdir("/proc/self/fd")


def main():
    if sys.argv[1:2] == ["--ends"]:
        return check_ends(int(sys.argv[2]))
    tcp = {"MUSTER_TRANSPORT": "tcp"}
    check_ends(4)
    for _ in range(3):
        play(stories.exit_daemon, ends="as a script")
    play(stories.exit_join, ends="as a script")
    # DDP imports it, here once for all ranks. It would make each end of an interpreter a second longer.
    importlib.import_module("torch._dynamo")
    for ranks, environment in ((1, {}), (2, {}), (3, {}), (2, tcp), (3, tcp)):
        play(collective_cases, ranks=ranks, environment=environment, name=f"collectives_{ranks}{'_tcp' if environment else ''}")
    for environment in ({}, tcp):
        play(stories.death, ranks=3, killed=(1,), environment=environment)
    play(stories.abort)
    play(bad_input.mismatch, environment=tcp)
    for environment in ({}, tcp):
        play(bad_input.differing, environment=environment)
    for story in (bad_input.absent, stories.power_sgd, stories.detail, stories.forked, stories.keyless, bad_input.other_torch,
                  bad_input.unregistered, bad_input.sparse_shapes, bad_input.absent_of_many, stories.excepthook, stories.reopened,
                  stories.parent_had_group, started.lost_failure, started.freed, started.slow_work, started.inference_mode,
                  started.coalesced_end):
        play(story)
    play(bad_input.absent_of_some, ranks=3)
    play(stories.pooled, ranks=3)
    play(stories.no_pool, environment=tcp)
    play(stories.fsdp)
    play(stories.gloo_on_gpus)
    check_same_bits()
    examples.check(play)
    check_launchers()


if __name__ == "__main__":
    main()
