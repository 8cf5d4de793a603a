"""muster status: once, as JSON, for a job that does not exist, and on a terminal that is left whole."""
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
import unittest

from job import BIN, Job, wait_for

FAST = ("--lease", 2)
ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?25h\x1b[?1049l"


def status(job, *words, **extra):
    return subprocess.run([BIN / "muster", "status", *map(str, words), "--rdzv-endpoint", f"127.0.0.1:{job.port}"],
                          capture_output=True, text=True, timeout=30, env=job.environment(**extra))


class Screen:
    """`muster status --watch` on a terminal of its own, 80x24."""

    def __init__(self, job, *words, watch="--watch=0.1", **extra):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.bytes = b""

        def own_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        self.process = subprocess.Popen([BIN / "muster", "status", *words, watch, "--rdzv-endpoint", f"127.0.0.1:{job.port}"],
                                        stdin=slave, stdout=slave, stderr=slave, preexec_fn=own_terminal,
                                        env=job.environment(TERM="xterm", **extra))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)

    def read(self):
        while select.select([self.master], [], [], 0)[0]:
            self.bytes += os.read(self.master, 65536)
        return self.bytes

    def expect(self, text):
        wait_for(f"{text!r} on the screen, which has {self.bytes[-2000:]!r}", lambda: text in self.read())

    def expect_whole(self, code, seconds=30):
        deadline = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < deadline:
            self.read()
            time.sleep(0.005)  # between two looks
        self.assert_code = self.process.poll()
        assert self.assert_code == code, self.assert_code
        assert self.read().endswith(LEAVE), self.bytes[-200:]
        assert termios.tcgetattr(self.slave) == self.before


class Status(unittest.TestCase):
    def test_once_shows_the_only_job_with_its_nodes_and_json_is_the_page(self):
        with Job() as job:
            daemon = job.daemon()
            nodes = [job.node(*FAST) for _ in range(2)]
            job.round(0, 4)
            shown = status(job)
            self.assertEqual(shown.returncode, 0, shown.stderr)
            lines = shown.stdout.splitlines()
            self.assertTrue(lines[0].startswith(f"job {job.id}: running, round 0, 2 of 2 nodes in the round"), shown.stdout)
            self.assertEqual(sum(line.split()[0] == os.uname().nodename for line in lines), 2, shown.stdout)
            page = json.loads(status(job, job.id, "--json").stdout)
            self.assertEqual([one["id"] for one in page["jobs"]], [job.id])
            self.assertGreater(page["jobs"][0]["goodput"]["wall_clock"], 0)
            unknown = status(job, "nosuch")
            self.assertEqual(unknown.returncode, 1)
            self.assertIn(f"no job 'nosuch'; jobs: {job.id}", unknown.stderr)
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)
            daemon.terminate()
            job.expect_exit(daemon, 0)
            gone = status(job)
            self.assertEqual(gone.returncode, 1)
            self.assertIn(f"127.0.0.1:{job.port}: ", gone.stderr)

    def test_wrong_words_are_refused_with_what_is_accepted(self):
        with Job() as job:
            for words, told in ((("--watch=never",), "a number of seconds from 0.1 to 3600"), (("a", "b"), "one job at a time"),
                                (("--once", "--watch"), "contradict each other"), (("--wach",), "unknown option '--wach'")):
                with self.subTest(words):
                    wrong = status(job, *words)
                    self.assertEqual(wrong.returncode, 2)
                    self.assertIn(told, wrong.stderr)

    def test_the_screen_is_left_whole_by_signals_and_by_the_key(self):
        with Job() as job:
            job.daemon()
            for end, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), ("q", 0)):
                with self.subTest(end), Screen(job) as screen:
                    screen.expect(b"no jobs")
                    self.assertTrue(screen.read().startswith(ENTER))
                    if end == "q":
                        os.write(screen.master, b"q")
                    else:
                        screen.process.send_signal(end)
                    screen.expect_whole(code)

    def test_the_screen_ends_while_the_daemon_accepts_and_does_not_answer(self):
        with Job() as job:
            daemon = job.daemon()
            for end, code in ((signal.SIGINT, 130), ("q", 0)):
                with self.subTest(end), Screen(job, watch="--watch") as screen:
                    screen.expect(b"no jobs")
                    daemon.send_signal(signal.SIGSTOP)
                    try:
                        screen.expect(b"no answer from 127.0.0.1:")
                        if end == "q":
                            os.write(screen.master, b"q")
                        else:
                            screen.process.send_signal(end)
                        screen.expect_whole(code, 3)  # One answer's deadline is 2 s.
                    finally:
                        daemon.send_signal(signal.SIGCONT)

    def test_a_stopped_screen_gives_the_terminal_back_and_draws_again_when_it_continues(self):
        with Job() as job, Screen(job) as screen:
            job.daemon()
            screen.expect(b"no jobs")
            screen.process.send_signal(signal.SIGTSTP)
            wait_for("stopped process", lambda: os.waitpid(screen.process.pid, os.WUNTRACED | os.WNOHANG)[0])
            self.assertTrue(screen.read().endswith(LEAVE))
            self.assertEqual(termios.tcgetattr(screen.slave), screen.before)
            before = len(screen.bytes)
            screen.process.send_signal(signal.SIGCONT)
            wait_for("new drawing", lambda: b"no jobs" in screen.read()[before:])
            fcntl.ioctl(screen.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 5, 0, 0))
            screen.process.send_signal(signal.SIGWINCH)
            wait_for("narrow drawing", lambda: b"no..." in screen.read()[before:])
            os.write(screen.master, b"q")
            screen.expect_whole(0)

    def test_a_daemon_that_is_gone_is_told_with_the_time_and_the_screen_goes_on(self):
        with Job() as job:
            daemon = job.daemon()
            with Screen(job, NO_COLOR="1") as screen:
                screen.expect(b"no jobs")
                daemon.terminate()
                job.expect_exit(daemon, 0)
                screen.expect(b"no answer from 127.0.0.1:")
                screen.expect(b" for 1 s: ")
                before = len(screen.read())
                again = job.daemon()
                node = job.node(*FAST, nnodes="1")
                wait_for("job on the screen", lambda: f"job {job.id}: running".encode() in screen.read()[before:])
                self.assertNotRegex(screen.bytes, rb"\x1b\[[0-9]+m")  # no color
                job.finish()
                job.expect_exit(node, 0)
                screen.process.send_signal(signal.SIGINT)
                screen.expect_whole(130)
                again.terminate()


if __name__ == "__main__":
    unittest.main()
