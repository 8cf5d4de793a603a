"""The samplers of the Python module without any package, and their page. `sampler_test.py c_api` runs the C program,
`sampler_test.py packages` what needs PyTorch, with MUSTER_TEST_PYTHON."""
import os
import sys
import tempfile
import unittest
from pathlib import Path

from under_muster import REPOSITORY, code_blocks, on_ranks, run

WORKERS = Path(os.environ["MUSTER_WORKERS"])
MODULE = REPOSITORY / "worker_runtime/python"
PAGE = "worker_runtime/data/DATA_ORDER.md"

sys.path[:0] = [str(MODULE), str(REPOSITORY / "tests/support")]
import muster
from torch_there import has_torch


def run_block(python, block, ranks=1):
    variables = {"PYTHONPATH": str(MODULE), "PYTHONDONTWRITEBYTECODE": "1", "MUSTER_LIBRARY": os.environ["MUSTER_LIBRARY"]}
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program.py"
        program.write_text(block)
        command = [python, "-W", "error", program]
        return run(*command, **variables) if ranks == 1 else on_ranks(ranks, *command, **variables)


class CApi(unittest.TestCase):
    def test_the_samplers_used_well_and_badly(self):
        done = run(WORKERS / "c_api_samplers")
        self.assertEqual(done.returncode, 0, done.stderr)


class Page(unittest.TestCase):
    maxDiff = None

    def test_the_cpp_program_prints_what_the_page_says(self):
        done = run(WORKERS / "data_order_page")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, code_blocks(PAGE, "text")[0])

    def test_the_python_program_prints_what_the_page_says(self):
        done = run_block(sys.executable, code_blocks(PAGE, "python")[0])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, code_blocks(PAGE, "text")[1])

    def test_on_two_ranks_each_has_its_part(self):
        done = run_block(sys.executable, code_blocks(PAGE, "python")[0], ranks=2)
        self.assertEqual(done.returncode, 0, done.stderr)
        whole = [line.partition("[")[2] for line in code_blocks(PAGE, "text")[1].splitlines() if "[" in line]
        seen = sorted(line.partition("[")[2] for line in done.stdout.splitlines() if "[" in line)
        parts = [f"[{line}"[1:-1].split(", ")[rank::2] for line in whole for rank in (0, 1)]
        self.assertEqual(seen, sorted(", ".join(part) + "]" for part in parts))


class Distributed(unittest.TestCase):
    def test_neither_torch_nor_numpy_is_imported(self):
        done = run_block(sys.executable, "import sys, muster\nlist(muster.DistributedSampler(9, 2, 1))\n"
                                         "list(muster.ElasticSampler(9, 2))\nprint({'torch', 'numpy'} & set(sys.modules))\n")
        self.assertEqual(done.stdout, "set()\n", done.stderr)

    def test_the_log_tells_once_of_a_second_pass_without_set_epoch(self):
        done = run_block(sys.executable, "import muster\nsampler = muster.DistributedSampler([1, 2, 3], 1, 0)\n"
                                         "print(sampler.order_repeated)\nfor _ in range(4): list(sampler)\n"
                                         "print(sampler.order_repeated)\n")
        self.assertEqual(done.stdout, "False\nTrue\n")
        self.assertEqual(done.stderr.count("call set_epoch() before each pass"), 1, done.stderr)

    def test_what_cannot_be_is_refused_in_words(self):
        for arguments, words in (((-1,), "the number of samples is -1"), ((5, 2, 2), "rank 2 is not in a world of 2"),
                                 ((5, 0, 0), "num_replicas is 0"), ((2**70,), "the number of samples is"),
                                 ((2**40,), "too many for torch's order")):
            with self.subTest(arguments), self.assertRaisesRegex((ValueError, muster.MusterError), words):
                muster.DistributedSampler(*arguments)
        with self.assertRaisesRegex(ValueError, "seed is"):
            muster.DistributedSampler(5, seed=2**64)
        with self.assertRaises(TypeError):
            muster.DistributedSampler(None)


