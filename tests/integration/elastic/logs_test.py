"""muster logs --failed: of the workers' log files, those of workers that ended badly."""
import subprocess
import unittest

from job import BIN, Job

FAST = ("--lease", 5)


def logs(job, *words):
    return subprocess.run([BIN / "muster", "logs", *map(str, words)], capture_output=True, text=True, timeout=60, env=job.environment())


class Logs(unittest.TestCase):
    def test_only_workers_that_failed_are_shown_in_the_rounds_in_which_they_failed(self):
        with Job() as job:
            job.daemon()
            folder, report, events = (job.directory / name for name in ("logs", "report.json", "events.jsonl"))
            node = job.spawn("muster", "--nnodes", 1, "--nproc-per-node", 3, "--rdzv-backend", "c10d", "--rdzv-endpoint",
                             f"127.0.0.1:{job.port}", "--rdzv-id", job.id, "--max-restarts", 1, *FAST, "--log-dir", folder, "-r", 3,
                             "--report", report, "--events", events, "--no-python", "sh", "-c",
                             # The one that fails waits until all have said their line.
                             'echo "rank $RANK of round $MUSTER_ROUND"; touch said.$RANK.$MUSTER_ROUND; test $RANK = $MUSTER_ROUND || exec sleep 600; '
                             'for rank in 0 1 2; do until test -e said.$rank.$MUSTER_ROUND; do sleep 0.05; done; done; exit 3')
            job.expect_exit(node, 3)
            shown = logs(job, folder, "--failed", events, "--all")
            self.assertEqual(shown.stdout.splitlines(), ["[0]: rank 0 of round 0", "[1]: rank 1 of round 1"], shown.stderr)
            shown = logs(job, folder, "--failed", report, "--all")
            self.assertEqual(shown.stdout, "[1]: rank 1 of round 1\n", shown.stderr)
            self.assertEqual(len(logs(job, folder, "--all").stdout.splitlines()), 6)
            for wrong in (job.directory / "none", job.log):
                refused = logs(job, folder, "--failed", wrong)
                self.assertEqual(refused.returncode, 2)
                self.assertIn(f"--failed: {wrong}: it cannot be read, or is neither a report", refused.stderr)


if __name__ == "__main__":
    unittest.main()
