"""Traps that other launchers fell into: a job that somebody else's trouble, a quick return, a slow death or a short
silence would end, restart for ever, or hold up."""
import ctypes
import os
import pathlib
import re
import signal
import sys
import unittest

from drain_test import drain, node_name
from fault_test import fault
from job import WORKERS, Job, wait_for
from nodes_test import job_status

FAST = ("--lease", 5)  # a process of a busy machine may stand still for seconds
PACKAGE = pathlib.Path(__file__).resolve().parents[3] / "worker_runtime/python"
# Rank 1 keeps the interpreter's lock for two and a half leases: its heartbeat thread does not come, and rank 0 waits.
DEAF = """import array, ctypes, threading, time, muster
last, longest = time.monotonic(), 0
def beat():
    global last, longest
    while True:
        muster.heartbeat()
        now = time.monotonic()
        last, longest = now, max(longest, now - last)
        time.sleep(0.05)
threading.Thread(target=beat, daemon=True).start()
with muster.Context() as context:
    for step in range(3):
        if (context.rank, step) == (1, 1):
            ctypes.PyDLL(None).usleep(12500000)
        context.world.all_reduce(array.array("f", [1]))
over = time.monotonic()
while last < over:  # until the other thread has seen its gap
    time.sleep(0.01)
print(f"rank {context.rank} was without a heartbeat for {longest:.1f} s", flush=True)
"""


def worker_of(job, node, lines):
    return next(line for line in lines.values() if job.parent(job.parent(line["pid"])) == node.pid)


class HeldAtItsExit:
    """A process that has died of a signal and does not go, as one whose core dump takes long."""
    SEIZE, CONTINUE, TRACE_EXIT, ALL = 0x4206, 7, 0x40, 0x40000000

    def __init__(self, pid):
        self.trace = ctypes.CDLL(None, use_errno=True).ptrace
        self.trace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        self.trace.restype = ctypes.c_long
        self.pid = pid
        if self.trace(self.SEIZE, pid, None, self.TRACE_EXIT) != 0:
            raise unittest.SkipTest(f"tracing is not allowed here: {os.strerror(ctypes.get_errno())}")
        os.kill(pid, signal.SIGSEGV)
        os.waitpid(pid, self.ALL)  # the signal is about to be delivered
        self.trace(self.CONTINUE, pid, None, signal.SIGSEGV)
        _, status = os.waitpid(pid, self.ALL)
        assert status >> 16 == 6, hex(status)  # PTRACE_EVENT_EXIT

    def release(self):
        self.trace(self.CONTINUE, self.pid, None, None)
        os.waitpid(self.pid, self.ALL)  # its parent hears of its end after its tracer


