"""Workers that hang, and others that are only slow: what `muster` says of them, and where they are."""
import os
import pathlib
import re
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "elastic"))
from job import NOBODY, Job, wait_for  # noqa: E402

PACKAGE = pathlib.Path(__file__).resolve().parents[3] / "worker_runtime/python"
PLAIN = """import os, signal, time
def evaluate():
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(100)
evaluate()
"""
# Slow for twice --hang-timeout, in a section and out of it; then it computes for ever, and says nothing.
WITH_WORDS = """import time, muster
def lost():
    while True:
        sum(range(1000))
for _ in range(5):
    muster.heartbeat()
    time.sleep(0.11)
with muster.section("evaluation"):
    time.sleep(2.5)
muster.heartbeat()
print("slow but alive", flush=True)
with muster.section("checkpoint", timeout=1):
    time.sleep(2)
for _ in range(5):
    muster.heartbeat()
    time.sleep(0.11)
lost()
"""


class Hangs(unittest.TestCase):
    def run_script(self, job, text, *options, nproc=1):
        script = job.directory / "train.py"
        script.write_text(text)
        return job.spawn("muster", "--nproc-per-node", nproc, "--hang-timeout", "1", "--shutdown-timeout", "1", *options,
                         "--no-python", sys.executable, script, PYTHONPATH=str(PACKAGE), MUSTER_LIBRARY=os.environ["MUSTER_LIBRARY"])

    def end(self, launcher):
        launcher.terminate()
        launcher.wait(30)

    def test_a_stopped_script_that_knows_nothing_of_muster_is_shown_with_its_python_frames(self):
        with Job() as job:
            launcher = self.run_script(job, PLAIN, nproc=2)
            said = launcher.err.read_text
            wait_for("stack of the stopped rank", lambda: re.search(
                r"where rank 1 is:\n.*thread \d+ .*:\n.*evaluate \(.*train.py:4\)\n.*<module> \(.*train.py:6\)\n", said()))
            pid = int(re.search(r"rank 1 \(pid (\d+)\) has been stopped by a signal", said())[1])
            state = pathlib.Path(f"/proc/{pid}/stat")
            wait_for("state T", lambda: state.read_text().rsplit(")", 1)[1].split()[0] == "T")
            os.kill(pid, signal.SIGCONT)
            wait_for("word that it goes on", lambda: f"rank 1 (pid {pid}) goes on" in said())
            self.assertNotIn("where rank 0 is", said())
            self.end(launcher)

    def test_slow_is_not_taken_for_hung_and_what_hangs_is_shown(self):
        with Job() as job:
            launcher = self.run_script(job, WITH_WORDS)
            said = launcher.err.read_text
            wait_for("end of the evaluation", lambda: "slow but alive" in launcher.out.read_text())
            self.assertNotIn("rank 0", said())
            wait_for("word of the section", lambda: "is in section checkpoint beyond its limit of 1 s" in said())
            wait_for("word of the heartbeats", lambda: "rank 0" in said() and "has sent no heartbeat for" in said())
            wait_for("the place", lambda: re.search(r"has sent no heartbeat(?s:.*)\n.* lost \(.*train.py:4\)\n", said()))
            self.end(launcher)
            self.assertNotIn("hung", said())

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to be somebody else")
    def test_an_ordinary_user_sees_stacks_too(self):
        with Job(user=NOBODY) as job:
            launcher = job.spawn("muster", "--hang-timeout", "1", "--shutdown-timeout", "1", "--no-python", "/bin/sh", "-c",
                                 "kill -STOP $$$$")  # $$ is what the launcher makes $ of
            wait_for("stack", lambda: re.search(r"where rank 0 is:\n.*thread \d+ sh:\n.*kill.* \(libc.so.6\)", launcher.err.read_text()))
            self.end(launcher)


if __name__ == "__main__":
    unittest.main(verbosity=2)
