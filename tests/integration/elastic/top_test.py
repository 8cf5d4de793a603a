"""muster top on a real terminal: a real job, keys, sizes, signals, a daemon that goes and comes, and 10,000 nodes."""
import contextlib
import fcntl
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
import unittest

from job import BIN, Job, as_user, wait_for
from steps_test import WORKER
from terminal import LEAVE, Screen

FAST = ("--lease", 5)
ESCAPE, ENTER, DOWN = b"\x1b", b"\r", b"\x1b[B"


def top(job, *words, **extra):
    return Screen(job, "top", *words, **extra)


def stepping_job(job):
    """One node of two workers, which report the step that is in the file."""
    script = job.directory / "worker.py"
    script.write_text(WORKER)
    node = job.spawn("muster", "--nnodes", 1, "--nproc-per-node", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint",
                     f"127.0.0.1:{job.port}", "--rdzv-id", job.id, *FAST, "--no-python", sys.executable, script, job.directory)
    for rank in (0, 1):
        wait_for("start of a worker", (job.directory / f"started-{rank}-0").exists)
    return node


def job_with_logs(job):
    """One worker, which goes when there is a file "worker.go"."""
    return job.spawn("muster", "--nnodes", 1, "--nproc-per-node", 1, "--rdzv-backend", "c10d", "--rdzv-endpoint",
                     f"127.0.0.1:{job.port}", "--rdzv-id", job.id, *FAST, "--log-dir", job.directory / "logs", "-r", 3, "--no-python",
                     "sh", "-c", 'echo "rank $RANK is here"; while ! test -e "$READY.go"; do sleep 0.05; done',
                     READY=str(job.directory / "worker"))


def show_logs(seen):
    """From the screen of job_with_logs() to its worker's line."""
    seen.expect("> " + os.uname().nodename)
    seen.press(b"l")
    wait_for("the worker's line", lambda: b"[0]: rank 0 is here" in seen.read())


