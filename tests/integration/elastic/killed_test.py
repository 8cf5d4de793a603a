"""A test that is killed leaves no process behind: neither daemons, launchers and workers, nor what other threads have started."""
import os
import signal
import subprocess
import sys
import threading
import unittest

from job import Job, as_user, wait_for


def be_killed(tag):
    """The test that is killed: it starts something in each way that tests do, says so, and waits."""
    job = Job()
    job.tag = tag
    job.daemon()
    job.node("--local-addr=127.0.0.1", nnodes="1:1", nproc=2)
    job.round(0, 2)
    long = ["sleep", "3600"]
    subprocess.Popen(long, env=job.environment())
    subprocess.Popen([*(as_user(65534) if os.getuid() == 0 else []), *long], env=job.environment())
    other = threading.Thread(target=lambda: subprocess.Popen(long, env=job.environment()))
    other.start()
    other.join()
    threading.Thread(target=lambda: subprocess.run(long, env=job.environment()), daemon=True).start()
    wait_for("four sleepers", lambda: sum("sleep 3600" in job.command_of(pid) for pid in job.processes()) == 4)
    print("started", job.directory, flush=True)
    signal.pause()


class Killed(unittest.TestCase):
    def test_a_killed_test_leaves_no_process(self):
        with Job() as job:
            with open(job.directory / "said", "w") as said:
                test = subprocess.Popen([sys.executable, __file__, "be_killed", job.tag], stdout=said, cwd=job.directory,
                                        env={**os.environ, "TMPDIR": str(job.directory)})
            wait_for("its processes", lambda: "started" in (job.directory / "said").read_text() or test.poll() is not None)
            # musterd, muster, its two guardians, two workers and the sleepers
            self.assertGreaterEqual(len(job.processes()), 9)
            test.kill()
            test.wait()
            job.expect_gone()


if __name__ == "__main__":
    if sys.argv[1:2] == ["be_killed"]:
        be_killed(sys.argv[2])
    unittest.main()
