#!/usr/bin/env python3
"""The Python wheel: made of the build folder, installed into a fresh virtual environment without an index, used there, and
removed without a trace. PyTorch is that of MUSTER_TEST_PYTHON, which the environment sees by a .pth file.
"""
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import own_tmpdir  # noqa: E402, F401
from torch_there import has_torch  # noqa: E402

BUILD = Path(os.environ["MUSTER_BUILD"])
SOURCE = Path(__file__).resolve().parents[3]
TORCH_PYTHON = os.environ.get("MUSTER_TEST_PYTHON") or str(SOURCE / ".venv/bin/python")
PROGRAMS = {"muster", "musterd", "muster-check", "muster-facts", "muster-gpu-test", "muster-gpus", "muster-pairs", "muster-persist", "muster-stacks", "muster-topology"}

SUM = """import array, muster, sys
context = muster.Context()
values = array.array("f", [context.rank + 1])
context.world.all_reduce(values)
sys.stdout.write(f"rank {context.rank} of {context.world_size}: {values[0]:g} in {sys.prefix}\\n")
"""
TORCH = """import sys, torch, torch.distributed as dist
assert "muster" not in sys.modules
dist.init_process_group(*sys.argv[1:])
values = torch.tensor([1.0, 2.0, dist.get_rank()])
dist.all_reduce(values)
sys.stdout.write(f"rank {dist.get_rank()} by {dist.get_backend()}: {values.tolist()}\\n")
dist.destroy_process_group()
"""
SUMS = ["rank 0 by muster: [2.0, 4.0, 1.0]", "rank 1 by muster: [2.0, 4.0, 1.0]"]
# Uses the public names as a trainer does; mypy reads it.
TRAINER = """import array

import muster

with muster.Context() as context:
    values = array.array("f", [1, 2, context.rank])
    context.world.all_reduce(values)
    reducer = muster.GradientReducer(context.world, {"weight": values})
    checkpointer = muster.Checkpointer(context)
    version: str = muster.__version__
    rank: int = context.rank
    print(rank, context.world_size, version)
"""
# Prints the public functions of which an argument or the result has no type, and what has a collection of anything. A type
# that is misspelt or not imported ends it with an error.
UNTYPED = """import inspect, sys, typing

import muster

for name in muster.__all__:
    public = getattr(muster, name)
    for member in [public, *vars(public).values()] if inspect.isclass(public) else [public]:
        member = inspect.unwrap(getattr(member, "fget", None) or getattr(member, "func", None) or getattr(member, "__func__", member))
        function = inspect.isfunction(member)
        if not (function or inspect.isclass(member)) or not member.__module__.startswith("muster"):
            continue
        if member.__name__.startswith("_") and not member.__name__.endswith("__"):
            continue
        types = []
        if function:
            signature = inspect.signature(member)
            types = [one.annotation for one in signature.parameters.values() if one.name not in ("self", "cls")]
            types.append(signature.return_annotation)
        if sys.version_info >= (3, 10) or not function:  # `X | None` cannot be looked up before
            types += typing.get_type_hints(member).values()
        if any(one in (inspect.Signature.empty, tuple, list, dict) for one in types):
            print(member.__qualname__)
"""
# Runs scripts/package/wheel where the disk has room for all but the last file.
FULL_DISK = """import errno, runpy, sys, zipfile

write = zipfile.ZipFile.writestr

def write_if_room(archive, entry, data):
    if entry.filename.endswith("/RECORD"):
        raise OSError(errno.ENOSPC, "No space left on device")
    write(archive, entry, data)

zipfile.ZipFile.writestr = write_if_room
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def call(*words, check=True, **environment):
    """In an environment that names no compiler, no library and no folder of Python's."""
    done = subprocess.run(list(map(str, words)), text=True, capture_output=True, timeout=300, cwd=tempfile.gettempdir(),
                          env={"PATH": os.defpath, "HOME": tempfile.gettempdir(), "TMPDIR": tempfile.gettempdir(), **environment})
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, words))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def files_below(folder):
    return {path.relative_to(folder) for path in folder.rglob("*") if "__pycache__" not in path.parts}


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="muster-wheel-")
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = Path(scratch.name)
        cls.made = call(SOURCE / "scripts/package/wheel", "--build", BUILD, cls.folder / "out").stdout
        cls.wheel = Path(cls.made.splitlines()[-1])
        cls.has_torch = has_torch(TORCH_PYTHON) and bool(list((BUILD / "lib").glob("libmuster_torch_*.so")))
        # torch's version of Python, where there is one.
        python = call(TORCH_PYTHON, "-c", "import sys; sys.stdout.write(sys._base_executable)").stdout if cls.has_torch else sys.executable
        call(python, "-m", "venv", cls.folder / "env")
        cls.bin = cls.folder / "env/bin"
        cls.before = files_below(cls.folder / "env")
        cls.pip("install", cls.wheel)
        cls.site = Path(call(cls.bin / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip())

    @classmethod
    def pip(cls, command, *words):
        index = ["--no-index", "--no-deps"] if command == "install" else ["--yes"]
        call(cls.bin / "python", "-m", "pip", "--disable-pip-version-check", command, "--quiet", *index, *words)

    def script(self, text):
        path = self.folder / f"{self.id().split('.')[-1]}.py"
        path.write_text(text)
        return path

    def workers(self, *words, **environment):
        done = call(*words, **environment)
        return sorted(line for line in done.stdout.splitlines()), done.stderr

    def missing(self, what):
        if os.environ.get("CI") == "true":
            self.fail(what)
        self.skipTest(what)

    def see_torch(self):
        if not self.has_torch:
            self.missing("no PyTorch, or the build has no back end for it (MUSTER_TEST_PYTHON, MUSTER_TORCH)")
        theirs = call(TORCH_PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout
        (self.site / "torchs.pth").write_text(theirs)
        self.addCleanup((self.site / "torchs.pth").unlink)

    def test_its_name_says_what_it_is(self):
        version = re.search(r"project\(muster VERSION (\S+)", (SOURCE / "CMakeLists.txt").read_text())[1]
        self.assertRegex(self.wheel.name, rf"^muster-{version}-py3-none-(many)?linux_\w+\.whl$")
        code = "import muster, importlib.metadata as m; print(muster.__version__, m.version('muster'))"
        self.assertEqual(call(self.bin / "python", "-c", code).stdout.split(), [version, version])
        for program in ("muster", "musterd"):
            self.assertRegex(call(self.bin / program, "--version").stdout, rf"^{program} {version}\b")
        project = (SOURCE / "worker_runtime/python/pyproject.toml").read_text()
        for line in call(self.bin / "python", "-c", "import importlib.metadata as m; print(*(f'{e.name} = \"{e.value}\"' for e in "
                         "m.distribution('muster').entry_points), sep='\\n')").stdout.splitlines():
            self.assertIn(line, project)

    def test_a_full_disk_leaves_no_part_of_one(self):
        done = call(sys.executable, "-c", FULL_DISK, SOURCE / "scripts/package/wheel", "--build", BUILD, self.folder / "full", check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("No space left on device", done.stderr)
        self.assertEqual(list((self.folder / "full").iterdir()), [])

    def test_the_programs_work(self):
        self.assertEqual({path.name for path in self.bin.iterdir() if path.name.startswith("muster")}, PROGRAMS)
        call(self.bin / "muster", "--nproc-per-node=2", "--no-python", "true")
        self.assertEqual(call(self.bin / "python", "-m", "muster", "--version").stdout, call(self.bin / "muster", "--version").stdout)
        # Its workers' Python is that of the environment, also if it is not active, and finds the library by itself.
        for launcher in ([self.bin / "muster"], [self.bin / "python", "-m", "muster"], [self.bin / "python", "-m", "muster.compat", "torchrun"],
                         [self.bin / "python", "-m", "muster.compat", "python", "-m", "torch.distributed.run"]):
            lines, _ = self.workers(*launcher, "--standalone", "--nproc-per-node=2", self.script(SUM))
            self.assertEqual(lines, [f"rank {rank} of 2: 3 in {self.folder}/env" for rank in (0, 1)])

    def test_the_launcher_finds_its_helpers_beside_itself(self):
        # With nothing in PATH.
        done = call(self.bin / "muster", "--standalone", "--nproc-per-node=1", "--numa-binding=node", "--no-python", "/bin/true",
                    PATH="/nonexistent", check=False)
        self.assertNotIn("muster-topology", done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_an_unmodified_script_gets_the_back_end(self):
        self.see_torch()
        # Preflight has a word for a disk that other tests keep busy, and a launcher for having stood still for half a lease.
        muster = (self.bin / "muster", "--standalone", "--nproc-per-node=2", "--preflight=off", "--lease=60")
        # `import torch`, which loads the entry point, says nothing.
        self.assertEqual(self.workers(*muster, self.script(TORCH), "muster"), (SUMS, ""))
        lines, told = self.workers(*muster, "--torch-backend=muster", self.script(TORCH), "gloo")
        self.assertEqual(lines, SUMS)
        self.assertIn("use the back end muster instead of gloo", told)

    def test_another_python_than_that_of_the_package_is_told(self):
        done = call(self.bin / "muster", "--torch-backend=muster", self.script(TORCH), check=False, PYTHON_EXEC="/usr/bin/python3")
        self.assertEqual(done.returncode, 78, done.stderr)
        self.assertIn("the workers' Python is /usr/bin/python3, where PyTorch would use gloo; install muster there too", done.stderr)

    def mypy(self):
        python = next((one for one in (TORCH_PYTHON, sys.executable) if Path(one).is_file() and
                       call(one, "-c", "import mypy", check=False).returncode == 0), None)
        if python is None:
            self.missing("mypy is not there (scripts/setup --tests)")
        return python

    def test_mypy_accepts_a_trainer_and_no_wrong_one(self):
        check = [self.mypy(), "-m", "mypy", "--strict", "--cache-dir", self.folder / "mypy", "--python-executable", self.bin / "python"]
        call(*check, self.script(TRAINER))
        wrong = TRAINER.replace("Checkpointer(context)", "Checkpoint(context)").replace("version: str", "version: int").replace("rank: int", "rank: str")
        found = call(*check, self.script(wrong), check=False).stdout
        self.assertIn('Module has no attribute "Checkpoint"', found)
        self.assertIn('expression has type "str", variable has type "int"', found)
        self.assertIn('expression has type "int", variable has type "str"', found)  # what `with` gives is a Context

    def test_every_public_function_has_types(self):
        self.assertEqual(call(self.bin / "python", "-c", UNTYPED).stdout, "")

    def test_z_it_is_removed_without_a_trace(self):
        self.pip("uninstall", "muster")
        self.assertEqual(files_below(self.folder / "env"), self.before)


if __name__ == "__main__":
    unittest.main()
