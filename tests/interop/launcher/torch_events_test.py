"""--event-log-handler console: torch's own Event.deserialize reads each line of muster, and its facts are those of the job.

MUSTER_TEST_PYTHON names the Python that has PyTorch. Without PyTorch: exit 77, in CI 1."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from torch_there import has_torch  # noqa: E402

READ = """
import json, sys
from torch.distributed.elastic.events import Event
for line in sys.stdin:
    event = Event.deserialize(line)
    print(json.dumps([event.name, event.source.value, event.timestamp, event.metadata]))
"""
FIELDS = {"run_id", "global_rank", "group_rank", "worker_id", "role", "hostname", "state", "total_run_time", "rdzv_backend",
          "raw_error", "metadata", "agent_restarts", "duration_ms"}


def events_of(muster, python, folder, script):
    run = subprocess.run([muster, "--nproc-per-node", "2", "--rdzv-id", "told", "--event-log-handler", "console", "--no-python",
                          "sh", "-c", script], capture_output=True, text=True, timeout=180, check=False,
                         env={**os.environ, "TMPDIR": folder, "HOME": folder})
    lines = [line for line in run.stderr.splitlines() if line.startswith('{"name":"torchelastic.')]
    read = subprocess.run([python, "-c", READ], input="\n".join(lines), capture_output=True, text=True, timeout=200, check=True)
    return [json.loads(line) for line in read.stdout.splitlines()], run


def main():
    muster = os.environ["MUSTER_BINARY"]
    python = os.environ.get("MUSTER_TEST_PYTHON", sys.executable)
    if not has_torch(python):
        print("no PyTorch")
        return 1 if os.environ.get("CI") else 77
    with tempfile.TemporaryDirectory() as folder:
        events, run = events_of(muster, python, folder, "exit 0")
        names = [(name.rsplit(".", 1)[1], source) for name, source, _, _ in events]
        assert names == [("START", "WORKER")] * 2 + [("SUCCEEDED", "WORKER")] * 2 + [("SUCCEEDED", "AGENT")], (names, run.stderr)
        for _, source, timestamp, metadata in events:
            assert timestamp == 0 and set(metadata) == FIELDS, metadata
            assert metadata["run_id"] == "told" and metadata["role"] == "default", metadata
            inner = json.loads(metadata["metadata"])
            assert inner["group_world_size"] == 1, inner
            assert source == "AGENT" or inner["local_rank"] == [metadata["global_rank"]], metadata
        events, run = events_of(muster, python, folder, 'test "$RANK" = 0 || exit 3; sleep 60')
        ends = {metadata["global_rank"]: metadata for name, _, _, metadata in events if not name.endswith("START")}
        assert ends[1]["state"] == "FAILED" and "exit code 3" in ends[1]["raw_error"], (ends, run.stderr)
        assert ends[0]["state"] == "TERMINATED" and ends[0]["raw_error"] is None, (ends, run.stderr)
        assert ends[None]["state"] == "FAILED" and ends[None]["raw_error"], (ends, run.stderr)
    print("torch reads each line")
    return 0


if __name__ == "__main__":
    sys.exit(main())
