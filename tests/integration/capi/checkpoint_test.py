"""Checkpoints and preemption notices from C and Python. `checkpoint_test.py c_api` runs the C program,
`checkpoint_test.py packages` what needs PyTorch, with MUSTER_TEST_PYTHON."""
import os
import sys
import tempfile
import unittest
from pathlib import Path

from python_test import LIBRARY, MODULE, PAGE, Packages as PackagesOfModule
from under_muster import code_blocks, on_ranks, run

WORKERS = Path(os.environ["MUSTER_WORKERS"])
WORKER = Path(__file__).with_name("checkpoint_worker.py")


class OnRanks(unittest.TestCase):
    python = sys.executable

    def setUp(self):
        # Within another one, because what is of one host lies beside it.
        self.folder = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "kept")
        os.mkdir(self.folder)

    def start(self, ranks, *command, **extra):
        variables = {"PYTHONPATH": str(MODULE), "PYTHONDONTWRITEBYTECODE": "1", "MUSTER_LIBRARY": LIBRARY, **extra}
        return (run if ranks == 1 else lambda *words, **given: on_ranks(ranks, *words, **given))(*command, **variables)

    def check(self, ranks, part, said="{} done", code=0):
        done = self.start(ranks, self.python, WORKER, part, self.folder)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()),
                         [f"rank {rank} of {ranks}: {said.format(part)}" for rank in range(ranks)], done.stderr)
        self.assertNotIn("Exception ignored", done.stderr)


class CApi(OnRanks):
    def test_checkpoints_used_well_and_badly(self):
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                done = self.start(ranks, WORKERS / "c_api_checkpoints", f"{self.folder}/{ranks}")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(len(done.stdout.splitlines()), ranks)


class Module(OnRanks):
    def test_what_was_saved_comes_back_in_any_world(self):
        self.check(3, "save")
        for ranks in (1, 3, 4):
            with self.subTest(ranks=ranks):
                self.check(ranks, "load")
        self.check(2, "load_state")
        self.check(2, "damaged")

    def test_a_first_start_finds_nothing(self):
        self.check(2, "first_start")

    def test_a_reducer_goes_on_from_what_was_kept_of_it(self):
        self.check(2, "reducer_state")

    def test_what_is_no_shard_is_rank_0s_whatever_the_others_have(self):
        self.check(3, "replicas")

    def test_debugging_compares_replicas(self):
        self.check_debug({"PYTHONDEVMODE": "1"})
        self.check_debug({"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})

    def check_debug(self, variables):
        done = self.start(2, self.python, WORKER, "debug", self.folder, **variables)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_mistakes_are_exceptions_with_a_sentence(self):
        self.check(1, "mistakes")

    def test_snapshots_outlive_a_killed_worker(self):
        done = self.start(2, self.python, WORKER, "snapshots", self.folder, PET_MAX_RESTARTS="1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), [f"rank {rank} of 2: snapshots done" for rank in (0, 1)], done.stderr)

    def test_an_exception_in_the_middle_of_a_load_comes_out(self):
        self.check(3, "save")
        self.check(2, "no_memory")

    def test_a_clean_step_outlives_an_error_of_another_rank_and_ends_where_texts_are_saved(self):
        self.check(2, "clean_steps")

    def test_random_generators_go_on(self):
        self.check(1, "generators")

    def test_a_notice_to_one_rank_is_seen_by_all_in_the_same_step(self):
        self.check(2, "notice", said="left after 7", code=76)

    def test_the_page_s_program_prints_what_the_page_says(self):
        program = Path(self.folder) / "program.py"
        program.write_text(code_blocks(PAGE, "python")[2])
        for said in code_blocks(PAGE, "text")[1:3]:
            done = self.start(2, self.python, program, MUSTER_CHECKPOINT_DIR=f"{self.folder}/c")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(sorted(done.stdout.splitlines()), sorted(said.splitlines()))


class Packages(OnRanks):
    python = PackagesOfModule.python

    def setUp(self):
        PackagesOfModule.setUp(self)
        super().setUp()

    def test_tensors_and_arrays_of_every_kind(self):
        self.check(2, "packages")

    def test_the_page_s_model_goes_on_where_it_stopped(self):
        program = Path(self.folder) / "program.py"
        program.write_text(code_blocks(PAGE, "python")[3])
        told = []
        for _ in range(2):
            done = self.start(2, self.python, program, MUSTER_CHECKPOINT_DIR=f"{self.folder}/c", OMP_NUM_THREADS="1")
            self.assertEqual(done.returncode, 0, done.stderr)
            told.append(sorted(done.stdout.splitlines()))
        self.assertIn("from step 0", told[0][0])
        self.assertIn("from step 10", told[1][0])


if __name__ == "__main__":
    chosen = {"c_api": CApi, "packages": Packages}.get(sys.argv[1] if len(sys.argv) > 1 else "", Module)
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(chosen)
    sys.exit(not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful())
