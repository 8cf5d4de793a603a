"""Starts the servers of these tests: ours and PyTorch's two."""
import contextlib
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "support"))
from torch_there import has_torch  # noqa: E402

REPOSITORY = HERE.parents[2]
PYTHON = pathlib.Path(os.environ.get("MUSTER_TEST_PYTHON") or REPOSITORY / ".venv" / "bin" / "python")


def require_torch(test):
    """Ends the program as skipped (77) where there is no PyTorch; in CI that is a failure."""
    if has_torch(PYTHON):
        return
    if os.environ.get("CI") == "true":
        sys.exit(f"{test}: {PYTHON} has no torch, which CI requires (scripts/setup --tests installs it)")
    print(f"{test}: skipped, {PYTHON} has no torch (scripts/setup --tests installs it)")
    sys.exit(77)


@contextlib.contextmanager
def running(kind):
    """A fresh server of kind "ours", "relay" (a relay to ours), "libuv" or "legacy"; yields its port on 127.0.0.1."""
    ours = {"ours": [], "relay": ["--relay"]}
    command = [os.environ["MUSTER_STORE_SERVER"], *ours[kind]] if kind in ours else [PYTHON, HERE / "torch_server.py", kind]
    # PyTorch's servers ask DNS for the name of every client that connects: 5 s, now and then, unless told.
    environment = os.environ | {"RES_OPTIONS": "timeout:1 attempts:1"}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               env=environment)
    try:
        words = process.stdout.readline().split()
        if len(words) != 2:
            raise RuntimeError(f"the {kind} server did not start")
        yield int(words[1])
    finally:
        process.stdin.close()
        process.stdout.close()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
