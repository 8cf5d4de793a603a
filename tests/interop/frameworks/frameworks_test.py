"""Training frameworks under muster: their own scripts, of which one worker is killed in the middle, resume from their own
checkpoints, over gloo and over muster, and end with the weights that this test computes by itself.

usage: frameworks_test.py [Short.test_NAME...]"""
import importlib.metadata
import os
import sys
import unittest

from runs import BACKENDS, HERE, PYTHON, Frameworks, Run, every_other_batch, every_other_sample, expected

import torch
from job import free_port

NEEDED = ("lightning", "accelerate", "torchdata", "submitit")


class Short(Frameworks):
    def test_lightning(self):
        self.check_a_script(every_other_sample, "lightning_train.py", "ddp")

    def test_accelerate(self):
        self.check_a_script(every_other_batch, "accelerate_train.py")

    def test_torchdata_as_a_job_of_submitit(self):
        self.check_a_kill(lambda run: [PYTHON, HERE / "submitit_job.py", "jobs", *run.of_two_ranks("torchdata_train.py")],
                          every_other_sample)

    def test_fsdp2_of_three_nodes_goes_on_with_two(self):
        """A launcher is killed: its node is lost, and the others load what three ranks have saved."""
        runs = [Run(self, backend, halt_at=64) for backend in BACKENDS]  # in step 6, by rank 1 of 3
        for run in runs:
            endpoint = f"localhost:{free_port()}"
            for node in range(3):
                # The long lease and last call are for a busy machine: the guardian of the killed launcher reports its end at once.
                run.start(*run.words, "--nnodes=2:3", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", f"--node-rank={node}",
                          "--lease=60", f"--rdzv-conf=is_host={int(node == 0)},last_call_timeout=300", HERE / "fsdp_train.py", run.folder)
        for run in runs:
            run.halted_pid()
            run.processes[1].kill()
        weights = expected(12, 1, lambda step, _: range(step * 12, (step + 1) * 12))
        for run in runs:
            self.expect_weights(run, weights, lambda one, other: torch.allclose(one, other, rtol=0, atol=1e-6))


if __name__ == "__main__":
    there = {distribution.metadata["Name"] for distribution in importlib.metadata.distributions()}
    missing = [name for name in NEEDED if name not in there]
    if missing:
        print(f"skipped: {PYTHON} lacks {', '.join(missing)} (scripts/setup --tests installs them)")
        sys.exit(1 if os.environ.get("CI") == "true" else 77)
    unittest.main(verbosity=2, failfast=True)
