#!/usr/bin/env python3
"""`muster torch-build` with a stand-in for the compiler, because the real one takes minutes: it notes what it is asked for
and links by copying the back end that this build has. The end is the real one: torch loads what was made."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
import own_tmpdir  # noqa: E402, F401
from torch_there import has_torch  # noqa: E402

PYTHON = os.environ.get("MUSTER_TEST_PYTHON") or str(ROOT / ".venv/bin/python")
BIN = pathlib.Path(os.environ.get("MUSTER_BIN", ROOT / "build/release/bin"))
LIBRARY = BIN.parent / "lib"
COMPILER = """#!/bin/sh
printf '%s\\n' "$*" >>"$NOTES"
[ -z "$SAYS" ] || { echo "$SAYS"; exit 1; }
[ -z "$STOPS" ] || ! mkdir "$NOTES.stopped" 2>/dev/null || kill -TERM "$PPID"
case " $* " in *" -shared "*) from=$BUILT ;; *) from=/dev/null ;; esac
for word; do [ "$last" = -o ] && to=$word; last=$word; done
cp "$from" "$to" && chmod =rwx "$to"  # as a linker: the mode is the umask's
"""
USE = """import torch.distributed as dist
dist.init_process_group("muster", store=dist.HashStore(), rank=0, world_size=1)
print("used:", dist.distributed_c10d._get_default_group()._get_backend(__import__("torch").device("cpu")).name())
"""


class TorchBuild(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="muster torch build ")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.compiler = self.folder / "a c++"
        self.compiler.write_text(COMPILER)
        self.compiler.chmod(0o755)
        self.notes = self.folder / "notes"
        self.notes.touch()
        self.library = next(LIBRARY.glob("libmuster_torch_*.so"))

    def build(self, *words, umask=-1, **variables):
        environment = {**os.environ, "PYTHON_EXEC": PYTHON, "XDG_CACHE_HOME": str(self.folder / "cache"), "NOTES": str(self.notes), "BUILT": str(self.library),
                       "SAYS": "", "STOPS": "", "PYTHONDONTWRITEBYTECODE": "1", **variables}
        return subprocess.run([BIN / "muster", "torch-build", *map(str, words)], capture_output=True, text=True, timeout=190, env=environment,
                              umask=umask)

    def use(self):
        """What a script prints whose PyTorch finds the back end in the cache only."""
        alone = self.folder / "lib"
        alone.mkdir(exist_ok=True)
        shutil.copy(LIBRARY / "libmuster.so.1", alone)
        done = subprocess.run([PYTHON, "-c", USE], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=190,
                              env={**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache"), "MUSTER_LIBRARY": str(alone / "libmuster.so.1"),
                                   "PYTHONPATH": str(ROOT / "worker_runtime/python"), "PYTHONDONTWRITEBYTECODE": "1"})
        return done.stdout

    def test_what_was_made_is_in_the_cache_and_torch_finds_it_there(self):
        done = self.build("--compiler", self.compiler)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        made = self.folder / "cache/muster/torch" / self.library.name
        self.assertIn(f"muster: made {made}\n", done.stdout)
        self.assertEqual([path.name for path in made.parent.iterdir()], [made.name])  # nothing else is left there
        units = {path.name for path in (ROOT / "worker_runtime/torch").glob("*.cpp")}
        lines = self.notes.read_text().splitlines()
        self.assertEqual({word.rpartition("/")[2] for line in lines[:-1] for word in line.split(" ") if word.endswith(".cpp")}, units)
        self.assertIn(" -shared ", f" {lines[-1]} ")
        self.assertIn("used: muster", self.use())

    def test_what_the_umask_lets_a_group_write_is_used_and_what_others_may_write_is_refused_by_name(self):
        made = self.folder / "cache/muster/torch" / self.library.name
        done = self.build(umask=0o002, CXX=f"env '{self.compiler}'")  # a command, as "ccache g++"
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("used: muster", self.use())
        made.chmod(0o775)
        self.assertIn(f"{made} is not used, because other users may write {made} (chmod go-w {made})", self.use())

    def test_a_library_that_does_not_load_is_passed_over_and_named_if_there_is_no_other(self):
        (self.folder / "lib").mkdir()
        broken = self.folder / "lib" / self.library.name
        lacking = self.library.read_bytes().replace(b"opTypeToString", b"opTypeToStrinX")  # a name that libtorch does not have
        for content, reason in ((b"", "file too short"), (lacking, "undefined symbol: _ZN4c10d14opTypeToStrinX")):
            broken.write_bytes(content)
            said = self.use()
            for words in (f"{broken}: {reason}", "make one with `muster torch-build`", "or set MUSTER_TORCH_LIBRARY"):
                self.assertIn(words, said)
        self.assertEqual(self.build("--compiler", self.compiler).returncode, 0)
        self.assertIn("used: muster", self.use())

    def test_what_is_missing_is_said_with_what_to_do(self):
        for words, variables, said in (
                (("--compiler", "nosuchc++"), {}, "there is no C++ compiler 'nosuchc++': install one (apt install g++)"),
                (("--compiler", "nosuchccache g++"), {}, "there is no C++ compiler 'nosuchccache g++'"),
                (("--compiler", "a 'quote"), {}, "there is no C++ compiler 'a 'quote'"),
                (("--compiler", self.compiler), {"SAYS": "fatal error: no such header"}, "exit code 1\nfatal error: no such header"),
                (("--compiler", self.compiler, "--out", self.notes), {}, "name another folder with --out"),
                (("--compiler", self.compiler), {"XDG_CACHE_HOME": str(self.notes)}, "name another folder with --out"),
                (("--compiler", self.compiler), {"BUILT": "/dev/null"}, "file too short")):
            with self.subTest(said):
                done = self.build(*words, **variables)
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                self.assertIn("muster: torch-build: ", done.stderr)
                self.assertIn(said, done.stderr)
                self.assertFalse(list(self.folder.glob("cache/muster/torch/*")))

    def test_one_that_is_stopped_leaves_nothing_in_the_cache(self):
        done = self.build("--compiler", self.compiler, STOPS="yes")
        self.assertEqual(done.returncode, 128 + signal.SIGTERM, done.stdout + done.stderr)
        self.assertEqual(list((self.folder / "cache/muster/torch").iterdir()), [])

    def test_a_python_without_torch_is_named(self):
        done = self.build("--compiler", self.compiler, PYTHON_EXEC="/usr/bin/python3")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("/usr/bin/python3 has no torch with C++ headers", done.stderr)


if __name__ == "__main__":
    if not has_torch(PYTHON) or not list(LIBRARY.glob("libmuster_torch_*.so")):
        print("skipped: no PyTorch, or the build has no back end for it (MUSTER_TEST_PYTHON, MUSTER_TORCH)")
        sys.exit(1 if os.environ.get("CI") == "true" else 77)
    unittest.main(verbosity=2)
