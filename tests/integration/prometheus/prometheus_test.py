"""Debian's Prometheus scrapes a real musterd, which serves a job with steps and a failure: every query of the dashboard has an
answer, and every metric that an alert rule names is there. promtool runs the alert rules on series for and against each."""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import unittest
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/integration/elastic"))
from job import Job, free_port, wait_for  # noqa: E402

FILES = ROOT / "scripts/prometheus"
RULES = (FILES / "muster-alerts.yml").read_text()
# Its step record (worker_runtime/core/step_record.h) has 50 steps at once, so that the first report of its agent has them.
WORKER = r"""
import os, pathlib, socket, struct, sys, time
folder, rank = pathlib.Path(sys.argv[1]), int(os.environ["RANK"])
link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
address = os.environ["MUSTER_AGENT_SOCKET"]
link.connect("\0" + address[1:] if address.startswith("@") else address)
token = os.environ["MUSTER_AGENT_TOKEN"].encode()
link.send(struct.pack("<BIi", 1, 3, os.getpid()) + struct.pack("<H", 4) + b"test" + struct.pack("<H", len(token)) + token)
record = os.memfd_create("steps")
def write(steps):
    ms = 1_000_000
    times = [0, 0, steps - 1, *[0] * 8]
    os.pwrite(record, b"MUSTERS2" + struct.pack("<12q11q", 1, steps, time.monotonic_ns(), steps, (steps - 1) * 10 * ms,
              steps * 10 * ms, steps * ms, steps * 2 * ms, rank * steps * ms, steps * 64, steps // 10 * 10, 1, *times), 0)
write(50)
socket.send_fds(link, [bytes([9])], [record])
for steps in range(50, 10 ** 9):
    write(steps)
    if (folder / "done").exists():
        break
    if os.environ["MUSTER_ROUND"] == "0" and (folder / "fail").exists() and rank == 1:
        sys.exit(3)
    time.sleep(0.01)  # a step
"""


class Prometheus:
    def __init__(self, job):
        folder = job.directory / "prometheus"
        folder.mkdir()
        rules = folder / "rules.yml"
        rules.write_text(RULES)
        config = (FILES / "prometheus.yml").read_text()
        # On the daemon's own host it needs no token.
        for there, here in (("[/usr/share/muster/prometheus/muster-alerts.yml]", f'["{rules}"]'), ("node0:29400", f"127.0.0.1:{job.port}"),
                            ("15s", "1s"), ("    authorization: {credentials_file: /etc/prometheus/muster-token}\n", "")):
            assert there in config, there
            config = config.replace(there, here)
        (folder / "config.yml").write_text("global: {evaluation_interval: 1s}\n" + config)
        for _ in range(5):  # somebody else may take the port first
            self.port = free_port()
            with open(folder / "log", "wb") as log:
                self.process = subprocess.Popen(["prometheus", f"--config.file={folder}/config.yml", f"--storage.tsdb.path={folder}/data",
                                                 f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn"],
                                                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder)
            wait_for("Prometheus", lambda: self.process.poll() is not None or self.query("vector(1)"), 120)
            if self.process.poll() is None:
                return
        raise AssertionError((folder / "log").read_text())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=60)

    def get(self, path, **words):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}?{urllib.parse.urlencode(words)}", timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as refused:
            if refused.code == 503:  # It has just been started.
                return None
            raise AssertionError(f"{words}: {refused.read().decode()}") from None
        except OSError:
            return None

    def query(self, expression):
        data = self.get("/api/v1/query", query=expression)
        return data and data["result"]


