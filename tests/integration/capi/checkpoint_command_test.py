"""`muster checkpoint` on directories that are good, damaged, empty and not there, and what `export` writes, read by a
reader of its own and by the safetensors package where MUSTER_TEST_PYTHON has it."""
import array
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import python_test
from under_muster import BIN, on_ranks, run

WORKER = Path(__file__).with_name("checkpoint_worker.py")
NEWEST = "step_00000009"
CODES = {"F32": "f", "F64": "d", "BOOL": "B"}
SAFETENSORS_READER = """
import json, sys
from safetensors import safe_open
index = json.load(open(sys.argv[1] + "/model.safetensors.index.json"))
told = {}
for name, file in index["weight_map"].items():
    with safe_open(f"{sys.argv[1]}/{file}", framework="numpy") as opened:
        assert opened.metadata() == {"format": "pt"}
        tensor = opened.get_tensor(name)
        told[name] = [list(tensor.shape), float(tensor.sum())]
print(json.dumps(told))
"""


def wanted(step):
    """What checkpoint_worker.py's save() had on its three ranks."""
    return {"model.weight": ([1 << 19], array.array("f", [step + i % 1000 for i in range(1 << 19)])),
            "model.flags": ([3], array.array("B", [1, 0, step > 5])),
            "optimizer.state.0.momentum": ([17, 59], array.array("d", [step + i for i in range(1003)]))}


def read_model(folder):
    """Struct and JSON alone: {name: (shape, elements)}, and the files."""
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    found, total = {}, 0
    for file in sorted(set(index["weight_map"].values())):
        data = (folder / file).read_bytes()
        size, = struct.unpack("<Q", data[:8])
        header = json.loads(data[8:8 + size])
        assert header.pop("__metadata__") == {"format": "pt"} and (8 + size) % 8 == 0
        for name, entry in header.items():
            assert index["weight_map"][name] == file
            begin, end = entry["data_offsets"]
            elements = array.array(CODES[entry["dtype"]], data[8 + size + begin:8 + size + end])
            assert begin % elements.itemsize == 0
            found[name] = (entry["shape"], elements)
            total += end - begin
        assert max(entry["data_offsets"][1] for entry in header.values()) == len(data) - 8 - size
    assert found.keys() == index["weight_map"].keys() and index["metadata"]["total_size"] == total
    return found


