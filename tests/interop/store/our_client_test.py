"""Our store client, in a program that goes through its operations, on PyTorch's two servers and on ours."""
import os
import subprocess
import unittest

from servers import require_torch, running

require_torch("our client on torch's stores")


class OurClient(unittest.TestCase):
    def session(self, kind):
        """What the program prints."""
        with running(kind) as port:
            ended = subprocess.run([os.environ["MUSTER_STORE_SESSION"], "127.0.0.1", str(port)], capture_output=True, text=True,
                                   timeout=300)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        return ended.stdout.split()

    def test_the_libuv_server(self):
        self.assertEqual(self.session("libuv"), ["done"])

    def test_the_legacy_server(self):
        self.assertEqual(self.session("legacy"), ["done"])

    def test_our_server_is_known_as_ours(self):
        self.assertEqual(self.session("ours"), ["ours", "done"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
