"""A limit on file sizes (ulimit -f) is met as a full disk is: what cannot be written is told with the limit, and nobody dies."""
import contextlib
import os
import re
import signal
import subprocess
import unittest
import urllib.error
import urllib.request

from job import BIN, Job, wait_for

REMEDY = "raise ulimit -f (RLIMIT_FSIZE)"


def limited(limit_bytes):
    """What goes before a program that is to write no larger file. The soft limit alone, which may be raised again."""
    return ["prlimit", f"--fsize={limit_bytes}:"]


class FileSizeLimit(unittest.TestCase):
    def setUp(self):
        self.job = self.enterContext(Job())

    def health(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.job.port}/healthz", timeout=60) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.read().decode()

    def test_musterd_names_the_limit_and_goes_on_when_it_is_raised(self):
        limit = 64 << 10
        musterd = self.job.spawn("musterd", "--bind", "127.0.0.1", "--port", self.job.port, "--first-start", "--state",
                                 f"sqlite:{self.job.directory}/state.db", before=limited(limit))
        wait_for("listening musterd", self.job.answers)
        node = self.job.node("--max-restarts", 1000, nnodes=1, nproc=1)

        def stalls():
            starts = self.job.starts()
            if starts and starts[-1]["pid"] in self.job.processes():
                with contextlib.suppress(ProcessLookupError):  # it was killed before, and has gone since that look
                    os.kill(starts[-1]["pid"], signal.SIGKILL)
            return REMEDY in self.health()
        wait_for("daemon whose state has reached the limit", stalls, 200)  # after many restarts
        self.assertIn(f"files of at most {limit} bytes", self.health())
        wait_for("the reason in the node's words", lambda: REMEDY in node.err.read_text())
        subprocess.run(["prlimit", "--pid", str(musterd.pid), "--fsize=unlimited:"], check=True)
        wait_for("healthy daemon", lambda: self.health() == "ok\n")
        self.job.finish()
        self.job.expect_exit(node, 0)
        self.job.expect_gone(but=[musterd])

    def test_muster_goes_on_without_what_it_cannot_log_and_its_workers_have_the_signal_as_usual(self):
        limit = 64 << 10
        logs = self.job.directory / "logs"
        worker = "grep SigIgn /proc/self/status; head -c 200000 /dev/zero | tr '\\0' x"
        node = self.job.spawn("muster", "--nproc-per-node", 1, "--log-dir", logs, "-r", 3, "--no-python", "sh", "-c", worker,
                              before=limited(limit))
        self.job.expect_exit(node, 0)
        self.assertRegex(node.err.read_text(), f"cannot write the log file .*File too large: .* at most {limit} bytes; raise ulimit -f")
        out, = logs.rglob("stdout.log")
        self.assertEqual(out.stat().st_size, limit)
        ignored = int(re.search(r"SigIgn:\s*(\w+)", out.read_text())[1], 16)
        self.assertEqual(ignored >> (signal.SIGXFSZ - 1) & 1, 0)

    def test_a_report_that_is_too_large_is_told(self):
        report = self.job.directory / "report.json"
        done = self.run_limited("muster", "--nproc-per-node", 1, "--report", report, "--no-python", "sh", "-c",
                                "head -c 60000 /dev/zero | tr '\\0' x >&2; exit 3", limit=32 << 10)
        self.assertEqual(done.returncode, 3)
        self.assertRegex(done.stderr, "write the report .*: File too large: .*raise ulimit -f")
        self.assertFalse(report.exists())

    def run_limited(self, program, *arguments, limit=0):
        return subprocess.run([*limited(limit), BIN / program, *map(str, arguments)], capture_output=True, text=True,
                              env=self.job.environment(), cwd=self.job.directory, timeout=60)

    def test_a_limit_of_nothing_is_told_too(self):
        done = self.run_limited("muster", "--nproc-per-node", 1, "--no-python", "true")
        self.assertEqual(done.returncode, 70, done.stderr)  # the node's limit, not the program's fault
        self.assertIn(REMEDY, done.stderr)
        done = self.run_limited("musterd", "--bind", "127.0.0.1", "--state", f"sqlite:{self.job.directory}/state.db", "--port", 0)
        self.assertEqual(done.returncode, 78, done.stderr)
        self.assertIn(REMEDY, done.stderr)

    def test_a_log_in_a_file_that_is_full_ends_nobody(self):
        node = self.job.spawn("muster", "--nproc-per-node", 1, "--max-restarts", 3, "--no-python", "sh", "-c",
                              "head -c 100000 /dev/zero | tr '\\0' x >&2; exit 3", before=limited(16 << 10))
        self.job.expect_exit(node, 3)
        self.assertEqual(node.err.stat().st_size, 16 << 10)
        self.job.expect_gone()


if __name__ == "__main__":
    unittest.main(verbosity=2)
