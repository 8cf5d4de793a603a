"""What our writer saves, others read: a little Python with numpy, and the safetensors package."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import own_processes  # noqa: E402, F401

PYTHON = os.environ["MUSTER_TEST_PYTHON"]
if os.environ.get("MUSTER_TEST_PYTHON_RUNS") != "1":  # what is read with must be in the Python that runs this
    if not os.path.exists(PYTHON) or subprocess.run([PYTHON, "-c", "import numpy"], capture_output=True).returncode != 0:
        if os.environ.get("CI") == "true":
            sys.exit(f"checkpoint: {PYTHON} has no numpy, which CI requires (scripts/setup --tests installs it)")
        print(f"checkpoint: skipped, {PYTHON} has no numpy (scripts/setup --tests installs it)")
        sys.exit(77)
    os.environ["MUSTER_TEST_PYTHON_RUNS"] = "1"
    os.execv(PYTHON, [PYTHON, __file__])

import numpy  # noqa: E402

from reader import crc32c, read_checkpoint, read_file  # noqa: E402

WRITER = os.environ["MUSTER_CHECKPOINT_WRITER"]
WORLD = 3
# As writer.cpp has them.
SHAPES = {"net.weight": (600, 500), "net.bias": (33,), "half": (5, 7), "steps": (), "mask": (3, 5), "bytes": (4099,),
          "empty": (0, 4), "momentum": (17, 59), 'näme "quoted"': (1003,)}
TYPES = {"net.weight": "f4", "net.bias": "f4", "half": "f2", "steps": "i8", "mask": "?", "bytes": "u1", "empty": "f4",
         "momentum": "f8", 'näme "quoted"': "i2"}


def expected(name):
    count = int(numpy.prod(SHAPES[name], dtype=int))
    values = (7 * numpy.arange(count) + list(SHAPES).index(name)) % 120
    return (values % 2 if name == "mask" else values).reshape(SHAPES[name]).astype(TYPES[name])


class Checkpoint(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="muster checkpoint ")
        cls.addClassCleanup(cls.directory.cleanup)
        subprocess.run([WRITER, cls.directory.name, str(WORLD), "7"], check=True, timeout=200)
        cls.folder = pathlib.Path(cls.directory.name, "step_00000007")
        cls.tensors, cls.manifest = read_checkpoint(cls.folder)

    def files(self):
        return [self.folder / f"rank_{rank:05d}.safetensors" for rank in range(WORLD)]

    def test_a_reader_that_shares_no_code_puts_every_tensor_together(self):
        self.assertEqual(set(self.tensors), set(SHAPES))
        for name, values in self.tensors.items():
            with self.subTest(name):
                self.assertEqual((values.shape, values.dtype), (SHAPES[name], numpy.dtype(TYPES[name])))
                numpy.testing.assert_array_equal(values, expected(name))

    def test_the_manifest_says_what_was_saved(self):
        self.assertEqual((self.manifest["step"], self.manifest["round"], self.manifest["job"]), (7, 4, "interop"))
        self.assertEqual(self.manifest["values"], {"cursor": "sample 96", "ключ": "значение"})
        self.assertEqual(self.manifest["rank_values"], [f"generator of {rank}" for rank in range(WORLD)])
        cut = [tensor["name"] for tensor in self.manifest["tensors"] if len(tensor["pieces"]) > 1]
        self.assertEqual(cut, sorted(["momentum", 'näme "quoted"']))

    def test_every_checksum_is_what_python_computes(self):
        self.assertEqual(crc32c(b"123456789"), "e3069283")  # the check value of CRC-32C
        text = (self.folder / "manifest.json").read_bytes()
        self.assertEqual(crc32c(re.sub(rb'^\{"crc32c":"[0-9a-f]{8}"', b'{"crc32c":"00000000"', text)),
                         self.manifest["crc32c"])
        contents = [(self.folder / file["name"]).read_bytes() for file in self.manifest["files"]]
        for file, data in zip(self.manifest["files"], contents):
            self.assertEqual((len(data), crc32c(data)), (file["bytes"], file["crc32c"]))
        for tensor in self.manifest["tensors"]:
            size = self.tensors[tensor["name"]].itemsize if tensor["dtype"] != "BF16" else 2
            for piece in tensor["pieces"]:
                data = contents[piece["file"]][piece["offset"]:piece["offset"] + piece["count"] * size]
                self.assertEqual(crc32c(data), piece["crc32c"], tensor["name"])

    def test_the_safetensors_package_reads_every_file_alike(self):
        try:
            import safetensors.torch
        except ImportError:
            if os.environ.get("CI") == "true":
                raise
            self.skipTest(f"{PYTHON} has no safetensors with torch (scripts/setup --tests installs them)")
        for rank, path in enumerate(self.files()):
            ours, metadata = read_file(path)
            theirs = safetensors.torch.load_file(path)
            self.assertEqual(set(theirs), set(ours))
            for name, values in theirs.items():
                values = values.float() if values.dtype.itemsize == 2 and values.is_floating_point() else values
                numpy.testing.assert_array_equal(values.numpy(), ours[name], name)
            with safetensors.safe_open(path, "np") as file:
                self.assertEqual(file.metadata(), metadata)
                self.assertEqual(file.metadata()["muster_rank"], str(rank))
                self.assertEqual(set(file.keys()), set(ours))


if __name__ == "__main__":
    unittest.main(verbosity=2)
