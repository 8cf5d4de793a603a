"""A node that may have no further process: the launcher names the limit, ends with 70, and charges no restart."""
import contextlib
import os
import pathlib
import sys
import unittest
import uuid

from job import Job, as_user, wait_for

WORKERS = 8
ENTER = "import os, sys; open(sys.argv[1], 'w').write('0'); os.execv(sys.argv[2], sys.argv[2:])"


def pids_root():
    """Where a control group with the pids controller can be made; None: nowhere."""
    for root in (pathlib.Path("/sys/fs/cgroup/pids"), pathlib.Path("/sys/fs/cgroup")):
        probe = root / f"muster-probe-{uuid.uuid4().hex[:8]}"
        with contextlib.suppress(OSError):
            probe.mkdir()
            found = (probe / "pids.max").exists()
            probe.rmdir()
            if found:
                return root
    return None


def processes_of(user):
    """Zombies too: they count until process 1 has reaped them."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):  # below one that is just going, glob() raises
        with contextlib.suppress(OSError):
            if f"\nUid:\t{user}\t" in (process / "status").read_text():
                found.append(process)
    return found


@unittest.skipUnless(os.getuid() == 0 or os.environ.get("CI"), "needs root, which may become an unused user and make control groups")
class Limits(unittest.TestCase):
    def check(self, job, before, limit, named):
        """One launcher under a limit of that many processes. True when it was high enough."""
        options = ["--standalone", "--nproc-per-node", WORKERS, "--max-restarts", 5, "--log-dir", "/dev/null", "--shutdown-timeout", 5]
        node = job.spawn("muster", *options, "--no-python", "sleep", "1.5", before=before)
        code = job.exit_code(node)
        said = node.err.read_text()
        if code == 0:
            return True
        self.assertEqual(code, 70, f"limit {limit}: {said}")
        self.assertIn(named, said, f"limit {limit}")
        self.assertNotIn("round 1", said)
        self.assertNotIn("restart", said)
        job.expect_gone()
        return False

    def raise_until_it_runs(self, job, before, named):
        for limit in range(1, 60):
            if self.check(job, before(limit), limit, named(limit)):
                self.assertGreater(limit, WORKERS)
                return
        self.fail(f"60 processes were not enough for 8 workers\n{job.launchers[-1].err.read_text()}")

    def test_every_limit_of_the_user_is_named_until_one_is_high_enough(self):
        with Job() as job:
            user = str(200_000 + os.getpid())  # of which no process exists

            def before(limit):
                wait_for("end of the user's processes", lambda: not processes_of(user))
                return ["prlimit", f"--nproc={limit}:{limit}", *as_user(user)]
            self.raise_until_it_runs(job, before, lambda limit: f"RLIMIT_NPROC = {limit} (ulimit -u)")

    def test_every_limit_of_a_control_group_is_named_until_one_is_high_enough(self):
        root = pids_root()
        if root is None and not os.environ.get("CI"):
            self.skipTest("no control group with the pids controller can be made")
        group = root / f"muster-limits-{uuid.uuid4().hex[:8]}"
        group.mkdir()
        self.addCleanup(group.rmdir)
        self.addCleanup(wait_for, "empty control group", lambda: not (group / "cgroup.procs").read_text())
        with Job() as job:
            def before(limit):
                (group / "pids.max").write_text(str(limit))
                return [sys.executable, "-c", ENTER, str(group / "cgroup.procs")]
            self.raise_until_it_runs(job, before, lambda limit: f"pids.max = {limit} of the control group {group}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