class ManyNodes(threading.Thread):
    """Answers GET /status as a daemon with one job of 10,000 healthy nodes does. On each page a sixtieth of them or more have another
    GPU use: at one page a second all change once a minute."""

    def __init__(self, port, nodes=10_000, gpus=8):
        super().__init__(daemon=True)
        self.pages = []
        for turn in range(5):
            rows = [{"connected": True, "group_rank": i, "host": f"gpu{i:05}", "pid": 4711 + i, "place": "running",
                     "rank_base": 8 * i, "role": "default", "silent_ms": (turn * 1000 + 37 * i) % 2500, "slots": 8,
                     "gpus": [{"index": gpu, "busy_percent": (i + gpu + (i % 60 < turn)) % 101} for gpu in range(gpus)]}
                    for i in range(nodes)]
            page = {"auth": "none", "jobs": [{"id": "large", "phase": "running", "round": 1, "restarts_used": 0, "restarts_max": 3,
                                              "nodes_min": nodes, "nodes_max": nodes, "step": 1000 + turn, "waiting_for": "",
                                              "goodput": {"text": "92.4 % of 192 min trained"}, "nodes": rows}]}
            body = json.dumps(page, separators=(",", ":"), sort_keys=True).encode()
            self.pages.append(b"HTTP/1.1 200 OK\r\nServer: muster\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        self.answered = 0
        self.socket = socket.create_server(("127.0.0.1", port))

    def run(self):
        while True:
            try:
                peer = self.socket.accept()[0]
            except OSError:
                return
            with peer, contextlib.suppress(OSError):  # one that was not answered within 2 s has gone
                question = b""
                while b"\r\n\r\n" not in question and (piece := peer.recv(4096)):
                    question += piece
                peer.sendall(self.pages[self.answered % len(self.pages)])
                self.answered += 1


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fill(seen, server):
    """The terminal takes no more (Ctrl-S), and pages wait that cannot be drawn."""
    seen.press(b"\x13")
    begin = {}  # Each page differs from the one before: how many were answered when so much had been drawn.
    wait_for("pages that cannot be drawn", lambda: server.answered >= begin.setdefault(len(seen.read()), server.answered) + 4)


class Top(unittest.TestCase):
    def test_a_job_its_nodes_and_its_steps_and_the_keys(self):
        with Job() as job:
            job.daemon()
            node = stepping_job(job)
            host = os.uname().nodename
            with top(job) as seen:
                seen.expect(f"job {job.id}: running, round 0, 1 of 1 nodes")
                seen.expect("NODE")
                seen.expect("> " + host)
                (job.directory / "step").write_text("10")
                seen.expect("step 10,")
                seen.press(b"/nosuchhost")
                seen.expect("/nosuchhost_")
                seen.press(ENTER)
                seen.expect("0-0 of 0 with 'nosuchhost' (esc: all 1)")
                seen.expect_gone("> " + host)
                seen.press(ESCAPE)
                seen.expect("1-1 of 1")
                seen.press(DOWN)
                seen.expect("> " + host)
                seen.press(ENTER)
                seen.expect(f"node {host} (pid ")
                seen.expect("ranks: 0-1 (2 in all)")
                seen.press(ESCAPE)
                seen.expect(f"job {job.id}: running")
                seen.press(ESCAPE)
                seen.expect(f"1 job at 127.0.0.1:{job.port}")
                seen.press(b"?")
                seen.expect("Any key closes this help.")
                seen.press(b"x")
                seen.expect(f"> {job.id}")
                seen.resize(12, 40)
                seen.expect("1 job at")
                seen.resize(3, 20)
                seen.expect("1 job at 127.0.0....\n> ")
                seen.press(b"\x0c\x1b[1;5C")  # Ctrl-L, and a key that is none
                seen.press(b"q")
                self.assertEqual(seen.expect_whole(0), b"")
            (job.directory / "done").touch()
            job.expect_exit(node, 0)

    def test_the_terminal_is_whole_after_each_end_and_without_color_no_color_is_written(self):
        with Job() as job:
            daemon = job.daemon()
            for end, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (b"\x03", 130), (b"q", 0)):
                with self.subTest(end), top(job, NO_COLOR="1") as seen:
                    seen.expect("no jobs at")
                    if isinstance(end, bytes):
                        seen.press(end)
                    else:
                        seen.process.send_signal(end)
                    self.assertEqual(seen.expect_whole(code), b"")
                    self.assertNotRegex(seen.bytes.replace(LEAVE, b""), rb"\x1b\[[0-9]+m")
            with top(job) as seen:  # The daemon is killed, and the person leaves while nobody answers.
                seen.expect("no jobs at")
                daemon.kill()
                daemon.wait()
                seen.expect("no answer from 127.0.0.1:")
                seen.press(b"q")
                seen.expect_whole(0)

    @unittest.skipUnless(os.getuid() == 0 or os.environ.get("CI"), "needs root, which may become an unused user")
    def test_a_limit_of_processes_is_named_and_the_terminal_is_whole(self):
        user = 400_000 + os.getpid()  # of which no process exists
        before = ("prlimit", "--nproc=1:1", *as_user(user))
        with Job() as job, top(job, columns=250, by=before, MUSTER_KEY="the key of the test") as seen:
            seen.expect("start thread muster-status: ")
            seen.expect("RLIMIT_NPROC = 1 (ulimit -u)")
            seen.press(b"q")
            seen.expect_whole(0)

    def test_a_terminal_that_takes_nothing_holds_up_no_signal(self):
        with Job() as job, top(job) as seen:
            seen.expect("no answer from 127.0.0.1:")
            server = ManyNodes(job.port, nodes=100)
            server.start()
            seen.expect("of 100 ")
            fill(seen, server)
            seen.process.terminate()
            seen.expect_whole(143)
            server.socket.close()

    def test_a_terminal_that_another_program_made_non_blocking_is_waited_for(self):
        with Job() as job, top(job) as seen:
            seen.expect("no answer from 127.0.0.1:")
            server = ManyNodes(job.port, nodes=100)
            server.start()
            seen.expect("of 100 ")
            os.set_blocking(seen.slave, False)
            fill(seen, server)
            seen.press(b"\x11q")  # Ctrl-Q
            seen.expect_whole(0)
            server.socket.close()

    def test_a_terminal_that_takes_nothing_is_whole_after_q_and_a_signal(self):
        with Job() as job, top(job) as seen:
            job.daemon()
            seen.expect("no jobs at")
            seen.press(b"\x13q")  # Ctrl-S
            wait_for("the key that was read", lambda: fcntl.ioctl(seen.slave, termios.FIONREAD, b"....") == bytes(4))
            seen.process.terminate()
            seen.expect_whole(0, 143)  # the signal may be there before the key has come through

    def test_a_signal_ends_it_in_the_background_too(self):
        with Job() as job:
            job.daemon()
            background = ("sh", "-c", 'set -m; "$@" </dev/null & echo $! >pid; wait $!', "sh")
            with Screen(job, "status", "--watch", by=background) as seen:
                seen.expect("no jobs")
                pid = wait_for("its number", lambda: (file := job.directory / "pid").exists() and file.read_text())
                seen.press(b"\x13")  # Ctrl-S
                os.kill(int(pid), signal.SIGTERM)
                seen.expect_whole(143)

    def test_ctrl_z_gives_the_terminal_back_and_fg_draws_again(self):
        with Job() as job, top(job) as seen:
            job.daemon()
            seen.expect("no jobs at")
            seen.press(b"\x1a")
            wait_for("stopped process", lambda: os.waitpid(seen.process.pid, os.WUNTRACED | os.WNOHANG)[0])
            self.assertTrue(seen.read().endswith(LEAVE))
            self.assertEqual(termios.tcgetattr(seen.slave), seen.before)
            seen.draw_again_after(lambda: seen.process.send_signal(signal.SIGCONT))
            seen.expect("no jobs at")
            seen.press(b"q")
            seen.expect_whole(0)

    def test_a_daemon_that_is_away_is_told_with_the_time_and_the_screen_goes_on(self):
        with Job() as job, top(job) as seen:
            seen.expect("no answer from 127.0.0.1:")  # It may be started later.
            daemon = job.daemon()
            seen.expect("no jobs at")
            daemon.send_signal(signal.SIGSTOP)  # Accepts, and does not answer.
            try:
                seen.expect("no answer from 127.0.0.1:")
                seen.press(b"?")
                seen.expect("Any key closes this help.")  # Keys do not wait for the daemon.
                seen.press(b"x")
                seen.expect_match(" for ([4-9]|[1-9][0-9]+) s: ")
            finally:
                daemon.send_signal(signal.SIGCONT)
            seen.expect_gone("no answer")
            node = job.node(*FAST, nnodes="1")
            seen.expect(f"job {job.id}: running")
            job.finish()
            job.expect_exit(node, 0)
            seen.press(b"q")
            seen.expect_whole(0)

    def test_l_follows_the_logs_of_a_node_and_ctrl_c_comes_back(self):
        with Job() as job:
            job.daemon()
            node = job_with_logs(job)
            (job.directory / job.id).mkdir()  # It is the job that is followed, and not this folder.
            with top(job) as seen:
                show_logs(seen)
                self.assertEqual(termios.tcgetattr(seen.slave), seen.before)
                seen.draw_again_after(lambda: seen.press(b"\x03"))  # It ends muster logs alone.
                show_logs(seen)
                (job.directory / "worker.go").touch()
                job.expect_exit(node, 0)
                wait_for("the end of muster logs", lambda: b"-- Enter: back --" in seen.read())
                self.assertIn(b"the job is over", seen.bytes)
                seen.draw_again_after(lambda: seen.press(b"\n"))
                seen.expect("no jobs at")
                seen.press(b"q")
                seen.expect_whole(0)

    def test_a_signal_ends_it_while_the_logs_are_shown_and_the_viewer_with_it(self):
        with Job() as job:
            job.daemon()
            node = job_with_logs(job)
            for end, code in ((signal.SIGTERM, 143), (signal.SIGHUP, 129)):
                with self.subTest(end), top(job) as seen:
                    show_logs(seen)
                    viewer, = pathlib.Path(f"/proc/{seen.process.pid}/task/{seen.process.pid}/children").read_text().split()
                    seen.process.send_signal(end)
                    seen.expect_whole(code)
                    self.assertFalse(pathlib.Path("/proc", viewer).exists())
            with top(job) as seen:
                seen.expect("> " + os.uname().nodename)
                seen.press(b"e")
                wait_for("what happened to the node", lambda: b"-- Enter: back --" in seen.read())
                self.assertIn(f"Z job '{job.id}': ".encode(), seen.bytes)
                seen.draw_again_after(lambda: seen.press(b"\n"))
                seen.expect("> " + os.uname().nodename)
                seen.press(b"p")
                wait_for("the frames of the worker", lambda: b"-- Enter: back --" in seen.read())
                self.assertRegex(seen.bytes, rb"rank 0 on \S+ \(pid \d+\):\s+\S")
                seen.draw_again_after(lambda: seen.press(b"\n"))
            with top(job) as seen:  # Also where it waits for Enter, which a person pressed too early.
                show_logs(seen)
                seen.press(b"\n")
                (job.directory / "worker.go").touch()
                job.expect_exit(node, 0)
                wait_for("the end of muster logs", lambda: b"-- Enter: back --" in seen.read())
                seen.process.send_signal(signal.SIGTERM)
                seen.expect_whole(143)

    def test_a_job_that_does_not_exist_is_an_error_that_names_those_that_do(self):
        with Job() as job:
            job.daemon()
            node = job.node(*FAST, nnodes="1")
            job.round(0, 2)
            with top(job, "nosuch") as seen:
                self.assertEqual(seen.expect_whole(1).strip().decode(), f"muster top: no job 'nosuch'; jobs: {job.id}")
            for extra, words in (({"TERM": "dumb"}, ()), ({}, ("--once",))):
                with top(job, *words, **extra) as seen:  # As text, once, without any control sequence.
                    self.assertEqual(seen.process.wait(timeout=60), 0)
                    wait_for("text", lambda: b"NODE" in seen.read())
                    self.assertNotIn(b"\x1b", seen.bytes)
            wrong = subprocess.run([BIN / "muster", "top", "--watch"], capture_output=True, text=True, timeout=60, env=job.environment())
            self.assertEqual((wrong.returncode, "unknown option '--watch'" in wrong.stderr), (2, True))
            job.finish()
            job.expect_exit(node, 0)

    def test_10000_nodes_cost_little(self):
        with Job() as job:
            server = ManyNodes(job.port)
            server.start()
            try:
                with top(job, rows=60, columns=200) as seen:
                    seen.expect_match("1-5[5-6] of 10000")
                    for _ in range(4):
                        begin, cpu, size = server.answered, cpu_seconds(seen.process.pid), len(seen.read())
                        wait_for("ten pages", lambda: seen.read() and server.answered >= begin + 10)
                        pages = server.answered - begin
                        cpu = (cpu_seconds(seen.process.pid) - cpu) / pages
                        size = (len(seen.read()) - size) / pages
                        print(f"10,000 nodes: {100 * cpu:.2f} % of a core, {size:.0f} bytes/s", file=sys.stderr)
                        if cpu < 0.03 and 0 < size < 4096:  # A busy machine may count more once.
                            break
                    self.assertGreater(size, 0)
                    self.assertLess(size, 4096)
                    self.assertLess(cpu, 0.03)  # A whole parse of each page would be more. Alone on a host it is below 0.01.
                    seen.press(b"G")
                    seen.expect("gpu09999")
                    seen.press(b"q")
                    seen.expect_whole(0)
            finally:
                server.socket.close()


if __name__ == "__main__":
    unittest.main()
