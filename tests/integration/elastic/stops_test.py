"""Stops, and that nothing is left after any of them: as root and as an ordinary user, with and without a cgroup."""
import functools
import itertools
import os
import pathlib
import signal
import socket
import sys
import time
import unittest
import urllib.request

from job import DEADLINE, NOBODY, WORKERS, Job, free_port, wait_for, without_times

SOON = 8  # s; far more than it takes, and less than what it must not wait for: a grace of 30 s, 10 s for other agents
# A worker whose SIGTERM handler raises SystemExit, and that its interpreter's end keeps: it joins a child that nobody told.
JOINED_AT_THE_END = """
import multiprocessing, os, signal, sys, time
def child(ready, busy):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ready.set()
    while True:
        time.sleep(0.01 if busy else 60)
        if busy:
            sum(range(100_000))
if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
    context = multiprocessing.get_context(sys.argv[1])
    ready = context.Event()
    context.Process(target=child, args=(ready, sys.argv[2] == "busy")).start()
    ready.wait()
    open("ready", "w").close()
    while True:
        time.sleep(0.1)
"""
# A worker that saves in its handler: with its data loader, then by a program that it starts, then by one that was there.
SAVES_LONG = """
import multiprocessing, os, signal, subprocess, sys, time
SECONDS = float(sys.argv[1])
def loader(pipe):
    while True:
        pipe.send(pipe.recv() + 1)
def save(*_):
    end = time.monotonic() + SECONDS
    batch = 0
    while time.monotonic() < end:
        ours.send(batch)
        batch = ours.recv()
        time.sleep(0.05)
    codes = [subprocess.run(["sleep", str(SECONDS)]).returncode, tool.wait()]
    ours.send(batch)
    open("saved", "w").write(f"{codes} {ours.recv() - batch}")
    sys.exit(0)
if __name__ == "__main__":
    ours, theirs = multiprocessing.Pipe()
    multiprocessing.Process(target=loader, args=(theirs,), daemon=True).start()
    tool = subprocess.Popen(["sleep", str(4 * SECONDS)])
    signal.signal(signal.SIGTERM, save)
    open("ready", "w").close()
    while True:
        time.sleep(0.1)
"""
STUBBORN = ("--ignore-term", "--grandchild", "--until", "done")


class Late(AssertionError):
    pass


def expect_soon(job, process, code, limit=SOON):
    """It ends with this code; Late: not within `limit`."""
    began = time.monotonic()
    job.expect_exit(process, code)
    took = time.monotonic() - began
    if took > limit:
        raise Late(f"it took {took:.1f} s, more than {limit} s\n{job.story()}")


def again_if_late(test):
    """Who waits for what must not be waited for is late each time, a busy machine is not."""
    @functools.wraps(test)
    def run(self, *arguments):
        for attempt in range(5):
            try:
                return test(self, *arguments)
            except Late:
                if attempt == 4:
                    raise
    return run


def users():
    return [None, NOBODY] if os.getuid() == 0 else [None]


