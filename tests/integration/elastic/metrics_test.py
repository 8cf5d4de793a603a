"""GET /metrics in both formats, read by Prometheus' own tools, with jobs whose names are hostile."""
import os
import pathlib
import shutil
import signal
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

NVML = os.environ.get("FAKE_NVML_LIBRARY")
needs_nvml = unittest.skipUnless(NVML, "FAKE_NVML_LIBRARY is not set")


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
            own = scrape(job, "")[1].decode()
            for line in (r"muster_leader 1", r"muster_leader_changes_total 0", r"muster_loop_turn_seconds_count [1-9]\d*",
                         r"muster_heartbeat_late_seconds_count [1-9]\d*", r"muster_agent_silence_max_seconds 0\.\d+", r"muster_build_info\{version=\".+\"\} 1"):
                self.assertRegex(own, f"(?m)^{line}$")
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)
            over = 'muster_job_phase{job=" ",phase="over"} 1'
            wait_for("ended job in the metrics", lambda: over in scrape(job, "")[1].decode())
            seen = self.check(job)
            self.assertEqual(seen.count("('muster_job_goodput_ratio'"), len(NAMES), seen)

    def check_file(self, text):
        if shutil.which("promtool"):
            checked = subprocess.run(["promtool", "check", "metrics"], input=text.encode(), capture_output=True, timeout=60, check=False)
            self.assertEqual(checked.returncode, 0, checked.stderr.decode() + text)
        if has_parser():
            # The text format differs in the counters' family names, so the strict parser of OpenMetrics does not read it.
            read = subprocess.run([PYTHON, "-c", STRICT.replace("openmetrics.parser", "parser")], input=text.encode(),
                                  capture_output=True, timeout=60, check=False)
            self.assertEqual(read.returncode, 0, read.stderr.decode() + text)

    def test_a_node_writes_whole_files_for_the_textfile_collector_and_removes_them_at_the_end(self):
        with Job() as job:
            folder = job.directory / "textfile"
            folder.mkdir()
            names = {'a/../"b\\c': "muster_a%2f..%2f%22b%5cc.prom", "naïve {x} 1": "muster_na%c3%afve%20%7bx%7d%201.prom"}
            nodes = [job.spawn("muster", "--standalone", "--nproc-per-node", 2, "--metrics-file", folder, "--no-python",
                               WORKERS / "elastic", "--until", "done", before=("env",), MUSTER_RDZV_ID=name)
                     for name in names]
            job.round(0, 4)
            runs = 'local_rank="1"} 1\n'
            for name, file in names.items():
                path = folder / file
                text = wait_for(f"both workers in {file}", lambda p=path: p.exists() and "muster_worker_running{" in (t := p.read_text()) and t, 120)
                self.assertEqual(path.stat().st_mode & 0o777, 0o644)
                label = name.replace("\\", "\\\\").replace('"', '\\"')
                self.assertIn(f'muster_worker_running{{job="{label}",{runs}', text)
                self.assertIn(f'muster_worker_info{{job="{label}",local_rank="1",rank="1",round="0"}} 1\n', text)
                self.check_file(text)
            self.assertEqual({entry.name for entry in folder.iterdir()} - {name + end for name in names.values() for end in (".new", ".lock")}, set(names.values()))
            killed, kept = names.values()
            os.kill(nodes[0].pid, signal.SIGKILL)
            wait_for("removal by the guardian", lambda: not any(entry.name.startswith(killed) for entry in folder.iterdir()), 120)
            self.assertTrue((folder / kept).exists())
            job.finish()
            job.expect_exit(nodes[1], 0)
            self.assertEqual(list(folder.iterdir()), [])

    @needs_nvml
    def test_dcgm_exporter_gets_the_job_of_each_gpu_until_its_end_also_by_sigkill(self):
        with Job() as job:
            folder = job.directory / "jobs"
            folder.mkdir()
            (folder / "1").write_text("4711\n")  # of a prolog
            nodes = [job.spawn("muster", "--standalone", "--rdzv-id", name, "--nproc-per-node", count, "--hpc-job-mapping-dir", folder,
                               "--no-python", WORKERS / "elastic", "--until", "done", MUSTER_NVML_LIBRARY=NVML, FAKE_NVML="GPU-a;GPU-b;GPU-c")
                     for name, count in (("train", 2), ("eval", 1))]
            job.round(0, 3)
            self.assertEqual(sorted((folder / "0").read_text().split()), ["eval", "train"])
            self.assertEqual((folder / "1").read_text(), "4711\ntrain\n")
            self.assertFalse((folder / "2").exists())
            os.kill(nodes[0].pid, signal.SIGKILL)
            wait_for("removal by the guardian", lambda: (folder / "0").read_text() == "eval\n" and (folder / "1").read_text() == "4711\n", 120)
            job.finish()
            job.expect_exit(nodes[1], 0)
            self.assertEqual([entry.name for entry in folder.iterdir()], ["1"])

    @needs_nvml
    def test_a_driver_that_hangs_costs_the_job_only_its_lines(self):
        with Job() as job:
            folder = job.directory / "jobs"
            folder.mkdir()
            node = job.spawn("muster", "--standalone", "--nproc-per-node", 1, "--hpc-job-mapping-dir", folder, "--no-python",
                             WORKERS / "elastic", "--until", "done", MUSTER_NVML_LIBRARY=NVML, FAKE_NVML="hang")
            job.round(0, 1)
            job.finish()
            job.expect_exit(node, 0)
            self.assertIn("--hpc-job-mapping-dir: the NVIDIA driver has not listed the GPUs within 5 s", node.err.read_text())
            self.assertEqual(list(folder.iterdir()), [])

    def test_a_directory_that_does_not_exist_ends_the_launcher_before_it_joins(self):
        with Job() as job:
            wrong = job.spawn("muster", "--standalone", "--metrics-file", job.directory / "missing", "--no-python", WORKERS / "elastic")
            self.assertNotEqual(job.exit_code(wrong), 0)
            self.assertIn("missing does not exist; name the directory", wrong.err.read_text())
            self.assertEqual(job.starts(), [])


if __name__ == "__main__":
    unittest.main()
