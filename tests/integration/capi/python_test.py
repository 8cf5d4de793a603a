"""The Python module under muster. `python_test.py packages` runs what needs PyTorch, with MUSTER_TEST_PYTHON."""
import os
import re
import sys
import tempfile
import unittest
from pathlib import Path

from under_muster import REPOSITORY, code_blocks, on_ranks, run

WORKER = Path(__file__).with_name("python_worker.py")
MODULE = REPOSITORY / "worker_runtime/python"
LIBRARY = os.environ["MUSTER_LIBRARY"]
PAGE = "worker_runtime/python/PYTHON.md"


class OnRanks(unittest.TestCase):
    python = sys.executable
    path = str(MODULE)

    def start(self, ranks, *arguments, library=LIBRARY, **extra):
        variables = {"PYTHONPATH": self.path, "PYTHONDONTWRITEBYTECODE": "1", "MUSTER_LIBRARY": library, **extra}
        if ranks == 1:
            return run(self.python, *arguments, **variables)
        return on_ranks(ranks, self.python, *arguments, **variables)

    def check(self, ranks, part, **extra):
        done = self.start(ranks, WORKER, part, **extra)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()),
                         [f"rank {rank} of {ranks}: {part} done" for rank in range(ranks)], done.stderr)
        self.assertNotIn("Exception ignored", done.stderr)

    def run_block(self, block, ranks):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "program.py"
            program.write_text(block)
            done = self.start(ranks, program, folder=folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        return sorted(done.stdout.splitlines())


class Module(OnRanks):
    def test_every_operation(self):
        for ranks, transport in ((1, "automatic"), (2, "shared_memory"), (3, "shared_memory"), (3, "tcp")):
            with self.subTest(ranks=ranks, transport=transport):
                self.check(ranks, "operations", MUSTER_TRANSPORT=transport)

    def test_started_work_keeps_its_memory(self):
        self.check(2, "background")

    def test_a_thread_that_waits_leaves_the_interpreter_to_the_others(self):
        self.check(2, "threads")

    def test_the_gradient_reducer(self):
        for ranks in (1, 2, 3):
            with self.subTest(ranks=ranks):
                self.check(ranks, "train")

    def test_an_exchange_of_the_program_s_own(self):
        for ranks in (1, 2, 3):
            with self.subTest(ranks=ranks):
                self.check(ranks, "exchange")
                self.check(ranks, "exchange_mistakes")

    def test_the_sharded_optimizer(self):
        for ranks in (1, 3):
            with self.subTest(ranks=ranks):
                self.check(ranks, "shard")

    def test_the_store_and_batch_statistics(self):
        for ranks in (1, 3):
            with self.subTest(ranks=ranks):
                self.check(ranks, "services")

    def test_mistakes_are_exceptions_with_a_sentence(self):
        self.check(1, "mistakes")
        self.check(2, "mistakes")

    def test_a_forked_child_leaves_the_job_alone(self):
        self.check(2, "forked")

    def test_a_dead_rank_is_named(self):
        done = self.start(3, WORKER, "death")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), ["rank 0 of 3: death done", "rank 2 of 3: death done"])

    def test_the_page_s_program_prints_what_the_page_says(self):
        self.assertEqual(self.run_block(code_blocks(PAGE, "python")[0], 2),
                         sorted(code_blocks(PAGE, "text")[0].splitlines()))

    def test_the_page_s_other_program_prints_what_the_page_says(self):
        self.assertEqual(self.run_block(code_blocks(PAGE, "python")[4], 2),
                         sorted(code_blocks(PAGE, "text")[3].splitlines()))

    def test_the_page_s_function_that_survives_prints_what_the_page_says(self):
        self.assertEqual(self.run_block(code_blocks(PAGE, "python")[-1], 2),
                         sorted(code_blocks(PAGE, "text")[-1].splitlines()))

    def test_the_module_is_the_launcher_too_and_has_one_version(self):
        done = self.start(1, "-m", "muster", "--version")
        asked = self.start(1, "-c", "import muster, importlib.metadata as m; print(muster.__version__, m.version('muster'))")
        version = re.search(r"project\(muster VERSION (\S+)", (REPOSITORY / "CMakeLists.txt").read_text())[1]
        self.assertEqual(asked.stdout.split(), [version, version], asked.stderr)
        self.assertEqual(done.stdout.splitlines()[:1], [f"muster {version}"], done.stderr)

    def test_a_library_that_is_not_there_is_an_error_that_says_what_to_do(self):
        done = self.start(1, WORKER, "operations", library="/no/such/libmuster.so")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"MusterError: cannot load /no/such/libmuster\.so: .*MUSTER_LIBRARY")

    def test_a_wrong_environment_is_an_error_that_names_the_variable(self):
        done = self.start(1, WORKER, "operations", RANK="0")
        self.assertRegex(done.stderr, r"MusterError: .*WORLD_SIZE is not set")


class Packages(OnRanks):
    python = os.environ.get("MUSTER_TEST_PYTHON") or sys.executable
    path = f"{MODULE}:{REPOSITORY}/tests/support"

    def setUp(self):
        if not Path(self.python).exists():
            if os.environ.get("CI") == "true":
                self.fail(f"{self.python} is not there; run scripts/setup --tests")
            self.skipTest(f"no {self.python}; run scripts/setup --tests")

    def test_tensors_and_arrays_of_packages(self):
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                self.check(ranks, "packages")

    def test_the_page_s_model_learns_the_same_on_any_number_of_ranks(self):
        block = code_blocks(PAGE, "python")[1]
        losses = {ranks: {float(line.split()[-1]) for line in self.run_block(block, ranks)} for ranks in (1, 2, 3)}
        for ranks, found in losses.items():
            self.assertEqual(len(found), 1, f"all of {ranks} ranks: {found}")
        alone = losses[1].pop()
        for ranks in (2, 3):
            self.assertAlmostEqual(losses[ranks].pop(), alone, delta=2e-4)


if __name__ == "__main__":
    chosen = Packages if sys.argv[1:] == ["packages"] else Module
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(chosen)
    sys.exit(not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful())
