"""A straggler on one of three nodes: every node is told which rank it is, on which host, and what it costs the others. It is
not ended for it. Takes a minute, over which shares of time are gathered."""
import os
import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "elastic"))
from job import Job, wait_for  # noqa: E402

PACKAGE = pathlib.Path(__file__).resolve().parents[3] / "worker_runtime/python"
NODES = 3
SLOW = 2
# All ranks leave after the same step: the one at which somebody saw the file.
TRAIN = f"""import array, os, pathlib, time, muster
with muster.Context() as context:
    mine = pathlib.Path(f"rank{{context.rank}}")
    over = array.array("f", [0])
    step = 0
    while over[0] == 0:
        time.sleep(0.1 if context.rank == {SLOW} else 0.01)
        over[0] = os.path.exists("done")
        context.world.all_reduce(over)
        step += 1
        mine.with_suffix(".new").write_text(f"{{os.getpid()}} {{step}}")
        mine.with_suffix(".new").rename(mine)
"""


class Straggler(unittest.TestCase):
    def pid_and_step(self, job, rank):
        return tuple(map(int, (job.directory / f"rank{rank}").read_text().split()))

    def test_every_node_is_told_of_it_once_with_its_host_and_what_it_costs_and_it_goes_on(self):
        with Job() as job:
            script = job.directory / "train.py"
            script.write_text(TRAIN)
            root = os.geteuid() == 0
            hosts = [f"gpu{index}" if root else os.uname().nodename for index in range(NODES)]
            nodes = [job.spawn("muster", "--nnodes", NODES, "--node-rank", index, "--rdzv-backend", "c10d", "--rdzv-id", job.id,
                               "--rdzv-endpoint", f"127.0.0.1:{job.port}", "--no-python", sys.executable, script,
                               before=["unshare", "--uts", "sh", "-c", f"hostname {host} && exec \"$@\"", "sh"] if root else [],
                               PYTHONPATH=str(PACKAGE), MUSTER_LIBRARY=os.environ["MUSTER_LIBRARY"])
                     for index, host in enumerate(hosts)]
            said = r"rank (\d+) \(pid (\d+)\) on (\S+) is a straggler: the other ranks of the job wait for it (\d+) % of their time\n"
            lines = [wait_for("word of the straggler", lambda: re.search(said, node.err.read_text()) or
                              self.assertIsNone(node.poll(), job.story()), 240) for node in nodes]
            pid, step = self.pid_and_step(job, SLOW)
            for line in lines:
                self.assertEqual((line[1], line[2], line[3]), (str(SLOW), str(pid), hosts[SLOW]))
                self.assertTrue(40 <= int(line[4]) <= 100, line[0])  # nine tenths, less what a busy host takes from all
            self.assertEqual(len({line[0] for line in lines}), 1)
            wait_for("more steps of the straggler", lambda: self.pid_and_step(job, SLOW)[1] > step + 20)
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)
                self.assertEqual(node.err.read_text().count("straggler"), 1, job.story())
            self.assertEqual(self.pid_and_step(job, SLOW)[0], pid)


if __name__ == "__main__":
    unittest.main(verbosity=2)