class Elastic(unittest.TestCase):
    def test_ranks_that_come_and_go_take_every_sample_once(self):
        worlds, seen, state = [3, 3, 1, 2, 5, 4, 4, 2], [], None
        for world in worlds:
            ranks = [muster.ElasticSampler(50, 7, num_replicas=world, rank=rank, seed=3) for rank in range(world)]
            for sampler in ranks:
                if state is not None:
                    sampler.load_state_dict(state)
            steps = [next(iter(sampler)) for sampler in ranks]
            seen += [index for i in range(7) for index in steps[i % world][i // world:i // world + 1]]
            for sampler in ranks:
                sampler.commit()
            states = [sampler.state_dict() for sampler in ranks]
            state = states[0]
            self.assertEqual(states, [state] * world)
        self.assertEqual(seen, list(muster.DistributedSampler(50, 1, 0, seed=3)))
        self.assertEqual((state["epoch"], state["cursor"]), (1, 0))

    def test_a_step_that_was_not_committed_comes_again(self):
        sampler = muster.ElasticSampler(20, 4)
        first = next(iter(sampler))
        self.assertEqual(next(iter(sampler)), first)
        sampler.commit()
        self.assertNotEqual(next(iter(sampler)), first)

    def test_a_pass_without_any_commit_is_told(self):
        sampler = muster.ElasticSampler(20, 4)
        list(sampler)
        with self.assertWarnsRegex(RuntimeWarning, "without any commit"):
            iter(sampler)

    def test_batch_and_place_change_on_the_way(self):
        sampler = muster.ElasticSampler(12, 4, order="sequential", deal="contiguous", tail="pad")
        steps = iter(sampler)
        self.assertEqual(next(steps), [0, 1, 2, 3])
        sampler.commit()
        sampler.set_batch_size(5)
        sampler.set_place(1, 2)
        self.assertEqual(next(iter(sampler)), [6, 7, 8])
        sampler.commit()
        self.assertEqual(list(sampler), [[11, 0, 1]])
        self.assertEqual((sampler.batch_size, len(sampler)), (5, 1))

    def test_mistakes_are_errors(self):
        sampler = muster.ElasticSampler(12, 4)
        with self.assertRaisesRegex(RuntimeError, "without a returned step"):
            sampler.commit()
        steps = iter(sampler)
        next(steps)
        sampler.load_state_dict(sampler.state_dict())
        with self.assertRaisesRegex(RuntimeError, "start a new iteration"):
            next(steps)
        with self.assertRaisesRegex(ValueError, "tail is 'keep'; known: short_batch, pad, drop"):
            muster.ElasticSampler(12, 4, tail="keep")
        with self.assertRaisesRegex(muster.MusterError, "the batch size is 0"):
            muster.ElasticSampler(12, 0)
        with self.assertRaisesRegex(ValueError, "batch_size is"):
            muster.ElasticSampler(12, 2**63)
        state = sampler.state_dict()
        for field, value, words in (("samples", 13, "13 samples, but this sampler has 12"),
                                    ("seed", 1, "seed 1, but this sampler has seed 0"), ("cursor", -1, "field 'cursor' is -1"),
                                    ("cursor", 12, "it must be 0 to 11"), ("epoch", 1.5, "field 'epoch' is 1.5")):
            with self.subTest(field=field), self.assertRaisesRegex(muster.MusterError, words):
                sampler.load_state_dict({**state, field: value})
        self.assertEqual(sampler.state_dict(), state)

    def test_seeds_of_samples_do_not_depend_on_the_world(self):
        few, many = muster.ElasticSampler(50, 5), muster.ElasticSampler(50, 10, num_replicas=4, rank=3)
        self.assertEqual(few.sample_seed(7), many.sample_seed(7))
        self.assertNotEqual(few.sample_seed(7), few.sample_seed(7, epoch=1))


class Packages(unittest.TestCase):
    def test_the_page_s_loader(self):
        python = os.environ.get("MUSTER_TEST_PYTHON", "")
        if not has_torch(python):
            if os.environ.get("CI") == "true":
                self.fail(f"{python} has no torch; run scripts/setup --tests")
            self.skipTest(f"{python} has no torch; run scripts/setup --tests")
        done = run_block(python, code_blocks(PAGE, "python")[1])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, "1 4\n2 4\n")


if __name__ == "__main__":
    chosen = {"c_api": (CApi,), "packages": (Packages,)}.get("".join(sys.argv[1:]), (Page, Distributed, Elastic))
    suite = unittest.TestSuite(unittest.defaultTestLoader.loadTestsFromTestCase(case) for case in chosen)
    sys.exit(not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful())
