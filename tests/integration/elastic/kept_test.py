"""Kept rounds: the survivors of a failure enter the next round in the same process, and come to the same bits as a run that
nobody disturbed."""
import functools
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import unittest

from job import BIN, WORKERS, Job, wait_for
from log_views import wait_until_followed
from nodes_test import job_status

KEPT_STEPS = WORKERS / "kept_steps"
DIGITS = pathlib.Path(__file__).resolve().parents[3] / "worker_runtime/examples/data/digits.csv"
STEPS = 400
BYTES = 64 * 1024

# A worker of another version: it speaks version 1 of the local protocol, says that it is there, and leaves when its round
# is over. It writes each type of message that it gets.
OLD_WORKER = """
import os, pathlib, signal, socket, struct, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # so that the message is read before the end
address = os.environ["MUSTER_AGENT_SOCKET"]
channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
channel.connect("\\0" + address[1:])
text = lambda value: struct.pack("<H", len(value)) + value.encode()
channel.send(b"\\x01" + struct.pack("<Ii", 1, os.getpid()) + text("muster runtime") + text(os.environ["MUSTER_AGENT_TOKEN"]))
with open(os.environ["ELASTIC_LOG"], "a") as log:
    print(f"start rank={os.environ['RANK']} round={os.environ['MUSTER_ROUND']} pid={os.getpid()} count=0", file=log, flush=True)
    while not pathlib.Path("done").exists():
        channel.settimeout(0.05)
        try:
            heard = channel.recv(4096)
        except socket.timeout:
            continue
        print(f"heard rank={os.environ['RANK']} type={heard[0] if heard else 0}", file=log, flush=True)
        if not heard or heard[0] == 65:
            sys.exit(1)
"""

PYTHON = pathlib.Path(__file__).resolve().parents[3] / "worker_runtime/python"
PYTHON_WORKER = """
import array, os, pathlib, time
import muster

log = open(os.environ["ELASTIC_LOG"], "a", buffering=1)
left = []

@muster.recoverable
def train(context, resume, word):
    print(f"start rank={context.rank} round={context.place.round} pid={os.getpid()} count={resume.count} "
          f"environment={os.environ['MUSTER_ROUND']} word={word}", file=log)
    print(" of two rounds" if resume.count else f"rank {context.rank} is here\\none line", end="\\n" if resume.count else "", flush=True)
    values = array.array("q", [context.rank])
    try:
        steps(context, values)
    except muster.MusterError as error:
        left.append(type(error).__name__)
        context.world.all_reduce(values)  # fails too, and the first error is this one's context
    return "trained"

def steps(context, values):
    group = context.world.split(context.rank % 2)
    while True:
        values[0] = pathlib.Path("done").exists() and context.place.round > 0  # until all ranks agree
        context.world.all_reduce(values, op="max")
        if values[0]:
            return
        time.sleep(0.002)
        if pathlib.Path("raise").exists():
            raise ValueError("not a round's end")

print(f"end rank={os.environ['RANK']} result={train('given')} left={','.join(left) or '-'}", file=log)
"""


LATE = ("did not leave its round within 5 s", "its standby process did not take over")


def again_if_late(test):
    """A worker that a busy machine keeps from leaving its round for 5 s is killed, and a standby process that does not answer
    for half a second is replaced. Both are right, and say nothing of what the test looks at."""
    @functools.wraps(test)
    def run(self):
        for attempt in range(5):
            Kept.late = False
            try:
                return test(self)
            except (AssertionError, OSError):
                if attempt == 4 or not Kept.late:
                    raise
    return run


class Kept(Job):
    """A job of kept_steps."""
    late = False  # one of these jobs was

    def __exit__(self, *failure):
        Kept.late = Kept.late or any(word in process.err.read_text() for process in self.launchers for word in LATE)
        super().__exit__(*failure)

    def train(self, *options, nproc=4, nodes=None, steps=STEPS, kind="recoverable", restarts=99, size=BYTES, pause_ms=30, **extra):
        """A training of 12 s, until trained_to_the_end(): a test that stands still for a moment must not miss it."""
        where = () if nodes is None else ("--nnodes", nodes, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{self.port}",
                                          "--rdzv-id", self.id, "--rdzv-conf", "last_call_timeout=60")
        return self.spawn("muster", *where, "--nproc-per-node", nproc, "--max-restarts", restarts, "--log-level=info",
                          "--checkpoint-dir", self.directory / "checkpoints", *options, "--no-python", KEPT_STEPS, steps, size, kind, pause_ms, **extra)

    def progress(self, rank, round_number, step):
        wait_for(f"step {step} of rank {rank} in round {round_number}\n{self.story()[-3000:]}",
                 lambda: any(line["step"] >= step for line in self.lines("step")
                             if line["rank"] == rank and line["round"] == round_number))

    def step_of(self, round_number):
        return max((line["step"] for line in self.lines("step") if line["round"] == round_number), default=0)

    def trained(self, round_number, world, more=3):
        """All ranks of this round have taken steps in it."""
        first = self.round(round_number, world)[0]["step"]
        for rank in range(world):
            self.progress(rank, round_number, first + more)
        return self.round(round_number, world)

    def trained_to_the_end(self, *launchers):
        self.finish()
        for launcher in launchers:
            self.expect_exit(launcher, 0, deadline=120)

    def sums(self, world):
        found = wait_for("the ranks' results", lambda: (lines := self.lines("sum")) and len(lines) >= world and lines)
        return {line["rank"]: line["value"] for line in found}


