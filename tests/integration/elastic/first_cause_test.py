"""The cause on node B, its victims on node A exit first: the report names B, every time.

Each of MUSTER_FIRST_CAUSE_RUNS runs (100 unless set) starts two nodes. A worker of node A sees its peer's end
("connection reset") and is dead and reported before the culprit is."""
import os
import select
import signal
import sys
import unittest

from job import Job, wait_for

RUNS = int(os.environ.get("MUSTER_FIRST_CAUSE_RUNS", "100"))


class FirstCause(unittest.TestCase):
    def test_the_report_names_the_node_of_the_cause(self):
        words = ("--fail-on", "reset", 1, "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] "
                  "Connection closed by peer [127.0.0.1]:5555", "--until", "done")
        for run in range(RUNS):
            with self.subTest(run=run), Job() as job:
                a = job.node(worker=words)
                wait_for("the host's daemon", job.answers)
                b = job.node()
                starts = job.round(0, 4)
                culprit = next(line for line in starts.values() if job.parent(job.parent(line["pid"])) == b.pid)
                victims = [os.pidfd_open(line["pid"]) for line in starts.values()
                           if job.parent(job.parent(line["pid"])) == a.pid]
                # Node B's agent is held up, so that the victims die and are reported before the culprit is even dead. It dies
                # soon after them, as it does in life: later than that (verdict.h) they would be no victims of it.
                os.kill(b.pid, signal.SIGSTOP)
                job.touch("reset")
                wait_for("end of the victims", lambda: len(select.select(victims, [], [], 0)[0]) == len(victims))
                os.kill(culprit["pid"], signal.SIGKILL)
                os.kill(b.pid, signal.SIGCONT)
                for victim in victims:
                    os.close(victim)
                for node in (a, b):
                    job.expect_exit(node, 128 + signal.SIGKILL)
                    self.assertRegex(node.err.read_text(), rf"rank {culprit['rank']}\b")


if __name__ == "__main__":
    unittest.main(verbosity=2)