class Stops(unittest.TestCase):
    @again_if_late
    def test_sigterm_during_rendezvous_ends_the_launcher(self):
        with Job() as job:
            node = job.node(nnodes="2")
            wait_for("the host's daemon", job.answers)
            node.terminate()
            expect_soon(job, node, 128 + signal.SIGTERM)
            job.expect_gone()

    @again_if_late
    def test_a_signal_waits_for_no_stranger_that_has_the_port(self):
        with Job() as job, socket.create_server(("", job.port)) as silent:
            node = job.node(nnodes="2")
            silent.settimeout(DEADLINE)
            asked, _ = silent.accept()
            with asked:
                asked.recv(1)
                node.send_signal(signal.SIGINT)
                # Without the signal it would end with 78 after 5 s, and say that the port is another's: a busy machine once, too.
                if job.exit_code(node) == 78:
                    raise Late(job.story())
                expect_soon(job, node, 128 + signal.SIGINT)
            job.expect_gone()

    @again_if_late
    def test_a_scheduler_that_signals_the_workers_first_has_stopped_the_job(self):
        with Job() as job:
            node = job.node("--log-level", "info", nnodes="1")
            for line in job.round(0, 2).values():
                os.kill(line["pid"], signal.SIGTERM)
            wait_for("word of the first end", lambda: "waiting 1 s for the same signal" in node.err.read_text())
            node.terminate()
            expect_soon(job, node, 128 + signal.SIGTERM)
            said = node.err.read_text()
            if "stopped by SIGTERM" not in said or "failure" in said:  # a busy machine needs more than the second
                raise Late(job.story())
            job.expect_gone()

    def python_worker(self, job, grace, program, *arguments):
        """A launcher with one worker of this program, which is at work."""
        (job.directory / "worker.py").write_text(program)
        node = job.spawn("muster", "--standalone", "--shutdown-timeout", grace, job.directory / "worker.py", *arguments,
                         PYTHON_EXEC=sys.executable)
        wait_for("the worker", lambda: (job.directory / "ready").exists())
        # What is older than a signal is known to the kernel's tick, 10 ms.
        uptime = pathlib.Path("/proc/uptime")
        born_until = uptime.read_text().split()[0]
        wait_for("the next tick", lambda: uptime.read_text().split()[0] != born_until)
        return node

    def stop(self, job, node):
        began = time.monotonic()
        node.terminate()
        job.expect_exit(node, 128 + signal.SIGTERM, 120)
        job.expect_gone()
        return time.monotonic() - began

    def test_a_child_that_the_interpreters_end_waits_for_gets_the_signal_too(self):
        for method, busy, least in (("fork", "idle", 2.4), ("spawn", "idle", 2.4), ("fork", "busy", 8)):
            with self.subTest(method=method, busy=busy), Job() as job:
                node = self.python_worker(job, 24, JOINED_AT_THE_END, method, busy)
                took = self.stop(job, node)
                self.assertGreater(took, least)  # a tenth of the grace, or a third of it
                self.assertLess(took, 23)

    def test_a_worker_that_saves_keeps_its_data_loader_and_its_programs(self):
        with Job() as job:
            node = self.python_worker(job, 20, SAVES_LONG, 3)
            self.stop(job, node)
            self.assertEqual((job.directory / "saved").read_text(), "[0, 0] 1")

    def test_a_killed_launcher_leaves_no_empty_folder(self):
        for user in users():
            with self.subTest(user=user), Job(user) as job:
                (job.directory / "torchelastic_other").mkdir()  # torchrun's, perhaps
                node = job.node(nnodes="1")
                job.round(0, 2)
                self.assertEqual(len(list(job.directory.glob("torchelastic_*"))), 2)
                node.kill()
                job.expect_gone()
                self.assertEqual([path.name for path in job.directory.glob("torchelastic_*")], ["torchelastic_other"])

    @again_if_late
    def test_sigint_reaches_the_workers_and_is_the_exit_code(self):
        with Job() as job:
            node = job.node(nnodes="1")
            job.round(0, 2)
            node.send_signal(signal.SIGINT)
            expect_soon(job, node, 128 + signal.SIGINT)
            job.expect_gone()

    def test_a_stop_is_told_in_a_few_plain_lines(self):
        for stop in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(stop=stop.name):
                self.tell_a_stop(stop)

    @again_if_late
    def tell_a_stop(self, stop):
        script = "import time, os; open(os.environ['ELASTIC_LOG'], 'a').write('start round=0\\n'); time.sleep(100)"
        with Job() as job:
            node = job.spawn("muster", "--nproc-per-node", 2, "--no-python", sys.executable, "-c", f"import signal; "
                             f"signal.signal(signal.SIGINT, signal.SIG_DFL); {script}")
            wait_for("workers", lambda: len(job.starts()) == 2)
            node.send_signal(stop)
            expect_soon(job, node, 128 + stop)
            said = node.err.read_text()
            self.assertIn(stop.name, said)
            self.assertLessEqual(len(said.splitlines()), 5, said)
            self.assertNotRegex(said, r"Traceback|[{}]")

    def test_the_launcher_is_gone_soon_after_its_workers(self):
        # torchrun once looked at its workers every 5 s.
        for file, code in (("done", 0), ("fail", 41)):
            with self.subTest(file=file):
                self.end_its_workers(file, code)

    @again_if_late
    def end_its_workers(self, file, code):
        with Job() as job:
            node = job.node(nnodes="1", worker=("--fail-on", "fail", 41, "the reason", "--until", "done"))
            job.round(0, 2)
            job.touch(file)
            expect_soon(job, node, code, 4)
            job.expect_gone()

    def test_sigint_reaches_the_program_that_a_shell_waits_for(self):
        # Shells put off their own end until the program's: without its share of the signal it would run out the grace.
        for shell in ("sh", "bash"):
            with self.subTest(shell=shell), Job() as job:
                inner = f"{WORKERS / 'elastic'} --until done; exit $?"
                node = job.spawn("muster", "--nproc-per-node", 2, "--shutdown-timeout", 120, "--no-python", shell, "-c",
                                 f"{shell} -c '{inner}'; exit $?")
                job.round(0, 2)
                node.send_signal(signal.SIGINT)
                job.expect_exit(node, 128 + signal.SIGINT)
                job.expect_gone()

    @again_if_late
    def test_a_hang_up_that_is_ignored_from_the_start_ends_nothing(self):
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does; the launcher inherits it
        try:
            with Job() as job:
                node = job.node(nnodes="1")
                job.round(0, 2)
                node.send_signal(signal.SIGHUP)
                node.terminate()
                expect_soon(job, node, 128 + signal.SIGTERM)
                job.expect_gone()
        finally:
            signal.signal(signal.SIGHUP, before)

    @again_if_late
    def test_a_second_signal_does_not_wait_for_the_grace(self):
        with Job() as job:
            node = job.node("--shutdown-timeout", 60, nnodes="1", worker=STUBBORN)
            job.round(0, 2)
            wait_for("grandchildren", lambda: len(job.grandchildren()) == 2)
            node.terminate()
            wait_for("the first signal's word", lambda: "SIGTERM" in node.err.read_text() or node.poll() is not None)
            self.assertIsNone(node.poll())
            node.terminate()
            expect_soon(job, node, 128 + signal.SIGTERM)
            job.expect_gone()

    def test_an_agent_killed_leaves_nothing(self):
        for user in users():
            with self.subTest(user=user), Job(user) as job:
                node = job.node(nnodes="1", worker=STUBBORN)
                job.round(0, 2)
                wait_for("grandchildren", lambda: len(job.grandchildren()) == 2)
                node.kill()
                node.wait()
                job.expect_gone()

    def test_an_agent_stopped_leaves_no_worker(self):
        """Unless nobody else can go on with the job (below). A daemon that is not stopped with it can, in a round of the same node."""
        for user, nnodes in itertools.product(users(), ("1:2", "1")):
            with self.subTest(user=user, nnodes=nnodes), Job(user) as job:
                if nnodes == "1":
                    job.daemon()
                node = job.node("--lease", 5, nnodes=nnodes, conf="last_call_timeout=1", worker=STUBBORN)
                starts = job.round(0, 2)
                wait_for("grandchildren", lambda: len(job.grandchildren()) == 2)
                workers = {line["pid"] for line in starts.values()} | set(job.grandchildren())
                os.kill(node.pid, signal.SIGSTOP)
                try:
                    wait_for("end of the workers", lambda: not workers & set(job.processes()))
                finally:
                    os.kill(node.pid, signal.SIGCONT)

    def test_a_stopped_launcher_of_one_node_keeps_its_workers_and_the_job(self):
        """As by Ctrl-Z, for longer than the lease and the lost timeout: nobody else could have gone on with the job."""
        for backend in (["--standalone"], ["--master-addr", "127.0.0.1", "--master-port", free_port()]):
            with self.subTest(backend=backend), Job() as job:
                node = job.spawn("muster", *backend, "--nproc-per-node", 2, "--lease", 1, "--rdzv-lost-timeout", 2, "--no-python",
                                 WORKERS / "elastic", "--until", "done")
                job.round(0, 2)
                os.kill(node.pid, signal.SIGSTOP)
                stopped_at = time.monotonic()
                wait_for("more than the lost timeout", lambda: time.monotonic() > stopped_at + 3)
                os.kill(node.pid, signal.SIGCONT)
                wait_for("a while awake", lambda: time.monotonic() > stopped_at + 4)
                job.finish()
                job.expect_exit(node, 0)
                self.assertEqual(len(job.starts()), 2, job.story())
                said = node.err.read_text()
                self.assertIn("this launcher stood still for ", said)
                self.assertNotIn("answer", said)
                job.expect_gone()

    def test_a_guardian_killed_ends_the_round_and_another_one_serves_the_next(self):
        with Job() as job:
            nodes = [job.node("--max-restarts", 2, "--shutdown-timeout", 1, worker=STUBBORN) for _ in range(2)]
            for number in range(2):
                starts = job.round(number, 4)
                wait_for("grandchildren", lambda: len(job.grandchildren()) == 4 * (number + 1))
                old = {line["pid"] for line in starts.values()} | set(job.grandchildren())
                guardian = job.parent(starts[0]["pid"])
                self.assertIn(job.parent(guardian), {node.pid for node in nodes})
                os.kill(guardian, signal.SIGKILL)
                following = job.round(number + 1, 4)
                self.assertEqual({line["restart"] for line in following.values()}, {number + 1})  # charged
                self.assertFalse(old & set(job.processes()))
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)
                self.assertRegex(node.err.read_text(), "round 0 ended: .*guardian process .* died.* the next round follows")
            job.expect_gone()

    def test_a_guardian_killed_with_no_restart_left_is_the_reports_first_failure(self):
        with Job() as job:
            node = job.node(nnodes="1", worker=STUBBORN)
            starts = job.round(0, 2)
            wait_for("grandchildren", lambda: len(job.grandchildren()) == 2)
            os.kill(job.parent(starts[0]["pid"]), signal.SIGKILL)
            job.expect_exit(node, 128 + signal.SIGKILL)
            report = without_times(node.err.read_text())
            self.assertRegex(report, r"first failure: node .* \(this host\) failed\n    the guardian process")
            self.assertNotIn("next round follows", report)
            job.expect_gone()

    @again_if_late
    def test_a_wrapper_without_exec_does_not_cost_its_program_the_grace(self):
        with Job() as job:
            node = wrapped(job, "--max-restarts", 1)
            first = job.round(0, 2)
            os.kill(first[0]["pid"], signal.SIGKILL)  # the wrapper exits 137, the round ends
            wait_for("saved state of the other worker", (job.directory / "saved.1.0").exists)
            job.round(1, 2)
            node.terminate()
            expect_soon(job, node, 128 + signal.SIGTERM, 20)  # its 300 short sleeps take a busy machine seconds
            for rank in range(2):
                self.assertEqual((job.directory / f"saved.{rank}.1").read_text(), "1\n")  # told once
            job.expect_gone()

    @again_if_late
    def test_what_a_wrapper_left_is_killed_at_the_end_of_the_grace(self):
        with Job() as job:
            node = wrapped(job, "--shutdown-timeout", 1, save="--ignore-term")
            job.round(0, 2)
            node.terminate()
            expect_soon(job, node, 128 + signal.SIGTERM)
            job.expect_gone()

    @again_if_late
    def test_a_signal_ends_the_lingering_for_others(self):
        with Job() as job:
            host = job.node("--lease", 60, nnodes="1", nproc=1)
            job.round(0, 1)
            spare = job.node("--lease", 60, nnodes="1", nproc=1)
            wait_for("parked spare", lambda: '"parked"' in status(job))
            os.kill(spare.pid, signal.SIGSTOP)  # it will not say that it has heard of the end
            job.finish()
            try:
                wait_for("end of the job", lambda: '"phase":"over"' in status(job))
            except OSError:  # it lingers for ten seconds
                raise Late(f"the host has gone\n{job.story()}") from None
            if host.poll() is not None:
                raise Late(f"the host has gone\n{job.story()}")
            host.terminate()
            expect_soon(job, host, 0)


def wrapped(job, *options, save='--save saved.$LOCAL_RANK.$MUSTER_ROUND 300'):
    """One node whose workers are shells that do not exec; the program under each saves its state when it is told to stop."""
    script = f'"$0" {save} --until done; exit $?'
    return job.spawn("muster", "--nproc-per-node", 2, *options, "--no-python", "sh", "-c", script, WORKERS / "elastic")


def status(job):
    return urllib.request.urlopen(f"http://127.0.0.1:{job.port}/status", timeout=60).read().decode()


if __name__ == "__main__":
    unittest.main(verbosity=2)
