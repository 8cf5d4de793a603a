"""muster config check and musterd --check: what an administrator is told about a file before a unit is started with it."""
import os
import pathlib
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["MUSTER_BUILD"])


class ConfigCheck(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="muster-config-")
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "train.conf"
        self.path.parent.chmod(0o755)

    def check(self, text, *command):
        self.path.write_text(text)
        command = command or (BUILD / "bin/muster", "config", "check")
        done = subprocess.run([*map(str, command), str(self.path)], stdin=subprocess.DEVNULL, text=True, timeout=20,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return done.returncode, done.stdout, done.stderr.replace(str(self.path), "FILE").splitlines()

    def test_a_right_file_is_said_to_be(self):
        code, out, err = self.check("nnodes = 2:4\nrdzv-backend = c10d\nrdzv-endpoint = h\nprogram = /bin/true\n")
        self.assertEqual((code, out, err), (0, f"{self.path} is right: job 'train', 2 to 4 nodes, runs /bin/true\n", []))

    def test_every_wrong_line_is_told_and_then_what_contradicts_itself(self):
        code, _, err = self.check("nnodez = 2\nnproc-per-node = two\nprogram = /bin/true\n")
        self.assertEqual(code, 2)
        self.assertRegex(err[0], r"^muster config: FILE:1: unknown key 'nnodez'; the nearest known key is nnodes ")
        self.assertRegex(err[1], r"^muster config: FILE:2: nproc-per-node: got 'two'; accepted is a number from 1 ")
        code, _, err = self.check("restart-early-failures = yes\nprogram = /bin/true\n")
        self.assertEqual((code, len(err)), (2, 1))
        self.assertRegex(err[0], r"^muster config: FILE: --restart-early-failures contradicts --max-restarts 0")

    def test_a_program_that_is_not_there_and_a_low_port_are_told(self):
        code, _, err = self.check("program = /nowhere/train.py\n")
        self.assertEqual((code, len(err)), (127, 1), err)
        if os.geteuid() == 0:
            code, _, err = self.check("store-port = 80\nprogram = /bin/true\n", "setpriv", "--reuid", "65534",
                                      "--clear-groups", BUILD / "bin/muster", "config", "check")
            self.assertEqual((code, len(err)), (2, 1), err)
            self.assertIn("AmbientCapabilities=CAP_NET_BIND_SERVICE", err[0])

    def test_the_daemons_file_is_checked_as_well(self):
        daemon = (BUILD / "bin/musterd", "--check", "--config")
        self.assertEqual(self.check("port = 0\nfirst-start = yes\nallow-faults = no\n", *daemon)[0], 0)
        for text, words in (("prt = 1\n", "FILE:1: unknown key 'prt'; the nearest known key is port"),
                            ("# x\nport = many\n", "FILE:2: port: "), ("first-start = x\n", "FILE:1: first-start: got 'x'"),
                            ("port = 1\nport = 2\n", "FILE:2: port is given a second time"), ("check = yes\n", "FILE:1: unknown")):
            code, _, err = self.check(text, *daemon)
            self.assertEqual((code, len(err)), (2, 1), err)
            self.assertIn(f"musterd: {words}", err[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