class Traps(unittest.TestCase):
    def test_one_launchers_own_trouble_closes_nothing_for_the_others(self):
        with Job() as job:
            daemon = job.daemon()
            terms = {"nnodes": "2:3", "nproc": 1, "conf": "last_call_timeout=1"}
            nodes = [job.node(*FAST, "--max-restarts", 3, **terms) for _ in range(2)]
            first = job.round(0, 2)
            for options, code in ((("--log-dir", "/proc/no", "-r", 3), None), (("--max-restarts", 5), 78)):
                broken = job.node(*FAST, "--max-restarts", 3, *options, **terms)
                self.assertNotEqual(job.exit_code(broken), 0)
                if code:
                    job.expect_exit(broken, code)
            self.assertLessEqual({line["pid"] for line in first.values()}, set(job.processes()), job.story())
            nodes.append(job.node(*FAST, "--max-restarts", 3, **terms))
            third = job.round(1, 3)
            self.assertEqual({line["restart"] for line in third.values()}, {0})
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)
            job.expect_gone(but=[daemon])

    def test_whoever_comes_back_quickly_brings_no_new_restarts(self):
        with Job() as job:
            daemon = job.daemon()
            options = (*FAST, "--max-restarts", 1)
            stays, goes = (job.node(*options, nnodes="1:2", nproc=1) for _ in range(2))
            os.kill(worker_of(job, goes, job.round(0, 2))["pid"], signal.SIGKILL)
            self.assertEqual({line["restart"] for line in job.round(1, 2).values()}, {1})
            goes.kill()
            again = job.node(*options, nnodes="1:2", nproc=1)
            # With the other node in the next round, or, where that began without it, in the one after.
            last = wait_for("round of both", lambda: next((number for number in (2, 3) if len(job.starts(round=number)) == 2), None))
            lines = job.round(last, 2)
            self.assertEqual({line["restart"] for line in lines.values()}, {1})
            os.kill(worker_of(job, again, lines)["pid"], signal.SIGKILL)
            for node in (stays, again):
                self.assertNotEqual(job.exit_code(node), 0)
                self.assertIn("no restart is left (1 of 1 used)", node.err.read_text())
            self.assertEqual(job.starts(round=last + 1), [])
            job.expect_gone(but=[daemon])

    def test_who_stays_when_a_node_leaves_in_order_below_the_minimum_stops_its_workers_and_waits_for_another(self):
        for how, code in (("drain", 76), ("SIGTERM", 128 + signal.SIGTERM)):
            with self.subTest(how=how), Job() as job:
                daemon = job.daemon()
                saving = ("--save", job.directory / "saved", 100, "--until", "done")
                stays, leaves = (job.node(*FAST, "--max-restarts", 1, nproc=1, worker=saving) for _ in range(2))
                first = job.round(0, 2)
                kept = worker_of(job, stays, first)["group"]
                if how == "drain":
                    self.assertIn("the job then waits for another node", drain(job, node_name(job, leaves), "--job", job.id).stdout)
                else:
                    leaves.terminate()
                job.expect_exit(leaves, code)
                wait_for("node that waits", lambda: '"phase":"gathering"' in job_status(job))
                self.assertFalse({line["pid"] for line in first.values()} & set(job.processes()), job.story())
                self.assertEqual(job.starts(round=1), [])
                self.assertIsNone(stays.poll())
                comes = job.node(*FAST, "--max-restarts", 1, nproc=1)
                second = job.round(1, 2)
                self.assertEqual((worker_of(job, stays, second)["group"], {line["restart"] for line in second.values()}), (kept, {0}))
                job.finish()
                for node in (stays, comes):
                    job.expect_exit(node, 0)
                job.expect_gone(but=[daemon])

    def test_a_worker_that_does_not_finish_dying_costs_its_node_and_a_spare_takes_the_rank(self):
        with Job() as job:
            daemon = job.daemon()
            options = (*FAST, "--max-restarts", 1, "--shutdown-timeout", 0, "--spares", 1)
            stays, stuck = (job.node(*options, nproc=1) for _ in range(2))
            wait_for("both nodes", lambda: job_status(job).count('"host"') == 2)
            spare = job.node(*options, nproc=1)
            first = job.round(0, 2)
            dying = worker_of(job, stuck, first)
            held = HeldAtItsExit(dying["pid"])
            try:
                os.kill(worker_of(job, stays, first)["pid"], signal.SIGKILL)  # whose collective ends with the other's
                second = job.round(1, 2)
                self.assertEqual(worker_of(job, spare, second)["group"], dying["group"])
                job.expect_exit(stuck, 70)
                self.assertIn("did not end after SIGKILL", stuck.err.read_text())
            finally:
                held.release()
            job.finish()
            for node in (stays, spare):
                job.expect_exit(node, 0)
            job.expect_gone(but=[daemon])

    def test_a_network_that_flaps_for_less_than_a_lease_costs_nobody_a_place(self):
        with Job() as job:
            daemon = job.daemon()
            options = ("--lease", 15, "--allow-faults", "--node-failures", "1/5", "--max-restarts", 3)
            stays, flaps = (job.node(*options, nnodes="1:2", nproc=1) for _ in range(2))
            first = job.round(0, 2)
            for _ in range(3):
                # Refused while it is away: so each one comes after the one before is over.
                wait_for("node that is back", lambda: fault(job, "partition", "node", node_name(job, flaps), "--for", 1.2, "--job",
                                                            job.id).returncode == 0)
            wait_for("node that stays", lambda: job_status(job).count('"connected":true') == 2)
            self.assertLessEqual({line["pid"] for line in first.values()}, set(job.processes()), job.story())
            self.assertEqual(job.starts(round=1), [])
            job.finish()
            for node in (stays, flaps):
                job.expect_exit(node, 0)
                self.assertNotIn("is excluded", node.err.read_text())
            job.expect_gone(but=[daemon])

    def test_a_worker_that_holds_pythons_lock_for_longer_than_a_lease_is_lost_to_nobody(self):
        with Job() as job:
            daemon = job.daemon()
            script = job.directory / "train.py"
            script.write_text(DEAF)
            nodes = [job.spawn("muster", "--nnodes", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{job.port}", "--rdzv-id",
                               job.id, "--node-rank", rank, *FAST, "--max-restarts", 3, "--no-python", sys.executable, script,
                               PYTHONPATH=str(PACKAGE), MUSTER_LIBRARY=os.environ["MUSTER_LIBRARY"]) for rank in range(2)]
            for node in nodes:
                job.expect_exit(node, 0)
                self.assertNotRegex(node.err.read_text(), "lost|silent|round 0 ended|heartbeat")
            silence = float(re.fullmatch(r"rank 1 was without a heartbeat for ([\d.]+) s\n", nodes[1].out.read_text())[1])
            self.assertGreaterEqual(silence, 12.4)
            said = daemon.err.read_text()
            self.assertIn("round 0 sealed with 2 nodes", said)
            self.assertNotRegex(said, "round 1 sealed|lost|silent")
            job.expect_gone(but=[daemon])

    def test_a_worker_killed_on_one_node_of_a_fixed_world_restarts_both_and_without_a_restart_ends_both(self):
        with Job() as job:
            nodes = [job.spawn("muster", "--nnodes", 2, "--nproc-per-node", 2, "--rdzv-backend", "static", "--node-rank", rank, "--master-addr",
                               "127.0.0.1", "--master-port", job.port, *FAST, "--max-restarts", 1, "--no-python", WORKERS / "elastic",
                               "--until", "done") for rank in range(2)]
            first = job.round(0, 4)
            os.kill(first[3]["pid"], signal.SIGKILL)
            second = job.round(1, 4)
            self.assertEqual({line["restart"] for line in second.values()}, {1})
            self.assertFalse({line["pid"] for line in first.values()} & set(job.processes()))
            for rank, line in second.items():
                self.assertEqual((line["group"], line["master"]), (first[rank]["group"], f"127.0.0.1:{job.port}"))
                self.assertEqual(job.parent(job.parent(line["pid"])), nodes[rank // 2].pid)
            os.kill(second[3]["pid"], signal.SIGKILL)
            for node in nodes:
                job.expect_exit(node, 128 + signal.SIGKILL)
                self.assertRegex(node.err.read_text(), r"no restart is left \(1 of 1 used\)(?s:.*)rank 3 ")
            job.expect_gone()


if __name__ == "__main__":
    unittest.main(verbosity=2)
