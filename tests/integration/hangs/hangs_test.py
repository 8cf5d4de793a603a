"""Workers that hang, and others that are only slow: what `muster` says of them, and where they are."""
import os
import pathlib
import re
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "elastic"))
from replay_test import Replay, page_between_events  # noqa: E402
from job import NOBODY, WARM, Job, wait_for, without_times  # noqa: E402

PACKAGE = pathlib.Path(__file__).resolve().parents[3] / "worker_runtime/python"
PLAIN = """import os, signal, time
def evaluate():
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(1000)
evaluate()
"""
# Rank 1 is in state D: posix_spawn() waits, as vfork() does, for a child that waits for somebody to open the gate.
ASLEEP = """import os, time
def save():
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 3, "gate", os.O_RDONLY, 0)])
if os.environ["RANK"] == "1":
    save()
time.sleep(1000)
"""
# Longer than its --hang-timeout of 6 s and than three of its pauses, in a section.
SLOW = """import time, muster
for _ in range(25):
    muster.heartbeat()
    time.sleep(0.3)
with muster.section("evaluation"):
    time.sleep(9)
print("slow but alive", flush=True)
with muster.section("checkpoint", timeout=1):
    time.sleep(1000)
"""
# Computes for ever, and says nothing any more.
LOST = """import time, muster
def lost():
    while True:
        sum(range(1000))
for _ in range(25):
    muster.heartbeat()
    time.sleep(0.2)
lost()
"""
# Each rank on a node of its own: rank 1 does not come to the last one, and is neither stopped nor beside the one that waits.
# The others begin it when rank 1 has done its last step, so that none of them waits for longer than it has done nothing.
AWAY = """import array, os, time, muster
with muster.Context(operation_timeout=6.5) as context:
    for step in range(30):
        if step == 29 and context.rank == 1:
            time.sleep(1000)
        context.world.all_reduce(array.array("f", [1]))
        time.sleep(0.05)
        muster.progress(step)
        if step == 28 and context.rank == 1:
            open("away", "w").close()
        while step == 28 and not os.path.exists("away"):
            time.sleep(0.01)
"""
# The same, and the operation's own deadline is the default, which is minutes away.
FAR = AWAY.replace("operation_timeout=6.5", "")
# A script that uses muster's communicator and then hangs in one of torch's, whose debug server and record are stand-ins: rank 0
# waits in its operation 8, and rank 1 does not come. Neither may look now and then: on a busy host a few such looks a second
# take more of a CPU than a worker that hangs. The socket is bound by its directory's descriptor, as torch's is: its own path
# may have 107 bytes only, and a TMPDIR may be long.
BOTH = """import array, http.server, json, os, socketserver, sys, threading, time, muster
class Record(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        first = int(os.environ["RANK"]) == 0
        entries = [{"record_id": number, "collective_seq_id": number, "profiling_name": "gloo:all_reduce", "time_created_ns": created,
                    "process_group": ["0", "default_pg"], "retired": number == 7} for number in ([7, 8] if first else [7])]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"entries": entries}).encode())
    def address_string(self):
        return "the agent"
    def log_message(self, *_):
        pass
directory, name = os.path.split(os.environ["MUSTER_TORCH_SOCKET"])
server = socketserver.UnixStreamServer(f"/proc/self/fd/{os.open(directory, os.O_PATH)}/{name}", Record)
with muster.Context() as context:
    context.world.all_reduce(array.array("f", [1]))
    created = time.time_ns()
    threading.Thread(target=server.serve_forever, args=(1000,), daemon=True).start()
    open("gate").close() if context.rank == 0 else time.sleep(1000)
    os._exit(3)
"""


def start_nodes(job, text, count, hang_timeout=1):
    return [start(job, text, "--nnodes", count, "--node-rank", rank, "--rdzv-backend", "c10d", "--rdzv-id", job.id,
                  "--rdzv-endpoint", f"127.0.0.1:{job.port}", hang_timeout=hang_timeout) for rank in range(count)]


def start(job, text, *options, nproc=1, before=(), hang_timeout=1, **extra):
    script = job.directory / "train.py"
    script.write_text(text)
    return job.spawn("muster", "--nproc-per-node", nproc, "--hang-timeout", hang_timeout, "--shutdown-timeout", "1", *options,
                     "--no-python", *before, sys.executable, script, PYTHONPATH=str(PACKAGE), MUSTER_LIBRARY=os.environ["MUSTER_LIBRARY"],
                     **extra)


