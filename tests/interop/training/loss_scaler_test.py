"""muster.LossScaler has the scales of torch.amp.GradScaler, bit for bit, on two ranks."""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/support"))
import own_tmpdir  # noqa: E402, F401
from torch_there import has_torch  # noqa: E402

BIN = pathlib.Path(os.environ["MUSTER_BIN"])
PYTHON = os.environ["MUSTER_TEST_PYTHON"]


def main():
    if not has_torch(PYTHON):
        print(f"loss scaler: skipped, {PYTHON} has no torch (scripts/setup --tests installs it)")
        return 1 if os.environ.get("CI") == "true" else 77
    run = subprocess.run([BIN / "muster", "--standalone", "--nproc-per-node=2", pathlib.Path(__file__).with_name("loss_scaler_rank.py")],
                         text=True, capture_output=True, timeout=250,
                         env={**os.environ, "PYTHON_EXEC": PYTHON, "OMP_NUM_THREADS": "1",
                              "PYTHONPATH": f"{ROOT}/worker_runtime/python:{ROOT}/tests/support"})
    assert run.returncode == 0, run.stdout + run.stderr
    assert "rank 0: as torch" in run.stdout and "rank 1: as torch" in run.stdout, run.stdout
    return 0


if __name__ == "__main__":
    sys.exit(main())