def dashboard_queries():
    board = json.loads((FILES / "muster-dashboard.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    queries += [note["expr"] for note in board["annotations"]["list"]]
    return [query.replace("$job", ".*").replace("$__rate_interval", "25s") for query in queries]


class AlertsAndDashboard(unittest.TestCase):
    def setUp(self):
        if not shutil.which("prometheus") or not shutil.which("promtool"):
            self.skipTest("prometheus is missing (scripts/setup --tests)")

    def test_every_query_has_an_answer_and_every_rule_names_what_is_there(self):
        with Job() as job:
            job.daemon()
            with Prometheus(job) as prometheus:
                script = job.directory / "worker.py"
                script.write_text(WORKER)
                node = job.spawn("muster", "--nnodes", 1, "--nproc-per-node", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint",
                                 f"127.0.0.1:{job.port}", "--rdzv-id", job.id, "--max-restarts", 1, "--lease", 30, "--no-python",
                                 sys.executable, script, job.directory)
                mine = f'{{job="{job.id}"}}'
                wait_for("scrapes of the first round", lambda: prometheus.query(f"count_over_time(muster_job_steps_total{mine}[1m]) > 3"), 120)
                job.touch("fail")
                wait_for("a failure", lambda: prometheus.query(f'muster_job_rounds_total{{job="{job.id}",reason="worker_failed"}}'), 120)
                unanswered = []

                def answered():
                    unanswered[:] = [query for query in dashboard_queries() if not prometheus.query(query)]
                    return not unanswered
                try:
                    wait_for("answer to every query", answered, 120)
                except AssertionError:
                    self.fail(f"no answer to {unanswered}\n{urllib.request.urlopen(f'http://127.0.0.1:{job.port}/metrics').read().decode()}")
                named = set(re.findall(r"\b(?:muster_|process_)\w+|\bup\b", re.sub(r"annotations:\n(?: {10}.*\n)+", "", RULES)))
                self.assertGreater(len(named), 12)
                lacking = []

                def all_there():
                    lacking[:] = [name for name in sorted(named) if not prometheus.query(name)]
                    return not lacking
                try:  # again where a scrape took more than its second: until the next one a query has no answer
                    wait_for("every metric of the rules", all_there, 120)
                except AssertionError:
                    self.fail(lacking)
                health = []

                def healthy():
                    rules = (prometheus.get("/api/v1/rules") or {"groups": [{"rules": []}]})["groups"][0]["rules"]
                    health[:] = [(rule["name"], rule["health"]) for rule in rules]
                    return health and all(each == "ok" for _, each in health)
                try:
                    wait_for("evaluation of every rule", healthy)
                except AssertionError:
                    self.fail(health)
                failures = next(query for query in dashboard_queries() if "muster_job_failures_total" in query)
                shown = wait_for("the failure", lambda: prometheus.query(failures))
                self.assertGreaterEqual(min(float(one["value"][1]) for one in shown), 1)  # also the first one of its kind
                for metric, value in (("muster_job_exposed_communication_ratio", 0.2), ("muster_job_straggler_cost_ratio", 0.05)):
                    found = wait_for(metric, lambda metric=metric: prometheus.query(metric + mine))
                    self.assertAlmostEqual(float(found[0]["value"][1]), value, places=3)
                job.finish()
                job.expect_exit(node, 0)

    def test_each_alert_fires_when_it_should_and_only_then(self):
        with Job() as job:
            rules, tests = job.directory / "rules.yml", job.directory / "tests.yml"
            # promtool compares the annotations too, which are for people.
            rules.write_text(re.sub(r"        annotations:\n(?: {10}.*\n)+", "", RULES))
            text = (pathlib.Path(__file__).parent / "alerts_test.yml").read_text()
            tests.write_text(text.replace("[ALERTS]", f'["{rules}"]'))
            for command in (["check", "rules", FILES / "muster-alerts.yml"], ["test", "rules", tests]):
                ran = subprocess.run(["promtool", *map(str, command)], capture_output=True, text=True, timeout=120, check=False)
                self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
            alerts = set(re.findall(r"- alert: (\w+)", RULES))
            for alert in alerts:
                cases = re.findall(rf"alertname: {alert}, exp_alerts: (\[\]|\[\{{)", text)
                self.assertEqual(sorted(cases), ["[]", "[{"], f"{alert} has no series for and against it")


if __name__ == "__main__":
    unittest.main()