class Hangs(unittest.TestCase):
    """All jobs run beside each other: they mostly wait."""

    @classmethod
    def job(cls, **how):
        job = Job(**how)
        cls.addClassCleanup(job.__exit__)
        return job

    @classmethod
    def setUpClass(cls):
        # Where it is more than a second, a process that only stands still on a busy host is not told of.
        cls.plain = start(cls.job(), PLAIN, nproc=2, hang_timeout=5)
        cls.asleep_job = cls.job()
        os.mkfifo(cls.asleep_job.directory / "gate")
        cls.asleep = start(cls.asleep_job, ASLEEP, nproc=2, hang_timeout=5)
        cls.slow = start(cls.job(), SLOW, hang_timeout=6)
        if not WARM:
            cls.lost = start(cls.job(), LOST, hang_timeout=4, before=("/bin/sh", "-c", '"$$@"; exit', "sh"))  # it stays, and waits
        cls.away = start_nodes(cls.job(), AWAY, 2)
        cls.far_job = cls.job()
        cls.far = start_nodes(cls.far_job, FAR, 3, hang_timeout=5)
        if not WARM:
            cls.both_job = cls.job()
            os.mkfifo(cls.both_job.directory / "gate")
            cls.both = start(cls.both_job, BOTH, "--log-dir", "logs", nproc=2, TORCH_FR_BUFFER_SIZE="100")
        if os.geteuid() == 0 and not WARM:
            cls.user = cls.job(user=NOBODY).spawn(
                "muster", "--hang-timeout", "1", "--shutdown-timeout", "1", "--no-python", "/bin/sh", "-c",
                "kill -STOP $$$$")  # $$ is what the launcher makes $ of

    def end(self, launcher):
        launcher.terminate()
        launcher.wait(60)

    def test_a_stopped_script_that_knows_nothing_of_muster_is_shown_with_its_python_frames(self):
        said = self.plain.err.read_text
        wait_for("stack of the stopped rank", lambda: re.search(
            r"where rank 1 is:\n.*thread \d+ .*:\n.*evaluate \(.*train.py:4\)\n.*<module> \(.*train.py:6\)\n", said()))
        pid = int(re.search(r"rank 1 \(pid (\d+)\) has been stopped by a signal", said())[1])
        state = pathlib.Path(f"/proc/{pid}/stat")
        wait_for("state T", lambda: state.read_text().rsplit(")", 1)[1].split()[0] == "T")
        os.kill(pid, signal.SIGCONT)
        wait_for("word that it goes on", lambda: f"rank 1 (pid {pid}) goes on" in said())
        self.assertNotIn("where rank 0 is", said())
        self.end(self.plain)

    def test_a_worker_in_uninterruptible_sleep_is_told_of_and_not_ended(self):
        said = self.asleep.err.read_text
        wait_for("word of the sleep", lambda: "in uninterruptible sleep" in said())
        found = re.search(r"rank 1 \(pid (\d+)\) has been in uninterruptible sleep in (\w+) for [\d.]+ s\n", said())
        self.assertTrue(found, said())
        state = pathlib.Path(f"/proc/{found[1]}/stat").read_text().rsplit(")", 1)[1].split()[0]
        self.assertEqual(state, "D")
        with open(self.asleep_job.directory / "gate", "w"):
            wait_for("word that it goes on", lambda: f"rank 1 (pid {found[1]}) goes on" in said())
        self.assertNotRegex(said(), "rank 0 .*uninterruptible|where rank 0 is")
        self.end(self.asleep)

    def test_slow_is_not_taken_for_hung(self):
        def said():
            lines = self.slow.err.read_text().splitlines(keepends=True)
            # A launcher that a busy host keeps from running tells it.
            return [line for line in lines if line.endswith("\n") and not re.search("warm workers:|this launcher stood still", line)]
        wait_for("word of the section", said)
        self.assertIn("is in section checkpoint longer than its limit of 1 s", said()[0])
        wait_for("what it printed before", lambda: "slow but alive" in self.slow.out.read_text())
        self.end(self.slow)

    @unittest.skipIf(WARM, "a program that is not Python cannot be warm")
    def test_heartbeats_that_stay_away_are_told_of_and_where_the_worker_is(self):
        wait_for("the place", lambda: re.search(
            r"rank 0 \(pid \d+\) on \S+ has sent no heartbeat for (?s:.*)\n.* lost \(.*train.py:4\)\n", self.lost.err.read_text()))
        self.end(self.lost)

    def test_a_rank_that_waits_elsewhere_is_named_on_both_nodes_and_its_own_says_what_it_was_at(self):
        for launcher in self.away:
            self.assertEqual(launcher.wait(200), 1)
            self.assertRegex(launcher.err.read_text(), r"rank 1 ")
        self.assertRegex(self.away[1].err.read_text(), r"rank 1 \(pid \d+\) on \S+ had done nothing for (?:[5-9]|\d\d).*s when the round "
                                                       r"ended: asleep in \w+, after all_reduce 29 of world; it was at <module> \(.*train.py:5\)\n")
        self.assertNotRegex(self.away[0].err.read_text(), "had done nothing for .* when the round ended: ")
        # The verdict of every node: who did not come, what it was doing, what it is missing from, and where the other one waits.
        for launcher in self.away:
            self.assertRegex(without_times(launcher.err.read_text()), r"its ranks stood in different places:\n"
                             r" +rank 1 on \S+ \(pid \d+\): had done nothing for (?:[5-9]|\d\d).*s, asleep in \w+, after all_reduce 29 of world, "
                             r"missing from all_reduce 30 of world, at <module> \(.*train.py:5\)\n"
                             r" +rank 0 on \S+ \(pid \d+\): had done nothing for .*, inside all_reduce 30 of world, at .*\(.*muster.*py:\d+\)")

    def test_a_rank_alone_on_its_node_is_named_on_every_node_long_before_the_operation_gives_up_and_nobody_is_ended(self):
        waiting = {wait_for("who is missing", lambda: re.search(
            r"rank 1 \(pid \d+\) on \S+ has done nothing for [\d.]+ s \(asleep in \w+, (?:step 28 done, )?after all_reduce 29 of world.*\); it is "
            r"missing from all_reduce 30 of world, in which rank ([02]) \(pid \d+\) on \S+ waits\n", launcher.err.read_text()))[1]
            for launcher in self.far}
        self.assertEqual(len(waiting), 1)
        # Its own node takes its stack, and that of the rank named as waiting takes that one's; the third is only told.
        explained = [1, int(*waiting)]
        for rank in explained:
            wait_for("its own worker's stack", lambda: re.search(
                rf"where rank {rank} is:\n(?s:.*)\(.*train.py:[56]\)\n", self.far[rank].err.read_text()))
        for rank, launcher in enumerate(self.far):
            said = launcher.err.read_text()
            self.assertEqual(re.findall(r"where rank (\d+) is:", said), [str(rank)] if rank in explained else [])
            self.assertEqual(said.count("missing from"), 1)
            self.assertIsNone(launcher.poll())
        events, page, _ = page_between_events(self.far_job)
        time = page["goodput"]
        suspected = next(event["data"] for event in events if "hang.suspected" in event["type"])
        self.assertGreater(suspected["hung_ms"], 4000)  # The last step was before the 5 s.
        self.assertAlmostEqual(time["hung"], Replay(events).times(time["wall_clock"])[1]["hung"], delta=0.5)
        for launcher in self.far:
            self.end(launcher)

    @unittest.skipIf(WARM, "a worker whose flight recorder torch serves cannot be warm")
    def test_a_hang_in_a_collective_of_torch_is_named_where_the_script_has_a_context_too(self):
        records = [wait_for("torch's record", lambda: next(iter(self.both_job.directory.glob(f"logs/**/{rank}/torch_flight.json")), None))
                   for rank in (0, 1)]
        for record in records:
            wait_for("the whole record", lambda: record.read_text().endswith("}"))
        with open(self.both_job.directory / "gate", "w"):
            self.assertEqual(self.both.wait(60), 3)
        self.assertRegex(without_times(self.both.err.read_text()), r"rank 1 on \S+ \(pid \d+\): had done nothing for .*, "
                         r"after gloo:all_reduce 7 of default_pg, missing from gloo:all_reduce 8 of default_pg")

    @unittest.skipUnless(os.geteuid() == 0 and not WARM, "needs root, to be somebody else, and a program that is not Python")
    def test_an_ordinary_user_sees_stacks_too(self):
        wait_for("stack", lambda: re.search(r"where rank 0 is:\n.*thread \d+ sh:\n.*kill.* \(libc.so.6\)", self.user.err.read_text()))
        self.end(self.user)


if __name__ == "__main__":
    unittest.main(verbosity=2)
