"""muster status: once, as JSON, for a job that does not exist, and on a terminal that is left whole."""
import json
import os
import signal
import subprocess
import termios
import time
import unittest

from job import BIN, Job, wait_for
from terminal import ENTER, LEAVE, Screen

FAST = ("--lease", 5)


def status(job, *words, **extra):
    """Asked again where a busy machine's daemon has not answered within 5 s."""
    def asked():
        done = subprocess.run([BIN / "muster", "status", *map(str, words), "--rdzv-endpoint", f"127.0.0.1:{job.port}"],
                              capture_output=True, text=True, timeout=60, env=job.environment(**extra))
        return None if "the deadline passed" in done.stderr or ": no answer" in done.stderr else done
    return wait_for("answer of the daemon", asked)


def screen(job, *words, watch="--watch=0.1", **extra):
    return Screen(job, "status", *words, watch, **extra)


class Status(unittest.TestCase):
    def test_once_shows_the_only_job_with_its_nodes_and_json_is_the_page(self):
        with Job() as job:
            daemon = job.daemon()
            nodes = [job.node(*FAST) for _ in range(2)]
            job.round(0, 4)
            shown = status(job)
            self.assertEqual(shown.returncode, 0, shown.stderr)
            lines = shown.stdout.splitlines()
            self.assertTrue(lines[0].startswith(f"job {job.id}: running, round 0, 2 of 2 nodes"), shown.stdout)
            self.assertEqual(sum(line.split()[0] == os.uname().nodename for line in lines), 2, shown.stdout)
            page = json.loads(status(job, job.id, "--json").stdout)
            self.assertEqual([one["id"] for one in page["jobs"]], [job.id])
            self.assertGreater(page["jobs"][0]["goodput"]["wall_clock"], 0)
            for words in ((), ("--events",), ("--plot", job.directory / "none.svg")):
                unknown = status(job, "nosuch", *words)
                self.assertEqual((unknown.returncode, unknown.stdout), (1, ""), words)
                self.assertIn(f"no job 'nosuch'; jobs: {job.id}", unknown.stderr)
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)
            over = status(job, job.id)
            self.assertEqual((over.returncode, over.stdout), (1, ""))
            self.assertRegex(over.stderr, f"^muster status: job '{job.id}' does not run; the last that is known of it: 2.*Z job '{job.id}' .*--events")
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
                with self.subTest(end), screen(job) as seen:
                    seen.expect("no jobs")
                    self.assertTrue(seen.read().startswith(ENTER))
                    if end == "q":
                        seen.press(b"q")
                    else:
                        seen.process.send_signal(end)
                    self.assertEqual(seen.expect_whole(code), b"")

    def test_the_screen_ends_at_once_while_the_daemon_accepts_and_does_not_answer(self):
        with Job() as job:
            daemon = job.daemon()

            def time_of_its_end(end, code):
                with screen(job, watch="--watch") as seen:
                    seen.expect("no jobs")
                    daemon.send_signal(signal.SIGSTOP)
                    try:
                        seen.expect("no answer from 127.0.0.1:")
                        began = time.monotonic()
                        if end == "q":
                            seen.press(b"q")
                        else:
                            seen.process.send_signal(end)
                        seen.expect_whole(code)
                        return time.monotonic() - began
                    finally:
                        daemon.send_signal(signal.SIGCONT)
            for end, code in ((signal.SIGINT, 130), ("q", 0)):
                with self.subTest(end):  # One answer's deadline is 2 s; a busy machine is not late each time.
                    self.assertTrue(any(time_of_its_end(end, code) < 1.5 for _ in range(5)))

    def test_a_stopped_screen_gives_the_terminal_back_and_draws_again_when_it_continues(self):
        with Job() as job, screen(job) as seen:
            job.daemon()
            seen.expect("no jobs")
            seen.process.send_signal(signal.SIGTSTP)
            wait_for("stopped process", lambda: os.waitpid(seen.process.pid, os.WUNTRACED | os.WNOHANG)[0])
            self.assertTrue(seen.read().endswith(LEAVE))
            self.assertEqual(termios.tcgetattr(seen.slave), seen.before)
            seen.draw_again_after(lambda: seen.process.send_signal(signal.SIGCONT))
            seen.expect("no jobs")
            seen.resize(10, 5)
            seen.expect("no...")
            seen.press(b"q")
            seen.expect_whole(0)

    def test_a_daemon_that_is_gone_is_told_with_the_time_and_the_screen_goes_on(self):
        with Job() as job:
            daemon = job.daemon()
            with screen(job, NO_COLOR="1") as seen:
                seen.expect("no jobs")
                daemon.terminate()
                job.expect_exit(daemon, 0)
                seen.expect("no answer from 127.0.0.1:")
                seen.expect_match(" for [1-9][0-9]* s: ")
                again = job.daemon()
                node = job.node(*FAST, nnodes="1")
                seen.expect(f"job {job.id}: running")
                self.assertNotRegex(seen.bytes, rb"\x1b\[[0-9]+m")  # no color
                job.finish()
                job.expect_exit(node, 0)
                seen.process.send_signal(signal.SIGINT)
                seen.expect_whole(130)
                again.terminate()


if __name__ == "__main__":
    unittest.main()
