#!/usr/bin/env python3
"""A slow rank of a plain DDP script that asks for gloo, under `muster --torch-backend=muster`: the launcher names it, and does not
end it. Takes a minute, over which shares of time are gathered."""
import os
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "tests/integration/elastic")]
from job import Job, wait_for  # noqa: E402
from torch_there import has_torch  # noqa: E402

PYTHON = os.environ.get("MUSTER_TEST_PYTHON") or str(ROOT / ".venv/bin/python")
LIBRARY = pathlib.Path(os.environ["MUSTER_BIN"]).parent / "lib"
SLOW = 1
TRAIN = f"""import os, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(100, 100))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
over = torch.zeros(1)
while not over:
    time.sleep(0.3 if rank == {SLOW} else 0.01)  # loads its samples
    optimizer.zero_grad()
    model(torch.ones(8, 100)).sum().backward()
    optimizer.step()
    over.fill_(os.path.exists("done"))
    dist.all_reduce(over)
print(f"rank {{rank}} (pid {{os.getpid()}}) is at its end", flush=True)
dist.destroy_process_group()
"""


class Straggler(unittest.TestCase):
    def test_a_slow_rank_of_a_plain_script_is_named_and_goes_on(self):
        with Job() as job:
            script = job.directory / "train.py"
            script.write_text(TRAIN)
            node = job.spawn("muster", "--standalone", "--nproc-per-node", 2, "--torch-backend=muster", script, PYTHON_EXEC=PYTHON,
                             OMP_NUM_THREADS="1")
            said = r"rank (\d+) \(pid (\d+)\)[^:\n]* is a straggler: the other ranks of this node wait for it (\d+) % of their time\n"
            line = wait_for("line about the straggler", lambda: re.search(said, node.err.read_text()) or
                            self.assertIsNone(node.poll(), job.story()), 300)
            self.assertEqual(int(line[1]), SLOW, line[0])
            self.assertTrue(40 <= int(line[3]) <= 100, line[0])
            (job.directory / "done").touch()
            job.expect_exit(node, 0)
            self.assertIn(f"rank {SLOW} (pid {line[2]}) is at its end", node.out.read_text())  # print() writes the line's end apart


if __name__ == "__main__":
    if not has_torch(PYTHON) or not list(LIBRARY.glob("libmuster_torch_*.so")):
        print("skipped: no PyTorch, or the build has no back end for it (MUSTER_TEST_PYTHON, MUSTER_TORCH)")
        sys.exit(1 if os.environ.get("CI") == "true" else 77)
    unittest.main(verbosity=2)
