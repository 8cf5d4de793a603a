"""Workers that fail, and how the job goes on or ends."""
import contextlib
import os
import pty
import signal
import subprocess
import unittest

from job import BIN, NOBODY, Job, wait_for, without_times
from log_views import late_ones


@contextlib.contextmanager
def full_pipe():
    """The write end of a pipe that takes nothing more, and that nobody reads."""
    out, into = os.pipe()
    os.set_blocking(into, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(into, b"#" * 4096)
    os.set_blocking(into, True)
    try:
        yield into
    finally:
        os.close(out)
        os.close(into)


class Workers(unittest.TestCase):
    def test_output_that_the_console_never_took_is_told_of(self):
        with Job() as job:
            unread, console = os.pipe()
            try:
                run = subprocess.run([BIN / "muster", "--tee", "1", "--log-dir", job.directory / "logs", "--no-python",
                                      "seq", "100000"], stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.PIPE,
                                     text=True, env=job.environment(), timeout=60)
            finally:
                os.close(unread)
                os.close(console)
            self.assertEqual(run.returncode, 0)
            self.assertRegex(run.stderr, "did not accept all output of the workers")

    def test_a_crowded_terminal_shows_equal_lines_once(self):
        program = ["--nproc-per-node", "10", "--no-python", "sh", "-c",
                   "test -t 1 && test -t 2 && echo a terminal; echo I am $RANK >&2"]
        with Job() as job:
            def shown(*options):
                ours, console = pty.openpty()
                run = subprocess.Popen([BIN / "muster", *options, *program], stdin=subprocess.DEVNULL, stdout=console,
                                       stderr=console, env=job.environment())
                os.close(console)
                text = b""
                with contextlib.suppress(OSError):  # EIO is the end of a terminal
                    while chunk := os.read(ours, 65536):
                        text += chunk
                os.close(ours)
                self.assertEqual(run.wait(60), 0)
                return text.decode().replace("\r\n", "\n")

            for _ in range(5):
                folded = shown()
                if folded.count("]: a terminal\n") == 1:  # A rank of a busy machine that comes a second later is shown again.
                    break
            self.assertEqual(folded.count("]: a terminal\n"), 1, folded)
            self.assertRegex(folded, r"\[same from .*10( ranks of this node| in all)\]")
            for rank in range(10):
                self.assertIn(f"[{rank}]: I am {rank}\n", folded)
            plain = shown("--console", "all")
            self.assertEqual(plain.count("a terminal\n"), 10, plain)
            self.assertNotIn("same from", plain)

    def test_the_logs_of_all_nodes_are_one_stream(self):
        with Job() as job:
            logs = job.directory / "logs"
            program = ["--nnodes", 2, "--nproc-per-node", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint",
                       f"127.0.0.1:{job.port}", "--rdzv-id", job.id, "-r", 3, "--log-dir", logs, "--no-python", "sh", "-c",
                       # All have said two lines when rank 0 says its last one. Then one after the other, farther apart than a busy
                       # launcher may be late: it keeps the times at which it has read them.
                       "touch done.-1; echo loading; echo I am $RANK >&2; touch begun.$RANK; for rank in 0 1 2 3; do "
                       "until test -e begun.$rank; do sleep 0.02; done; done; until test -e done.$((RANK - 1)); do sleep 0.02; done;"
                       "sleep 4; echo last of $RANK; touch done.$RANK"]
            nodes = [job.spawn("muster", *program) for _ in range(2)]
            for node in nodes:
                job.expect_exit(node, 0)

            def shown(*options):
                run = subprocess.run([BIN / "muster", "logs", logs, *map(str, options)], capture_output=True, text=True, timeout=60,
                                     env=job.environment())
                self.assertEqual((run.returncode, run.stderr), (0, ""))
                return run.stdout.splitlines()

            every = shown("--all")
            self.assertEqual(every[-4:], [f"[{rank}]: last of {rank}" for rank in range(4)])
            self.assertEqual(sorted(every[:-4]),
                             sorted(line for rank in range(4) for line in (f"[{rank}]: I am {rank}", f"[{rank}]: loading")))
            folded = shown("--stream", "out", "--rank", "0-2", "--round=last")
            late = late_ones(shown("--stream", "out", "--rank", "0-2", "-i", "loading", "--times"))  # of a busy machine
            self.assertEqual(sum(line.endswith("]: loading") for line in folded), 1 + late, folded)
            if late == 0:
                self.assertRegex("\n".join(folded), r"\[same from all 3 ranks\]")
            self.assertEqual(shown("-n", 1), ["[3]: last of 3"])
            with open("/dev/full", "w") as full:
                run = subprocess.run([BIN / "muster", "logs", logs], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
                                     env=job.environment())
            self.assertEqual(run.returncode, 70)
            self.assertIn("stdout takes no more", run.stderr)
            self.assertRegex(shown("--times", "-i", "of 2$")[0], r"^\d\d:\d\d:\d\d\.\d{3} \[2\]: last of 2$")

    def test_the_logs_of_a_running_job_are_followed(self):
        with Job() as job:
            logs = job.directory / "logs"
            go_on = job.directory / "go-on"
            node = job.spawn("muster", "--nproc-per-node", 2, "-r", 3, "--log-dir", logs, "--no-python", "sh", "-c",
                              f"echo begun; until test -e '{go_on}'; do sleep 0.05; done; echo more of $RANK")
            wait_for("the logs", lambda: len(list(logs.glob("**/stdout.log"))) == 2)
            with subprocess.Popen([BIN / "muster", "logs", "-f", "--all", logs], stdout=subprocess.PIPE, text=True,
                                  env=job.environment()) as view:
                begun = {view.stdout.readline() for _ in range(2)}
                self.assertEqual(begun, {"[0]: begun\n", "[1]: begun\n"})
                go_on.touch()
                self.assertEqual({view.stdout.readline() for _ in range(2)}, {"[0]: more of 0\n", "[1]: more of 1\n"})
                view.send_signal(signal.SIGINT)
                view.wait(60)
            job.expect_exit(node, 0)

    def test_bad_words_for_logs_are_named(self):
        with Job() as job:
            for words, message in ((["/nonexistent"], "no folder"), ([], "the folder is missing"), ([job.directory], "-r 3"),
                                   (["--rank", "x", job.directory], "no list of ranks"),
                                   (["-i", "(", job.directory], "no regular expression"),
                                   (["--since", "1y", job.directory], "no time"),
                                   (["--round", "x", job.directory], "nor last"),
                                   (["--stream", "both", job.directory], "neither out nor err"),
                                   (["-n", "0", job.directory], "no number of lines"),
                                   (["--folow", job.directory], "unknown option '--folow'"),
                                   ([job.directory, "--rank"], "--rank: a value is missing (see muster logs --help)")):
                run = subprocess.run([BIN / "muster", "logs", *words], capture_output=True, text=True, timeout=60,
                                     env=job.environment())
                self.assertEqual((run.returncode, run.stdout), (2, ""), words)
                self.assertIn(message, run.stderr)

    def test_a_killed_worker_restarts_the_round_on_both_nodes(self):
        with Job() as job:
            nodes = [job.node("--max-restarts", 1) for _ in range(2)]
            first = job.round(0, 4)
            os.kill(first[3]["pid"], signal.SIGKILL)
            second = job.round(1, 4)
            self.assertEqual({line["restart"] for line in second.values()}, {1})
            self.assertNotEqual(first[0]["master"], second[0]["master"])  # a fresh store
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)
            job.expect_gone()

    def test_the_budget_is_the_jobs_and_the_report_is_on_every_node(self):
        with Job() as job:
            nodes = [job.node("--max-restarts", 1) for _ in range(2)]
            os.kill(job.round(0, 4)[0]["pid"], signal.SIGKILL)
            os.kill(job.round(1, 4)[3]["pid"], signal.SIGSEGV)
            for node in nodes:
                job.expect_exit(node, 128 + signal.SIGSEGV)
                report = node.err.read_text()
                self.assertIn("SIGSEGV", report)
                self.assertRegex(report, r"rank\D*3")
            job.expect_gone()

    def test_an_exit_code_becomes_the_launchers(self):
        with Job() as job:
            nodes = [job.node(worker=("--fail-on", "fail", 41, "the reason", "--until", "done")) for _ in range(2)]
            job.round(0, 4)
            job.touch("fail")
            for node in nodes:
                job.expect_exit(node, 41)
                self.assertIn("the reason", node.err.read_text())

    def test_a_worker_that_ignores_sigterm_is_killed_after_the_grace(self):
        with Job() as job:
            nodes = [job.node("--max-restarts", 1, "--shutdown-timeout", 1,
                              worker=("--ignore-term", "--until", "done")) for _ in range(2)]
            os.kill(job.round(0, 4)[1]["pid"], signal.SIGKILL)
            job.round(1, 4)
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)

    def test_grandchildren_of_an_ended_round_are_gone_before_the_next_one(self):
        with Job() as job:
            job.node("--max-restarts", 1, nnodes="1", worker=("--grandchild", "--until", "done"))
            first = job.round(0, 2)
            old = set(wait_for("grandchildren", lambda: len(job.grandchildren()) == 2 and job.grandchildren()))
            os.kill(first[0]["pid"], signal.SIGKILL)
            job.round(1, 2)
            self.assertFalse(old & set(job.processes()))
            job.finish()
            job.expect_exit(job.launchers[0], 0)
            job.expect_gone()

    def test_a_finished_node_takes_part_when_the_round_fails_elsewhere(self):
        with Job() as job:
            early = job.node("--max-restarts", 1, worker=("--until", "early"))
            late = job.node("--max-restarts", 1)
            starts = job.round(0, 4)
            late_pids = [line["pid"] for line in starts.values() if job.parent(job.parent(line["pid"])) == late.pid]
            job.touch("early")
            early_pids = {line["pid"] for line in starts.values()} - set(late_pids)
            wait_for("end of the early node's workers", lambda: not early_pids & set(job.processes()))
            self.assertIsNone(early.poll())  # the exit barrier
            os.kill(late_pids[0], signal.SIGKILL)
            job.round(1, 4)
            job.finish()
            job.expect_exit(early, 0)
            job.expect_exit(late, 0)


    def test_a_stderr_that_nobody_reads_stops_nothing(self):
        with Job() as job, full_pipe() as stderr:
            # An agent that waited for its stderr would neither start a round nor feed its guardian.
            node = job.node("--max-restarts", 1, "--lease", 5, "--log-level", "debug", nnodes="1", stderr=stderr)
            os.kill(job.round(0, 2)[0]["pid"], signal.SIGKILL)
            job.round(1, 2)
            job.finish()
            job.expect_exit(node, 0)
            self.assertEqual(len(job.starts()), 4)  # two rounds

    def test_a_worker_that_cannot_be_forked_is_70_and_a_sentence_and_the_other_node_goes_on_uncharged(self):
        with Job(NOBODY if os.getuid() == 0 else None) as job:  # root has no limit of processes
            nodes = [job.node("--max-restarts", 1, nnodes="1:2", conf="last_call_timeout=15") for _ in range(2)]  # both meet on a busy machine
            starts = job.round(0, 4)
            guardian = job.parent(starts[3]["pid"])
            limited = next(node for node in nodes if node.pid == job.parent(guardian))
            other = next(node for node in nodes if node is not limited)
            subprocess.run([*job.as_user(), "prlimit", "--pid", str(guardian), "--nproc=0:0"], check=True)
            os.kill(starts[3]["pid"], signal.SIGKILL)
            job.expect_exit(limited, 70)
            self.assertRegex(limited.err.read_text(), r"cannot start its workers: local rank \d not started: fork beyond RLIMIT_NPROC = 0 \(ulimit -u\) "
                                                      r"of this user: .*; raise that limit .*, or start fewer workers here\n")
            job.round(2, 2)
            job.finish()
            job.expect_exit(other, 0)
            self.assertEqual({line["restart"] for line in job.starts(round=2)}, {1})  # the killed worker's, and no more
            job.expect_gone()

    def test_a_log_directory_that_cannot_be_made_is_told_before_any_worker_starts(self):
        with Job() as job:
            (job.directory / "file").touch()
            node = job.node("--log-dir", job.directory / "file" / "logs", nnodes="1")
            job.expect_exit(node, 78)
            self.assertRegex(without_times(node.err.read_text()), r"\Amuster: .*file/logs.*\n\Z")
            self.assertEqual(job.starts(), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
