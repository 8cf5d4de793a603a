"""The C API as C programs see it: on one rank and several, over shared memory and TCP, used well and badly."""
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from under_muster import REPOSITORY, code_blocks, on_ranks, run

WORKERS = Path(os.environ["MUSTER_WORKERS"])
LIBRARY = Path(os.environ["MUSTER_LIBRARY"])
HEADERS = REPOSITORY / "worker_runtime/include"


def is_sanitized():
    return "__asan_init" in subprocess.run([os.environ["MUSTER_NM"], "-D", LIBRARY], capture_output=True, text=True,
                                           check=True).stdout


class CApi(unittest.TestCase):
    def check_ranks(self, done, ranks):
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        said = sorted(re.findall(r"^rank (\d+) of (\d+): \d+ checks$", done.stdout, re.M))
        self.assertEqual(said, [(str(rank), str(ranks)) for rank in range(ranks)])

    def test_every_operation(self):
        self.check_ranks(run(WORKERS / "c_api_operations"), 1)
        for ranks in (2, 3, 5):
            for transport in ("shared_memory", "tcp"):
                with self.subTest(ranks=ranks, transport=transport):
                    self.check_ranks(on_ranks(ranks, WORKERS / "c_api_operations", MUSTER_TRANSPORT=transport), ranks)

    def test_groups_that_meet_by_the_callers_store(self):
        self.check_ranks(run(WORKERS / "c_api_group"), 1)
        for ranks in (2, 3):
            for transport in ("shared_memory", "tcp"):
                with self.subTest(ranks=ranks, transport=transport):
                    self.check_ranks(on_ranks(ranks, WORKERS / "c_api_group", MUSTER_TRANSPORT=transport), ranks)

    def test_a_context_and_its_program_s_groups_write_one_flight_record(self):
        with tempfile.TemporaryDirectory() as folder:
            self.check_ranks(run(WORKERS / "c_api_group", MUSTER_FLIGHT_DIR=folder), 1)
            record = Path(folder, "flight_alone_0.ring").read_bytes()
        for group in (b"world\0", b"all\0"):
            self.assertIn(group, record)

    def test_the_gradient_reducer(self):
        self.check_ranks(run(WORKERS / "c_api_training"), 1)
        for ranks in (2, 3):
            with self.subTest(ranks=ranks):
                self.check_ranks(on_ranks(ranks, WORKERS / "c_api_training"), ranks)

    def test_the_sharded_optimizer(self):
        self.check_ranks(run(WORKERS / "c_api_optimizer"), 1)
        for ranks in (2, 3):
            with self.subTest(ranks=ranks):
                self.check_ranks(on_ranks(ranks, WORKERS / "c_api_optimizer"), ranks)

    def test_an_exchange_of_the_program_s_own(self):
        self.check_ranks(run(WORKERS / "c_api_exchange"), 1)
        for ranks, transport in ((2, "shared_memory"), (3, "tcp")):
            with self.subTest(ranks=ranks):
                self.check_ranks(on_ranks(ranks, WORKERS / "c_api_exchange", MUSTER_TRANSPORT=transport), ranks)
                for how in ("status", "unknown", "root", "count"):
                    self.check_ranks(on_ranks(ranks, WORKERS / "c_api_exchange", how, MUSTER_TRANSPORT=transport), ranks)

    def test_the_store_and_batch_statistics(self):
        self.check_ranks(run(WORKERS / "c_api_store"), 1)
        self.check_ranks(on_ranks(3, WORKERS / "c_api_store"), 3)

    @unittest.skipUnless(os.environ.get("MUSTER_STAND_INS") and not is_sanitized(), "needs the NCCL plugin's stand-ins")
    def test_gradients_on_a_gpu(self):
        folder = Path(os.environ["MUSTER_STAND_INS"])
        libraries = {"MUSTER_NCCL_PLUGIN": str(LIBRARY.parent / "libmuster_nccl.so"),
                     "MUSTER_CUDA_LIBRARY": str(folder / "libstandin_cuda.so"),
                     "MUSTER_NCCL_LIBRARY": str(folder / "libstandin_nccl.so")}
        self.check_ranks(run(WORKERS / "c_api_gpu", **libraries), 1)
        self.check_ranks(on_ranks(2, WORKERS / "c_api_gpu", **libraries), 2)

    def test_wrong_handles_and_arguments_are_errors_and_never_the_end(self):
        self.check_ranks(on_ranks(2, WORKERS / "c_api_misuse"), 2)

    def test_every_survivor_learns_which_rank_it_was(self):
        for transport in ("shared_memory", "tcp"):
            for how in ("late", "abort", "models", "refused"):
                with self.subTest(how=how, transport=transport):
                    done = on_ranks(3, WORKERS / "c_api_misuse", how, MUSTER_TRANSPORT=transport)
                    self.check_ranks(done, 3)
            with self.subTest(how="death", transport=transport):
                done = on_ranks(3, WORKERS / "c_api_misuse", "death", MUSTER_TRANSPORT=transport)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(len(re.findall(r"^rank [02] of 3: \d+ checks$", done.stdout, re.M)), 2)

    def test_the_library_exports_its_functions_and_nothing_else(self):
        listed = subprocess.run([os.environ["MUSTER_NM"], "-D", "--defined-only", "--format=posix", LIBRARY],
                                capture_output=True, text=True, check=True).stdout
        exported = {line.split()[0] for line in listed.splitlines()}
        text = "".join(header.read_text() for header in (HEADERS / "muster").glob("muster*.h"))
        declared = set(re.findall(r"^(?:muster_status|int|void|const char\*) (muster_\w+)\(", text, re.M))
        self.assertEqual(exported, declared)
        self.assertGreater(len(declared), 40)

    def test_the_header_is_good_c99_and_good_cpp(self):
        for flags in (["-x", "c", "-std=c99"], ["-x", "c", "-std=c17"], ["-x", "c++", "-std=c++11"]):
            with self.subTest(flags[-1]):
                subprocess.run([os.environ["MUSTER_CC"], *flags, "-Wall", "-Wextra", "-pedantic", "-Werror",
                                f"-I{HEADERS}", "-fsyntax-only", HEADERS / "muster/muster.h"], check=True)

    @unittest.skipIf(is_sanitized(), "the compiler's line on the page knows no sanitizer")
    def test_the_page_s_program_does_what_the_page_says(self):
        page = "worker_runtime/capi/C_API.md"
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "average.c").write_text(code_blocks(page, "c")[0])
            subprocess.run([os.environ["MUSTER_CC"], "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", f"-I{HEADERS}",
                            "average.c", f"-L{LIBRARY.parent}", "-lmuster", f"-Wl,-rpath,{LIBRARY.parent}", "-o",
                            "average"], cwd=folder, check=True)
            done = on_ranks(2, Path(folder) / "average")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), sorted(code_blocks(page, "text")[0].splitlines()))


if __name__ == "__main__":
    unittest.main(verbosity=2)
