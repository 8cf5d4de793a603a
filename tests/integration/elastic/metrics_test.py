"""GET /metrics in both formats, read by Prometheus' own tools, with jobs whose names are hostile."""
import pathlib
import shutil
import subprocess
import unittest
import urllib.request

from job import WORKERS, Job, wait_for

OPEN_METRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
# Debian's interpreter, for which python3-prometheus-client is installed.
PYTHON = "/usr/bin/python3"
STRICT = """
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
for family in text_string_to_metric_families(sys.stdin.buffer.read().decode()):
    for sample in family.samples:
        print(repr((sample.name, sorted(sample.labels.items()))))
"""
# Neither a launcher nor the daemon accepts a name with a control character or bytes that are not UTF-8.
NAMES = ['quote"name', "back\\slash", "naïve-漢字", '{job="x"} 1', " "]


def scrape(job, accept):
    request = urllib.request.Request(f"http://127.0.0.1:{job.port}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.headers["Content-Type"], answer.read()


def has_parser():
    return pathlib.Path(PYTHON).exists() and subprocess.run([PYTHON, "-c", "import prometheus_client.openmetrics.parser"], capture_output=True,
                          check=False).returncode == 0


class Metrics(unittest.TestCase):
    def check(self, job):
        text_type, text = scrape(job, "*/*")
        self.assertEqual(text_type, "text/plain; version=0.0.4; charset=utf-8")
        open_type, open_text = scrape(job, OPEN_METRICS)
        self.assertEqual(open_type, "application/openmetrics-text; version=1.0.0; charset=utf-8")
        self.assertTrue(open_text.endswith(b"\n# EOF\n"))
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, timeout=60, check=False)
        self.assertEqual(checked.returncode, 0, checked.stderr.decode() + text.decode())
        read = subprocess.run([PYTHON, "-c", STRICT], input=open_text, capture_output=True, timeout=60, check=False)
        self.assertEqual(read.returncode, 0, read.stderr.decode() + open_text.decode())
        return read.stdout.decode()

    def test_both_formats_are_accepted_by_what_reads_them_also_with_hostile_names(self):
        if not shutil.which("promtool") or not has_parser():
            self.skipTest("promtool or python3-prometheus-client is missing (scripts/setup --tests)")
        with Job() as job:
            job.daemon()
            self.check(job)
            nodes = []
            for name in NAMES:
                nodes.append(job.spawn("muster", "--nnodes", 1, "--rdzv-backend", "c10d", "--rdzv-endpoint",
                                       f"127.0.0.1:{job.port}", "--lease", 5, "--no-python", WORKERS / "elastic",
                                       "--until", "done", before=("env",), MUSTER_RDZV_ID=name))
            job.round(0, len(NAMES))
            seen = self.check(job)
            self.assertEqual(seen.count("('muster_job_restarts_total'"), len(NAMES), seen)
            self.assertIn("'naïve-漢字'", seen)
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)
            over = 'muster_job_phase{job=" ",phase="over"} 1'
            wait_for("ended job in the metrics", lambda: over in scrape(job, "")[1].decode())
            seen = self.check(job)
            self.assertEqual(seen.count("('muster_job_goodput_ratio'"), len(NAMES), seen)


if __name__ == "__main__":
    unittest.main()