class CheckpointCommand(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.saved = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        done = on_ranks(3, sys.executable, WORKER, "save", cls.saved, PYTHONPATH=str(python_test.MODULE),
                        MUSTER_LIBRARY=python_test.LIBRARY, PYTHONDONTWRITEBYTECODE="1")
        assert done.returncode == 0, done.stderr

    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.directory, self.out = self.folder / "c", self.folder / "out"
        shutil.copytree(self.saved, self.directory)

    def muster(self, *words, code=0):
        done = run(BIN / "muster", "checkpoint", *words)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def overwrite(self, at, byte, name=f"{NEWEST}/rank_00001.safetensors"):
        with open(self.directory / name, "r+b") as file:
            file.seek(at)
            file.write(byte)

    def test_a_good_directory_is_listed_the_newest_first(self):
        lines = self.muster(self.directory).stdout.splitlines()
        self.assertEqual([line.split()[1] for line in lines], ["9", "6", "3"])
        self.assertRegex(lines[0], rf"^step 9  {NEWEST}  round 0  ranks 3  2\.\d\d MiB  complete by its manifest$")
        for line in self.muster(self.directory, "--verify").stdout.splitlines():
            self.assertTrue(line.endswith("complete: every byte verified"), line)

    def test_damage_is_found_and_named_and_only_that_of_the_newest_fails(self):
        self.overwrite(5000, b"\xff")
        self.muster(self.directory)  # looks at sizes alone
        lines = self.muster(self.directory, "--verify", code=1).stdout.splitlines()
        self.assertRegex(lines[0], rf"^step 9  {NEWEST}  incomplete: .*/rank_00001.safetensors: tensor "
                                   r"optimizer\.state\.0\.momentum is damaged \(checksum\)$")
        self.assertIn("every byte verified", lines[1])
        shutil.rmtree(self.directory / NEWEST)
        self.overwrite(5000, b"\xff", "step_00000003/rank_00000.safetensors")
        lines = self.muster(self.directory, "--verify").stdout.splitlines()
        self.assertRegex(lines[1], "^step 3  step_00000003  incomplete: ")

    def test_a_byte_that_no_tensor_has_is_found_too(self):
        self.overwrite(4095, b"\n")  # a blank behind the header: still good JSON
        self.assertRegex(self.muster(self.directory, "--verify", code=1).stdout, r"damaged \(checksum of the file\)")

    def test_files_that_are_short_or_gone_need_no_reading(self):
        os.truncate(self.directory / NEWEST / "rank_00002.safetensors", 9000)
        self.assertIn("rank_00002.safetensors has 9000 bytes, not", self.muster(self.directory, code=1).stdout)
        (self.directory / NEWEST / "manifest.json").unlink()
        self.assertIn(f"step 9  {NEWEST}  incomplete: ", self.muster(self.directory, code=1).stdout)

    def test_a_directory_without_checkpoints_and_one_that_is_not_there_are_failures(self):
        empty = self.folder / "empty"
        empty.mkdir()
        (empty / "step_00000001.tmp-0-5eed").mkdir()  # a draft is none
        self.assertEqual(self.muster(empty, code=1).stderr, f"muster checkpoint: {empty}: no checkpoint in it\n")
        self.assertRegex(self.muster(self.folder / "gone", code=1).stderr, "gone: No such file or directory")
        self.muster("export", empty, self.out, code=1)
        self.assertFalse(self.out.exists())

    def test_wrong_words_are_errors_of_usage(self):
        for words, said in (((), "write: muster checkpoint DIR"),
                            (("a", "b"), "write: muster checkpoint DIR"),
                            (("a", "--very"), "unknown option '--very'"),
                            (("a", "--step", "1"), "unknown option '--step'"),
                            (("export", "a"), "write: muster checkpoint export DIR OUT"),
                            (("export", "a", "b", "--verify"), "unknown option '--verify'"),
                            (("export", "a", "b", "--step"), "--step: a value is missing"),
                            (("export", "a", "b", "--step=x"), "--step: 'x' is not a step number"),
                            (("export", "a", "b", "--step", "-1"), "--step: '-1' is not a step number"),
                            (("export", "a", "b", "--max-file-size", "0"), "'0' is not a number of GiB above 0"),
                            (("export", "a", "b", "--max-file-size=nan"), "'nan' is not a number of GiB above 0")):
            with self.subTest(words):
                self.assertIn(said, self.muster(*words, code=2).stderr)
        self.assertIn("usage: muster checkpoint DIR", self.muster("--help").stdout)

    def test_an_export_holds_every_tensor_whole(self):
        said = self.muster("export", self.directory, f"{self.out}/").stdout
        self.assertEqual(said, f"{self.directory}/{NEWEST}: 3 tensors, 2.01 MiB, in 1 file of {self.out}/\n")
        self.assertEqual(sorted(os.listdir(self.out)),
                         ["model-00001-of-00001.safetensors", "model.safetensors.index.json"])
        self.assertEqual(read_model(self.out), wanted(9))
        self.assertEqual(sorted(os.listdir(self.folder)), ["c", "out"])

    def test_an_export_of_a_step_in_small_files(self):
        self.muster("export", self.directory, self.out, "--step", 6, "--max-file-size", "0.000001")
        self.assertEqual(len(list(self.out.glob("model-*-of-00003.safetensors"))), 3)
        self.assertEqual(read_model(self.out), wanted(6))

    def test_an_export_of_the_model_alone_loses_the_prefix(self):
        self.muster("export", self.directory, self.out, "--prefix=model.")
        model = wanted(9)
        self.assertEqual(read_model(self.out), {"weight": model["model.weight"], "flags": model["model.flags"]})
        self.assertIn("no tensor whose name begins with mode1.",
                      self.muster("export", self.directory, self.folder / "other", "--prefix", "mode1.", code=1).stderr)

    def test_an_export_that_fails_leaves_nothing_and_overwrites_nothing(self):
        self.overwrite(5000, b"\xff")
        self.assertIn("tensor optimizer.state.0.momentum is damaged",
                      self.muster("export", self.directory, self.out, code=1).stderr)
        self.assertEqual(os.listdir(self.folder), ["c"])
        self.assertIn("no checkpoint of step 7",
                      self.muster("export", self.directory, self.out, "--step=7", code=1).stderr)
        os.truncate(self.directory / NEWEST / "manifest.json", 100)
        self.assertIn("write --step N to export another step", self.muster("export", self.directory, self.out, code=1).stderr)
        self.out.mkdir()
        self.assertIn("exists already", self.muster("export", self.directory, self.out, "--step=6", code=1).stderr)
        self.assertEqual(os.listdir(self.out), [])

    def test_the_safetensors_package_reads_an_export(self):
        python = python_test.Packages.python
        if not Path(python).exists() or subprocess.run([python, "-c", "import safetensors.numpy"],
                                                       capture_output=True).returncode:
            self.skipTest(f"{python} has no safetensors")
        self.muster("export", self.directory, self.out)
        done = subprocess.run([python, "-c", SAFETENSORS_READER, self.out], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual({name: (shape, total) for name, (shape, total) in json.loads(done.stdout).items()},
                         {name: (shape, sum(elements)) for name, (shape, elements) in wanted(9).items()})


if __name__ == "__main__":
    unittest.main(verbosity=2)
