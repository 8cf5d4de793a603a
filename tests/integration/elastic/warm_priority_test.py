"""The priority of standby processes: where the kernel does not let them change it, they become ready all the same."""
import os
import subprocess
import unittest

from job import Job
from warm_test import err, facts, start, wait_ready

USER_NAMESPACE = ["unshare", "--user", "--map-root-user"]


class WarmPriority(unittest.TestCase):
    def become_ready(self, module="", **extra):
        with Job() as job:
            (job.directory / "warm_import.py").write_text(module)
            launcher = start(job, imports="warm_import", **extra)
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

    def test_a_thread_of_an_import_that_ends_while_all_get_their_priority_back_is_passed_over(self):
        gone = 2**22 + 1  # no thread can have this number
        self.become_ready(f"import os\nusual = os.listdir\nos.listdir = lambda path='.': [*usual(path), '{gone}']\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
