#!/usr/bin/env python3
"""No work lost: a training whose workers and agents are killed at random moments ends with the bits of one that was left
alone, having taken the same samples in the same order.

MUSTER_RESUME_RUNS: how many disturbed trainings (default 2); MUSTER_RESUME_SEED: the first one's seed (default: by time);
MUSTER_RESUME_NODES=2: half of the workers by each of two agents, of which one that was killed is replaced (default 1)."""

import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "elastic"))
from job import free_port  # noqa: E402
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import own_tmpdir  # noqa: E402, F401

REPOSITORY = Path(__file__).resolve().parents[3]
BIN = Path(os.environ["MUSTER_BIN"])
RUNS = int(os.environ.get("MUSTER_RESUME_RUNS", "2"))
SEED = int(os.environ.get("MUSTER_RESUME_SEED", str(time.time_ns() % 1_000_000)))
MARK = "MUSTER_RESUME_TEST"
EPOCHS, STEPS, KILLS = 40, 600, 3
SCHEDULE = ((4, 200), (2, 400), (3, STEPS))  # worlds, and the step up to which each goes
NODES = int(os.environ.get("MUSTER_RESUME_NODES", "1"))


class Training:
    """One training, over as many launches as it takes."""

    def __init__(self, folder, name):
        self.mark = uuid.uuid4().hex
        self.checkpoints, self.losses = folder / f"{name} ckpt", folder / f"{name} losses"
        self.output = ""

    def start(self, world, until):
        self.launcher = self.launch(["--standalone", f"--nproc-per-node={world}"], until, subprocess.PIPE)

    def launch(self, options, until, output):
        leave = ["--leave-at-step", str(until)] if until < STEPS else []
        return subprocess.Popen(
            [BIN / "muster", *options, "--max-restarts=1000", "--max-stalled-restarts=0",
             "--checkpoint-dir", self.checkpoints, BIN / "digits_trainer", "--data",
             REPOSITORY / "worker_runtime/examples/data/digits.csv", "--epochs", str(EPOCHS), "--checkpoint-every", "20",
             "--losses", self.losses, *leave],
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, MARK: self.mark, "OMP_NUM_THREADS": "1"})

    def running(self):
        return self.launcher.poll() is None

    def kill_agent(self, dice):
        self.launcher.kill()

    def processes(self):
        """The names of all processes of this training, by pid."""
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes():
                    found[int(entry.name)] = (entry / "comm").read_text().strip()
            except OSError:
                pass  # gone meanwhile
        return found

    def kill_one(self, dice):
        """A worker, or now and then the agent. Nothing where none is there just now."""
        workers = [pid for pid, name in self.processes().items() if name.startswith("digits_")]
        if dice.random() < 0.3:
            self.kill_agent(dice)
        elif workers:
            try:
                os.kill(dice.choice(workers), signal.SIGKILL)
            except ProcessLookupError:
                pass

    def wait(self):
        """The launcher's end; afterwards nothing of it is left."""
        self.output += self.launcher.communicate(timeout=200)[0].decode()
        self.expect_gone()
        return self.launcher.returncode

    def expect_gone(self):
        end = time.monotonic() + 60
        while self.processes():
            if time.monotonic() > end:
                raise AssertionError(f"left behind: {self.processes()}")
            time.sleep(0.01)

    def run(self, schedule, dice=None):
        """Through the whole schedule, with kills where there are dice."""
        for world, until in schedule:
            kills = KILLS if dice else 0
            while True:
                self.start(world, until)
                while kills and self.running():
                    time.sleep(dice.uniform(0.02, 0.4))  # the random moment
                    self.kill_one(dice)
                    kills -= 1
                code = self.wait()
                if code in (0, 76):
                    break
                if code != -signal.SIGKILL:
                    raise AssertionError(f"ended with {code}:\n{self.output}")
        return self

    def weights(self):
        return re.findall(r"weights ([0-9a-f]{16})", self.output)[-1]

    def steps(self):
        """What each step computed; steps that were taken again must have come to the same."""
        found = {}
        for line in self.losses.read_text().splitlines():
            if not re.fullmatch(r"\d+ \S+", line):
                continue  # the last line of a killed worker
            step, loss = line.split()
            if found.setdefault(int(step), loss) != loss and len(loss) >= len(found[int(step)]):
                raise AssertionError(f"step {step} came to {found[int(step)]} and to {loss}")
        return found


class OnTwoNodes(Training):
    """The same by two agents and a daemon."""

    def start(self, world, until):
        port = free_port()
        self.terms = (["--nnodes=2", f"--nproc-per-node={world // 2}", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}",
                       f"--rdzv-id={self.mark[:8]}", "--rdzv-conf=last_call_timeout=1", "--lease=1"], until)
        self.daemon = subprocess.Popen([BIN / "musterd", "--bind=127.0.0.1", f"--port={port}", "--first-start"], stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL)
        # Else one of the launchers might find nobody there, and be the daemon itself.
        self.assert_listening(self.daemon.stdout.readline())
        self.launchers, self.newest = [self.join() for _ in range(2)], None

    @staticmethod
    def assert_listening(line):
        if b"listening" not in line:
            raise AssertionError(f"musterd said {line!r}")

    def join(self):
        with open(self.losses.with_suffix(".out"), "ab") as output:
            return self.launch(*self.terms, output)

    def running(self):
        return all(each.poll() is None for each in self.launchers)

    def kill_agent(self, dice):
        victim = dice.randrange(2)
        self.launchers[victim].kill()
        if self.launchers[victim].wait() == -signal.SIGKILL:  # else it had just ended
            self.launchers[victim] = self.newest = self.join()

    def wait(self):
        # Killed between the job's end and its own, one is replaced by one that waits for a job of that name to begin.
        late = self.newest if self.newest in self.launchers else None
        codes = [each.wait(120) for each in self.launchers if each is not late]
        if late:
            try:
                codes.append(late.wait(120 if codes[0] not in (0, 76) else 10))
            except subprocess.TimeoutExpired:
                late.kill()
                late.wait()
        self.daemon.kill()
        self.daemon.wait()
        self.output = self.losses.with_suffix(".out").read_text(errors="replace")
        self.expect_gone()
        return codes[0]


class Resume(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="muster resume ")))
        self.quiet = {}

    def undisturbed(self, schedule):
        """The same schedule without faults, once."""
        if schedule not in self.quiet:
            self.quiet[schedule] = Training(self.folder, f"quiet{len(self.quiet)}").run(schedule)
            self.assertEqual(sorted(self.quiet[schedule].steps()), list(range(1, STEPS + 1)))
        return self.quiet[schedule]

    def test_killed_trainings_end_with_the_bits_of_undisturbed_ones(self):
        alone = [((1, STEPS),), ((2, STEPS),), ((4, STEPS),), SCHEDULE]
        schedules = alone if NODES == 1 else [((2, STEPS),), ((4, STEPS),), ((4, 200), (2, 400), (4, STEPS))]
        for number in range(RUNS):
            schedule = schedules[number % len(schedules)]
            quiet = self.undisturbed(schedule)
            with self.subTest(seed=SEED + number, schedule=schedule):
                killed = (Training, OnTwoNodes)[NODES - 1](self.folder, f"killed{number}").run(schedule, random.Random(SEED + number))
                self.assertEqual(killed.weights(), quiet.weights(), killed.output)
                self.assertEqual(killed.steps(), quiet.steps())
                print(f"seed {SEED + number}, {schedule}: went on {killed.output.count('continuing from the agents')} times from "
                      f"agents' copies, {killed.output.count('continuing from the checkpoint')} times from the disk", flush=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
