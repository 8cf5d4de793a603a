#!/usr/bin/env python3
"""scripts/torchrun-compat in front in PATH: the names by which PyTorch's launchers are called start muster, everything else
that python is asked for is python's. No PyTorch is needed but for the comparison with its own launcher.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import own_processes  # noqa: E402, F401

BUILD = Path(os.environ["MUSTER_BUILD"])
COMPAT = Path(__file__).resolve().parents[3] / "scripts/torchrun-compat"
TORCH_PYTHON = Path(os.environ.get("MUSTER_TEST_PYTHON", ".venv/bin/python"))

SCRIPT = """import os, sys
sys.stdout.write(f"{os.environ['LOCAL_RANK']} {sys.argv[1:]} {sys.executable}\\n")
"""


class Compat(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="muster-compat-")
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        (self.folder / "train.py").write_text(SCRIPT)
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        for name in ("python", "python3"):
            (self.bin / name).symlink_to(shutil.which("python3", path=os.defpath))

    def run_words(self, *words, path=None, **environment):
        path = path or f"{COMPAT}:{self.bin}:{os.defpath}"
        terms = {"PATH": path, "MUSTER_PROGRAM": str(BUILD / "bin/muster"), "HOME": str(self.folder),
                 "TMPDIR": str(self.folder), **environment}
        return subprocess.run(list(words), env=terms, cwd=self.folder, text=True, capture_output=True, timeout=180)

    def workers(self, *words, **terms):
        done = self.run_words(*words, **terms)
        self.assertEqual(done.returncode, 0, done.stderr)
        return sorted(done.stdout.splitlines())

    def expected(self, *arguments, python=None):
        return [f"{rank} {[word.replace('N', str(rank)) for word in arguments]} {python or self.bin / 'python3'}"
                for rank in (0, 1)]

    def test_torchrun_is_muster_and_workers_get_their_arguments_as_they_are(self):
        self.assertEqual(self.workers("torchrun", "--nproc-per-node=2", "train.py", "--use-env", "x y"),
                         self.expected("--use-env", "x y"))

    def test_workers_of_torchrun_are_run_by_the_interpreter_in_its_first_line(self):
        own = self.folder / "env/bin"
        own.mkdir(parents=True)
        (own / "python3").symlink_to(shutil.which("python3", path=os.defpath))
        # pip writes the first; Debian and conda's builds add Python's own options.
        for first in (f"#!{own}/python3", f"#!{own}/python3 -s", f"#! {own}/python3 -I -s"):
            (own / "torchrun").write_text(f"{first}\n")
            (own / "torchrun").chmod(0o755)
            found = self.workers("torchrun", "--nproc-per-node=2", "train.py", path=f"{COMPAT}:{self.bin}:{own}:{os.defpath}")
            self.assertEqual(found, self.expected(python=own / "python3"))

    def test_launch_gives_the_local_rank_in_front_of_the_arguments(self):
        for python in ("python", "python3"):
            found = self.workers(python, "-m", "torch.distributed.launch", "--nproc_per_node=2", "train.py", "--lr", "0.1")
            self.assertEqual(found, self.expected("--local-rank=N", "--lr", "0.1", python=self.bin / python))
        found = self.workers("python3", "-m", "torch.distributed.launch", "--nproc_per_node", "2", "-m", "train", "a")
        self.assertEqual(found, self.expected("--local-rank=N", "a"))

    def test_launch_with_use_env_gives_none(self):
        for spelling in ("--use-env", "--use_env"):
            found = self.workers("python3", "-m", "torch.distributed.launch", spelling, "--nproc_per_node=2", "train.py", "a")
            self.assertEqual(found, self.expected("a"))
        done = self.run_words("python3", "-m", "torch.distributed.launch", "--no-python", "./train.py")
        self.assertEqual(done.returncode, 2)
        self.assertIn("needs --use-env", done.stderr)

    def test_run_as_a_module_is_torchrun_whatever_stands_before_it(self):
        for options in (["-u", "-m"], ["-X", "dev", "-W", "ignore", "-m"], ["-um"], ["-Wignore", "-Im"]):
            found = self.workers("python3", *options, "torch.distributed.run", "--nproc-per-node=2", "train.py")
            self.assertEqual(found, self.expected())
        self.assertEqual(self.workers("python3", "-mtorch.distributed.run", "--nproc-per-node=2", "train.py"), self.expected())

    def test_everything_else_is_pythons(self):
        (self.folder / "module.py").write_text("import sys; print(sys.argv[1:])\n")
        for words, output in ((["-c", "print(5)", "-m", "torch.distributed.run"], "5\n"),
                              (["module.py", "-m", "torch.distributed.run"], "['-m', 'torch.distributed.run']\n"),
                              (["-m", "module", "-m", "torch.distributed.launch"], "['-m', 'torch.distributed.launch']\n"),
                              (["-Wignore", "-c", "import sys; print(sys.executable)"], f"{self.bin}/python3\n")):
            done = self.run_words("python3", *words)
            self.assertEqual((done.returncode, done.stdout), (0, output), done.stderr)
        self.assertEqual(self.run_words("python3", "-c", "raise SystemExit(9)").returncode, 9)
        # The folder stands in PATH twice, under two names.
        twice = f"{COMPAT}:{COMPAT}/../torchrun-compat:{self.bin}:{os.defpath}"
        self.assertEqual(self.run_words("python3", "-c", "print(5)", path=twice).stdout, "5\n")

    def test_two_copies_in_path_do_not_take_each_other_for_python(self):
        for copy in ("first", "second"):
            shutil.copytree(COMPAT, self.folder / copy, symlinks=copy == "first")
        path = f"{self.folder}/first:{self.folder}/second:{COMPAT}:{self.bin}:{os.defpath}"
        self.assertEqual(self.run_words("python3", "-c", "print(5)", path=path).stdout, "5\n")
        self.assertEqual(self.workers("torchrun", "--nproc-per-node=2", "train.py", path=path), self.expected())
        done = self.run_words("/bin/sh", f"{self.folder}/first/python", "-V", path=f"{self.folder}/first:{self.folder}/second")
        self.assertEqual(done.returncode, 127)
        self.assertIn("python: not found in PATH behind", done.stderr)

    def test_muster_compat_runs_a_program_so(self):
        (self.folder / "tool.py").write_text("import os, sys; os.execvp('torchrun', ['torchrun', *sys.argv[1:]])\n")
        for words in (["torchrun"], ["sh", "-c", 'torchrun "$@"', "sh"], ["sh", "-c", 'python -m torch.distributed.run "$@"', "sh"],
                      ["tool.py"], ["-m", "tool"]):
            found = self.compat(*words, "--nproc-per-node=2", "train.py", "a b")
            python = self.bin / ("python" if "python" in " ".join(words) else "python3")
            self.assertEqual((found.returncode, sorted(found.stdout.splitlines())), (0, self.expected("a b", python=python)), found.stderr)

    def test_muster_compat_names_what_is_missing(self):
        for words, code, said in (([], 2, "usage: "), (["-m"], 2, "usage: "), (["no-such-tool"], 1, "there is no program no-such-tool")):
            found = self.compat(*words)
            self.assertEqual(found.returncode, code)
            self.assertIn(said, found.stderr)
        self.assertIn("accelerate launch", self.compat("--help").stdout)
        self.assertIn("unset the variable", self.compat("torchrun", TORCH_DEVICE_BACKEND_AUTOLOAD="0").stderr)

    def compat(self, *words, **environment):
        return self.run_words("python3", "-m", "muster.compat", *words, path=f"{self.bin}:{os.defpath}",
                              PYTHONPATH=str(COMPAT.parents[1] / "worker_runtime/python"), **environment)

    def test_what_is_missing_is_said(self):
        done = self.run_words("torchrun", "train.py", MUSTER_PROGRAM="muster-of-nowhere")
        self.assertEqual(done.returncode, 127)
        self.assertIn("torchrun: muster-of-nowhere is not in PATH", done.stderr)
        done = subprocess.run([str(COMPAT / "python3"), "-V"], env={"PATH": str(COMPAT)}, text=True, capture_output=True)
        self.assertEqual(done.returncode, 127)
        self.assertIn("python3: not found in PATH behind", done.stderr)

    @unittest.skipUnless(TORCH_PYTHON.exists() or os.environ.get("CI") == "true", "no Python with PyTorch (scripts/setup --tests)")
    def test_the_words_are_those_of_pytorchs_own_launcher(self):
        words = ["-m", "torch.distributed.launch", "--nproc_per_node=2", "train.py", "--lr", "0.1"]
        theirs = self.workers(str(TORCH_PYTHON.absolute()), *words)
        self.assertEqual([line.rsplit(" ", 1)[0] for line in theirs],
                         [line.rsplit(" ", 1)[0] for line in self.workers("python3", *words)])


if __name__ == "__main__":
    unittest.main()
