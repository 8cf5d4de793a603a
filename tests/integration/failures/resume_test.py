"""scripts/bench/failures with rows side by side: what has been measured is neither measured again nor lost."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import own_processes  # noqa: E402, F401

FAILURES = pathlib.Path(__file__).resolve().parents[3] / "scripts/bench/failures"
BUILD = pathlib.Path(sys.argv.pop(1))
DONE = [{"row": "worker-killed", "measures": {"all agents know": 0.004}, "took": 3.0},
        {"row": "eight-restarted", "measures": {"all 8 of the next round run": 0.1}, "took": 3.0}]


class Resume(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.journal = pathlib.Path(directory.name) / "failures.jsonl"

    def run_with(self, entries, *options):
        """(what it printed, the journal), when so much has been measured."""
        self.journal.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
        done = subprocess.run([sys.executable, FAILURES, "--rows", "worker-killed,eight-restarted", "--runs", "1", "--jobs", "2",
                               "--slack", "100", "--build", BUILD, "--output", self.journal, *options],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=200)
        if done.returncode == 77 and os.environ.get("CI") != "true":
            self.skipTest(done.stdout)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout, [json.loads(line) for line in self.journal.read_text().splitlines()]

    def test_what_has_been_measured_is_not_measured_again(self):
        said, journal = self.run_with(DONE, "--resume")
        self.assertEqual(journal, DONE)
        self.assertIn("100 ms", said)

    def test_what_is_missing_is_added(self):
        _, journal = self.run_with(DONE[:1], "--resume")
        self.assertEqual(journal[:1], DONE[:1])
        self.assertEqual([entry["row"] for entry in journal], ["worker-killed", "eight-restarted"])

    def test_a_report_measures_nothing(self):
        _, journal = self.run_with(DONE[:1], "--report")
        self.assertEqual(journal, DONE[:1])

    def test_a_new_run_keeps_the_one_before(self):
        _, journal = self.run_with(DONE)
        self.assertEqual(sorted(entry["row"] for entry in journal), ["eight-restarted", "worker-killed"])
        self.assertNotIn(DONE[0], journal)
        before = self.journal.with_suffix(".before.jsonl").read_text().splitlines()
        self.assertEqual([json.loads(line) for line in before], DONE)


if __name__ == "__main__":
    unittest.main(verbosity=2)
