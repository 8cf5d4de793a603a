"""Runs a program on some ranks, with an environment that is the test's own."""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import own_processes  # noqa: E402, F401

BIN = Path(os.environ["MUSTER_BIN"])
REPOSITORY = Path(__file__).resolve().parents[3]
DEADLINE_S = 240


def run(*command, folder=None, **extra):
    """In `folder`, where relative paths of the program lie; `extra` are variables."""
    kept = {key: value for key, value in os.environ.items()
            if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
            and not key.startswith(("MUSTER_", "TORCHELASTIC_", "PET_", "SLURM_"))}
    with tempfile.TemporaryDirectory() as scratch:
        return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=DEADLINE_S, cwd=folder,
                              env={**kept, "TMPDIR": scratch, **extra})


def on_ranks(ranks, *command, **extra):
    """Under muster, which keeps the lines of the ranks apart (--tee): they share no pipe that could mix them."""
    with tempfile.TemporaryDirectory() as logs:
        done = run(BIN / "muster", "--standalone", "--nproc-per-node", ranks, "--tee=1", f"--log-dir={logs}",
                   "--no-python", *command, **extra)
    done.stdout = re.sub(r"^\[default\d+\]:", "", done.stdout, flags=re.M)
    return done


def code_blocks(page, language):
    """The blocks of that language on a page of documentation."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", (REPOSITORY / page).read_text(), re.M | re.S)
    assert found, f"{page} has no block of {language}"
    return found
