"""Frameworks that cost too much, or bring too much, for each run of all tests. By hand, with a Python that has them:

usage: MUSTER_TEST_PYTHON=.../python by_hand.py [ByHand.test_NAME...]

DeepSpeed compiles a library at its first start, which takes minutes: let a run of deepspeed_train.py do that before, with
TORCH_EXTENSIONS_DIR set to a folder that stays, and set it here, too."""
import pathlib
import unittest

from runs import BIN, HERE, PYTHON, ROOT, Frameworks, every_other_batch, every_other_sample


class ByHand(Frameworks):
    def test_transformers(self):
        self.check_a_script(every_other_batch, "transformers_train.py")

    def test_torchx(self):
        def command(run):
            """torchx calls torchrun by PATH; what it has no option for comes from the environment."""
            run.environment |= {"PATH": f"{ROOT}/scripts/torchrun-compat:{run.environment['PATH']}", "MUSTER_PROGRAM": str(BIN / "muster"),
                                "MUSTER_MAX_RESTARTS": "1"}
            if run.backend == "muster":
                run.environment["MUSTER_TORCH_BACKEND"] = "muster"
            return [pathlib.Path(PYTHON).with_name("torchx"), "run", "--scheduler=local_cwd", "dist.ddp", "-j", "1x2", "--script",
                    HERE / "torchdata_train.py", "--", run.folder]

        self.check_a_kill(command, every_other_sample)

    def test_deepspeed(self):
        for stage in (1, 2, 3):
            with self.subTest(zero=stage):
                self.check_a_script(every_other_sample, "deepspeed_train.py", stage)


if __name__ == "__main__":
    unittest.main(verbosity=2)
