"""The priority of standby processes: where the kernel does not let them change it, they become ready all the same."""
import os
import subprocess
import unittest

from job import Job
from warm_test import err, facts, start, wait_ready

USER_NAMESPACE = ["unshare", "--user", "--map-root-user"]


class WarmPriority(unittest.TestCase):
    def become_ready(self, **extra):
        with Job() as job:
            launcher = start(job, **extra)
            for rank in (0, 1):
                facts(job, rank, 0)
            for pid in wait_ready(job, launcher, 2):
                self.assertEqual(os.sched_getscheduler(pid), os.SCHED_OTHER)
            self.assertNotIn("its standby process ended", err(launcher))
            launcher.terminate()
            job.expect_exit(launcher, 143)
            job.expect_gone()

    def test_the_root_of_a_user_namespace_who_may_not_raise_a_priority_has_them(self):
        tried = subprocess.run([*USER_NAMESPACE, "true"], capture_output=True, text=True)
        if tried.returncode != 0:
            self.skipTest(tried.stderr)
        self.become_ready(before=USER_NAMESPACE)


if __name__ == "__main__":
    unittest.main(verbosity=2)