@functools.cache
def undisturbed(steps=STEPS, size=BYTES, kind="recoverable"):
    with Kept() as job:
        job.trained_to_the_end(job.train(steps=steps, size=size, kind=kind))
        return job.sums(4)


def two_nodes(job):
    """The first one hosts the rendezvous, and has joined first, so that it has rank 0."""
    first = job.train(nproc=2, nodes=2)
    wait_for("the host's daemon", job.answers)
    wait_for("the first node", lambda: '"host"' in job_status(job))
    return [first, job.train(nproc=2, nodes=2)]


class KeptRounds(unittest.TestCase):
    def expect_kept(self, before, after, victims, source="memory"):
        for rank, line in after.items():
            if rank in victims:
                self.assertNotEqual(line["pid"], before[rank]["pid"])
                self.assertEqual(line["count"], 0)
            else:
                self.assertEqual(line["pid"], before[rank]["pid"])
                self.assertEqual(line["count"], before[rank]["count"] + 1)
            self.assertEqual(line["from"], source)

    @again_if_late
    def test_the_others_keep_their_processes_and_the_result_is_that_of_an_undisturbed_run(self):
        expected = undisturbed()
        with Kept() as job:
            launcher = job.train()
            before = job.trained(0, 4)
            for number, victim in enumerate((1, 0, 3)):
                os.kill(before[victim]["pid"], signal.SIGKILL)
                after = job.trained(number + 1, 4)
                self.expect_kept(before, after, {victim})
                before = after
            job.trained_to_the_end(launcher)
            self.assertEqual(job.sums(4), expected)
            job.expect_gone()

    def expect_forward(self, file=None, source="survivor"):
        """Rank 1 is killed where all ranks have the whole state."""
        with Kept() as job:
            launcher = job.train(kind="forward")
            before = job.trained(0, 4)
            if file:
                job.touch(file)
                wait_for(file, lambda: source == "memory" or not (job.directory / file).exists())
            os.kill(before[1]["pid"], signal.SIGKILL)
            after = job.trained(1, 4)
            self.expect_kept(before, after, {1}, source)
            last = max(line["step"] for line in job.lines("step") if line["round"] == 0 and line["rank"] != 1)
            self.assertLessEqual(after[0]["step"], last)
            if source == "survivor":
                self.assertEqual({line["step"] for line in after.values()}, {last})
            job.trained_to_the_end(launcher)
            self.assertEqual(job.sums(4), undisturbed(kind="forward"))
            return launcher.err.read_text()

    @again_if_late
    def test_the_new_worker_gets_the_clean_state_of_a_survivor_and_no_step_is_lost(self):
        self.assertNotIn("is not used", self.expect_forward())

    @again_if_late
    def test_a_survivor_that_left_in_the_middle_of_its_optimizers_step_gets_the_state_of_a_clean_one(self):
        self.assertNotIn("is not used", self.expect_forward("torn.2"))

    @again_if_late
    def test_survivors_whose_states_differ_return_to_the_newest_copy(self):
        self.assertRegex(self.expect_forward("other.2", "memory"),
                         "the survivors' state of step .* is not used, the newest copy is: .*tensor 'weight' is not the same on all ranks: rank 2")

    @again_if_late
    def test_survivors_of_both_nodes_are_kept(self):
        expected = undisturbed()
        with Kept() as job:
            launchers = [job.train(nproc=2, nodes=2) for _ in range(2)]
            before = job.trained(0, 4)
            for number, victim in enumerate((3, 0)):
                os.kill(before[victim]["pid"], signal.SIGKILL)
                after = job.trained(number + 1, 4)
                self.expect_kept(before, after, {victim})
                before = after
            job.trained_to_the_end(*launchers)
            self.assertEqual(job.sums(4), expected)
            job.expect_gone()

    @again_if_late
    def test_a_worker_that_does_not_leave_its_round_in_time_is_killed_and_replaced(self):
        with Kept() as job:
            job.touch("stuck.2")
            launcher = job.train()
            before = wait_for("round 0", lambda: job.starts(round=0) if len(job.starts(round=0)) == 4 else None)
            before = {line["rank"]: line for line in before}
            os.kill(before[1]["pid"], signal.SIGKILL)
            wait_for("the limit", lambda: "did not leave its round within 5 s" in launcher.err.read_text())
            (job.directory / "stuck.2").unlink()
            after = job.round(1, 4)
            for rank in (0, 3):
                self.assertEqual(after[rank]["pid"], before[rank]["pid"])
            for rank in (1, 2):
                self.assertNotEqual(after[rank]["pid"], before[rank]["pid"])
            job.trained_to_the_end(launcher)

    def held(self, job, launcher, count):
        wait_for(f"{count} held workers\n{job.story()[-3000:]}",
                 lambda: launcher.err.read_text().count("has left the round and is held") >= count)

    @again_if_late
    def test_held_workers_die_with_their_agent(self):
        with Kept() as job:
            launchers = two_nodes(job)
            before = job.trained(0, 4)
            by_node = {launcher.pid: [] for launcher in launchers}
            for line in before.values():
                by_node[job.parent(job.parent(line["pid"]))].append(line)
            # The node that does not have the store loses its agent, so that the other one's workers are held and wait.
            waiting, lost = sorted(launchers, key=lambda one: min(line["rank"] for line in by_node[one.pid]))
            os.kill(lost.pid, signal.SIGKILL)
            self.held(job, waiting, 2)
            pids = [line["pid"] for line in by_node[waiting.pid]]
            for pid in pids:
                self.assertTrue(pathlib.Path(f"/proc/{pid}").exists())
            os.kill(waiting.pid, signal.SIGKILL)
            job.expect_gone()

    @again_if_late
    def test_held_workers_end_when_the_launcher_is_stopped(self):
        with Kept() as job:
            launchers = two_nodes(job)
            before = job.trained(0, 4)
            lost = next(one for one in launchers if one.pid == job.parent(job.parent(before[3]["pid"])))
            waiting = next(one for one in launchers if one is not lost)
            os.kill(lost.pid, signal.SIGKILL)
            self.held(job, waiting, 2)
            waiting.terminate()
            self.assertNotEqual(job.exit_code(waiting), 0)
            job.expect_gone()

    def test_a_program_without_run_recoverable_is_restarted_as_ever(self):
        with Kept() as job:
            launcher = job.train(kind="plain")
            before = job.trained(0, 4)
            os.kill(before[1]["pid"], signal.SIGKILL)
            after = job.trained(1, 4)
            for rank in range(4):
                self.assertNotEqual(after[rank]["pid"], before[rank]["pid"])
            job.trained_to_the_end(launcher)

    @again_if_late
    def test_a_failure_that_only_a_split_has_seen_is_the_rounds_end(self):
        with Kept() as job:
            launcher = job.train(kind="split")
            before = job.trained(0, 4)
            os.kill(before[1]["pid"], signal.SIGKILL)
            self.expect_kept(before, job.trained(1, 4), {1})
            job.trained_to_the_end(launcher)

    def test_a_program_that_keeps_a_checkpointer_does_not_enter_the_next_round_with_it(self):
        with Kept() as job:
            launcher = job.train(kind="keeper")
            before = job.trained(0, 4)
            os.kill(before[1]["pid"], signal.SIGKILL)
            after = job.trained(1, 4)
            for rank in range(4):
                self.assertNotEqual(after[rank]["pid"], before[rank]["pid"])
            wait_for("word of the checkpointer", lambda: "a checkpointer or a process group of the round is still there" in launcher.err.read_text())
            job.trained_to_the_end(launcher)

    def test_a_worker_of_version_1_hears_what_it_knows_and_is_restarted(self):
        with Kept() as job:
            (job.directory / "old.py").write_text(OLD_WORKER)
            launcher = job.spawn("muster", "--nproc-per-node", 2, "--max-restarts", 2, "old.py", PYTHON_EXEC=sys.executable)
            before = job.round(0, 2)
            os.kill(before[1]["pid"], signal.SIGKILL)
            after = job.round(1, 2)
            self.assertNotEqual(after[0]["pid"], before[0]["pid"])
            self.assertEqual([line["type"] for line in job.lines("heard")], [65])
            job.finish()
            job.expect_exit(launcher, 0)

    def test_an_agent_of_version_1_gets_todays_behaviour(self):
        """The stand-in takes the worker's words as version 1 does, which passes over CanKeep, and ends the round."""
        with Kept() as job:
            address = f"muster-old-agent-{job.tag}"
            agent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            agent.bind("\0" + address)
            agent.listen(1)
            agent.settimeout(60)
            worker = subprocess.Popen(
                [str(KEPT_STEPS), "100000000", str(BYTES)], cwd=job.directory, stderr=subprocess.PIPE, text=True,
                env=job.environment(MUSTER_AGENT_SOCKET=f"@{address}", MUSTER_AGENT_TOKEN="0123", RANK="0", WORLD_SIZE="1",
                                    LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", MUSTER_CHECKPOINT_DIR=str(job.directory / "checkpoints")))
            try:
                channel, _ = agent.accept()
                channel.settimeout(60)
                types = set()
                while 7 not in types:
                    types.add(channel.recv(16384)[0])
                self.assertIn(1, types)
                why = b"rank 1 failed"
                channel.send(b"\x41" + len(why).to_bytes(2, "little") + why)
                self.assertEqual(worker.wait(timeout=60), 1)
                self.assertIn("the agent has not asked this process to stay: the round ended: rank 1 failed", worker.stderr.read())
            finally:
                worker.kill()
                worker.wait()
                worker.stderr.close()
                channel.close()
                agent.close()

    @again_if_late
    def test_the_example_trainer_comes_to_the_weights_of_an_undisturbed_run(self):
        said = {}
        for dies in (False, True):
            with Kept() as job:
                fault = ("--die-at-step", 40, "--die-once", job.directory / "died") if dies else ()
                launcher = job.spawn("muster", "--nproc-per-node", 3, "--max-restarts", 1, "--checkpoint-dir",
                                     job.directory / "checkpoints", "--no-python", BIN / "digits_trainer", "--data", DIGITS,
                                     "--epochs", 5, "--recover", "in-process", *fault)
                job.expect_exit(launcher, 0, deadline=120)
                said[dies] = launcher.out.read_text()
        self.assertIn("rank 0 stays in process", said[True])
        self.assertNotIn("rank 0 stays in process", said[False])
        weights = {dies: re.findall("weights ([0-9a-f]{16})", text) for dies, text in said.items()}
        self.assertEqual(weights[True], weights[False])
        self.assertEqual(len(weights[True]), 1)

    def start_python(self, job, *options, nproc=3):
        (job.directory / "train.py").write_text(PYTHON_WORKER)
        return job.spawn("muster", *options, "--nproc-per-node", nproc, "--max-restarts", 3, "train.py", PYTHON_EXEC=sys.executable,
                         PYTHONPATH=str(PYTHON), MUSTER_LIBRARY=os.environ["MUSTER_LIBRARY"])

    @again_if_late
    def test_a_python_function_is_called_again_in_the_same_process(self):
        with Kept() as job:
            launcher = self.start_python(job)
            before = job.round(0, 3)
            os.kill(before[1]["pid"], signal.SIGKILL)
            after = job.round(1, 3)
            job.finish()
            job.expect_exit(launcher, 0)
            for rank in (0, 2):
                self.assertEqual((after[rank]["pid"], after[rank]["count"]), (before[rank]["pid"], 1))
            self.assertEqual({line["environment"] for line in after.values()}, {1})
            ends = {line["rank"]: line for line in job.lines("end")}
            self.assertEqual({line["result"] for line in ends.values()}, {"trained"})
            self.assertTrue(all(ends[rank]["left"] in ("RoundEnded", "MusterError") for rank in (0, 2)), ends)
            job.expect_gone()

    @again_if_late
    def test_a_line_of_a_kept_worker_that_has_its_end_in_the_next_round_is_shown_whole(self):
        with Kept() as job:
            launcher = self.start_python(job, "--nnodes", 1, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{job.port}", "--rdzv-id", job.id,
                                         "--log-dir", job.directory / "logs", "-r", 3)
            before = job.round(0, 3)
            viewer = job.spawn("muster", "logs", "-f", job.id, "--rdzv-endpoint", f"127.0.0.1:{job.port}", "--all")
            wait_for("lines of three ranks", lambda: viewer.out.read_text().count("is here") == 3, deadline=120)
            os.kill(before[1]["pid"], signal.SIGKILL)
            wait_until_followed(job, viewer)  # the job must not end before
            wait_for("lines of round 1", lambda: (text := viewer.out.read_text()).count("of two rounds") == 2 and text.count("is here") == 4, deadline=120)
            job.finish()
            job.expect_exit(launcher, 0, deadline=120)
            job.expect_exit(viewer, 0, deadline=120)
            shown = sorted(line.removeprefix("~") for line in viewer.out.read_text().splitlines())
            # Those of rank 1 are of two workers, which both end in the line.
            self.assertEqual(shown, ["[0]: one line of two rounds", "[0]: rank 0 is here", "[1]: one line", "[1]: one line", "[1]: rank 1 is here",
                                     "[1]: rank 1 is here", "[2]: one line of two rounds", "[2]: rank 2 is here"])
            for number, lines in ((0, ["[0]: rank 0 is here", "[1]: one line", "[1]: rank 1 is here", "[2]: rank 2 is here"]),
                                  (1, ["[0]: one line of two rounds", "[1]: one line", "[1]: rank 1 is here", "[2]: one line of two rounds"])):
                with self.subTest(round=number):
                    answer = subprocess.run([BIN / "muster", "logs", job.directory / "logs", "--all", "--round", str(number)], env=job.environment(),
                                            capture_output=True, text=True, timeout=120)
                    self.assertEqual(sorted(answer.stdout.splitlines()), lines, answer.stderr)

    def test_another_exception_of_a_python_function_is_a_failure_as_ever(self):
        with Kept() as job:
            launcher = self.start_python(job)
            job.round(0, 3)
            job.touch("raise")
            self.assertNotEqual(job.exit_code(launcher), 0)
            self.assertIn("not a round's end", launcher.err.read_text())

    @again_if_late
    def test_a_warm_spare_takes_the_place_of_a_lost_node(self):
        lease = 5
        with Kept() as job:
            daemon = job.daemon()
            nodes = [self.start_python(job, "--nnodes", 2, "--spares", 1, "--rdzv-backend", "c10d", "--rdzv-endpoint",
                                       f"127.0.0.1:{job.port}", "--rdzv-id", job.id, "--lease", lease, "--warm-workers", 1,
                                       "--warm-imports", "json", "--log-level", "info", nproc=1) for _ in range(3)]
            before = job.round(0, 2)
            spare = wait_for("spare", lambda: next((one for one in nodes if "parked as a spare" in one.err.read_text()), None))
            standby = wait_for("standby process of the spare", lambda: re.search(
                r"the standby process of local rank 0 \(pid (\d+)\) is ready", spare.err.read_text()))
            # A machine that is cut off: nothing of it says or does anything any more.
            worker = before[1]["pid"]
            node = [worker, job.parent(worker), job.parent(job.parent(worker))]
            self.assertIn(node[-1], [one.pid for one in nodes])
            for pid in reversed(node):
                os.kill(pid, signal.SIGSTOP)
            lost = time.monotonic()
            after = job.round(1, 2)
            took = time.monotonic() - lost
            print(f"from the loss of a node to the next round: lease {lease} s + {took - lease:.2f} s", file=sys.stderr)
            self.assertEqual(after[1]["pid"], int(standby.group(1)))
            self.assertEqual((after[0]["pid"], after[0]["count"]), (before[0]["pid"], 1))
            for pid in node:  # The worker first: it dies with its guardian, and its number may be nobody's then.
                os.kill(pid, signal.SIGKILL)
            job.finish()
            for one in nodes:
                if one.pid not in node:
                    job.expect_exit(one, 0)
            job.expect_gone(but=(daemon,))

    @again_if_late
    def test_nothing_grows_over_fifty_recoveries(self):
        with Kept() as job:
            launcher = job.train(nproc=2, steps=1_000_000, pause_ms=10)
            before = job.trained(0, 2)
            seen = []
            for number in range(50):
                os.kill(before[1]["pid"], signal.SIGKILL)
                after = job.trained(number + 1, 2, more=2)  # the second step follows a copy
                self.assertEqual(after[0]["pid"], before[0]["pid"])
                seen.append(after[0])
                before = after
            for what in ("descriptors", "mappings", "threads"):
                numbers = [line[what] for line in seen]
                # The first rounds warm caches up. What grows does so in each round; on a busy machine something may still be going.
                self.assertLessEqual(max(numbers[40:]), max(numbers[5:15]) + 8, f"{what}: {numbers}")
            launcher.terminate()
            job.exit_code(launcher)


if __name__ == "__main__":
    unittest.main()
