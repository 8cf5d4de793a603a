"""@muster.torch.recoverable: the survivors of a failure stay in their processes, the process groups are made anew, and the
weights are those of a run that nobody disturbed."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "tests/integration/elastic")]
from job import Job, wait_for  # noqa: E402
from torch_there import has_torch  # noqa: E402

PYTHON = os.environ["MUSTER_TEST_PYTHON"]
LIBRARY = pathlib.Path(os.environ["MUSTER_BIN"]).parent / "lib"
SCRIPT = pathlib.Path(__file__).with_name("torch_kept_train.py")
MODULE = {"PYTHONPATH": f"{ROOT}/worker_runtime/python:{ROOT}/tests/support", "MUSTER_LIBRARY": str(LIBRARY / "libmuster.so.1")}
GATE = 8
# Python and PyTorch start in each process, on a host that may do other things.
PATIENCE = 120

if not has_torch(PYTHON) or not list(LIBRARY.glob("libmuster_torch_*.so")):
    print("skipped: no PyTorch, or the build has no back end for it (MUSTER_TEST_PYTHON, MUSTER_TORCH)")
    sys.exit(1 if os.environ.get("CI") == "true" else 77)


class Torch(Job):
    def train(self, kind, *options, ranks=3):
        self.ranks = ranks
        self.launcher = self.spawn("muster", "--standalone", "--nproc-per-node", ranks, "--max-restarts", 3, "--log-level=info",
                                   "--checkpoint-dir", self.directory / "checkpoints", *options, SCRIPT, kind, PYTHON_EXEC=PYTHON,
                                   OMP_NUM_THREADS="1", **MODULE)
        return self.launcher

    def said(self):
        return self.launcher.err.read_text()

    def wait(self, what, condition):
        try:
            return wait_for(what, condition, PATIENCE)
        except AssertionError as failure:
            raise AssertionError(f"{failure}\n{self.story()[-5000:]}") from None

    def of_round(self, number):
        starts = self.wait(f"start of round {number}", lambda: len(found := self.starts(round=number)) == self.ranks and found)
        return {line["rank"]: line for line in starts}

    def kill_at_the_gate(self):
        """Kills rank 0 while the others wait for it; when that was, and the starts of both rounds."""
        before = self.of_round(0)
        self.wait("steps before the gate", lambda: sum(line["step"] == GATE for line in self.lines("step")) == self.ranks)
        killed = time.monotonic_ns()
        os.kill(before[0]["pid"], signal.SIGKILL)
        self.touch("go")
        return killed, before, self.of_round(1)

    def weights(self):
        self.expect_exit(self.launcher, 0, PATIENCE)
        ends = {line["weights"] for line in self.lines("end")}
        assert len(ends) == 1, self.story()
        return ends.pop()


class KeptTorch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with Torch() as job:
            job.touch("go")
            job.train("muster")
            cls.undisturbed = job.weights()

    def expect_kept(self, before, after):
        for rank in (1, 2):
            self.assertEqual((after[rank]["pid"], after[rank]["count"]), (before[rank]["pid"], 1))
        self.assertNotEqual(after[0]["pid"], before[0]["pid"])
        self.assertEqual({line["group"] for line in after.values()}, {before[0]["group"]})

    def test_survivors_stay_and_come_to_the_weights_of_an_undisturbed_run(self):
        with Torch() as job:
            job.train("muster", "--warm-workers=1")
            job.of_round(0)
            job.wait("standby process", lambda: "the standby process of local rank 0" in job.said())
            killed, before, after = job.kill_at_the_gate()
            self.expect_kept(before, after)
            self.assertEqual(job.weights(), self.undisturbed)
            self.assertEqual([line["prefixes"] for line in job.lines("end")], [1] * job.ranks)
            first = [next(line for line in job.lines("step") if line["rank"] == rank and line["round"] == 1) for rank in range(job.ranks)]
            print(f"from the kill to the last rank's step: {(max(line['at_ns'] for line in first) - killed) / 1e9:.2f} s", file=sys.stderr)
            # The survivors keep the state of the gate's own step, whether its copy was whole or not.
            self.assertEqual({line["step"] for line in first}, {GATE + 1})
            loaded = {line["rank"]: (line["source"], line["kept"]) for line in job.lines("loaded") if line["round"] == 1}
            self.assertEqual(loaded, {0: ("survivor", "False"), 1: ("survivor", "True"), 2: ("survivor", "True")})
            # Of a group without the dead rank: it ended with the round.
            self.assertEqual({line["rank"] for line in job.lines("pending")}, {1, 2})
            self.assertTrue(all("the_round" in line["said"] for line in job.lines("pending")), job.story())
            job.expect_gone()

    def test_a_wrapper_that_is_made_before_the_load_has_changed_the_weights_and_all_return_to_a_copy(self):
        with Torch() as job:
            job.train("early")
            _, before, after = job.kill_at_the_gate()
            self.expect_kept(before, after)
            self.assertEqual(job.weights(), self.undisturbed)
            self.assertEqual({line["source"] for line in job.lines("loaded") if line["round"] == 1}, {"memory"})

    def test_a_sharded_model_is_made_in_each_round_and_loads_its_shards(self):
        found = []
        for disturbed in (False, True):
            with Torch() as job:
                job.train("fsdp")
                if disturbed:
                    _, before, after = job.kill_at_the_gate()
                    self.expect_kept(before, after)
                job.touch("go")
                found.append(job.weights())
                sources = {line["source"] for line in job.lines("loaded") if line["round"] == 1}
                self.assertEqual(sources, {"memory"} if disturbed else set())
        self.assertEqual(found[0], found[1])

    def test_what_cannot_be_kept_is_restarted_and_says_why(self):
        with Torch() as job:
            job.train("gloo", ranks=2)
            _, before, after = job.kill_at_the_gate()
            for rank in range(job.ranks):
                self.assertNotEqual(after[rank]["pid"], before[rank]["pid"])
            job.weights()
            line = "cannot stay in its process: a process group uses gloo, whose operations cannot be ended"
            self.assertIn(line, job.said())

    def test_what_nccl_and_a_gpu_need_with_stand_ins_for_both(self):
        with tempfile.TemporaryDirectory() as folder:  # torch leaves a cache there
            done = subprocess.run([PYTHON, SCRIPT.with_name("torch_kept_gpu_part.py")], capture_output=True, text=True, timeout=PATIENCE,
                                  env={**os.environ, **MODULE, "TMPDIR": folder})
        self.assertEqual(done.stdout, "ok\n", done.stderr)

    def test_another_exception_is_a_failure_as_ever(self):
        with Torch() as job:
            job.touch("go")
            job.train("broken", "--max-restarts=0", ranks=2)
            self.assertNotEqual(job.exit_code(job.launcher, PATIENCE), 0)
            self.assertIn("ValueError: not a round's end", job.said())


if __name__ == "__main__":
    unittest.main()
