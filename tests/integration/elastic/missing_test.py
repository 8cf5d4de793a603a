"""While nodes are awaited, the launcher and the status name those that the scheduler told and that have not come."""
import os
import unittest

from job import Job, wait_for
from status_test import status

FAST = ("--lease", 5)
# A pod's own host name, in a namespace of its own.
POD = ("unshare", "--uts", "sh", "-c", 'hostname "$HOSTNAME"; exec "$0" "$@"')


@unittest.skipIf(os.getuid() != 0, "needs root for a host name of its own")
class Missing(unittest.TestCase):
    def test_pods_that_have_not_come_are_named(self):
        with Job() as job:
            job.daemon()

            def pod(index):
                return job.node(*FAST, nnodes="3", nproc=1, before=POD, JOB_COMPLETION_INDEX=str(index), HOSTNAME=f"train-{index}")
            nodes = [pod(0), pod(2)]
            sentence = "waiting for 1 more node (missing: train-1)"
            for node in nodes:
                wait_for(f"{sentence!r} in {node.err}", lambda: sentence in node.err.read_text())
            self.assertIn(sentence, status(job).stdout)
            nodes.append(pod(1))
            job.round(0, 3)
            self.assertNotIn("missing", status(job).stdout)
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)


if __name__ == "__main__":
    unittest.main()
