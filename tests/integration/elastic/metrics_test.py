"""GET /metrics in both formats, read by Prometheus' own tools, with jobs whose names are hostile."""
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import unittest
import urllib.error
import urllib.request

from job import BIN, NOBODY, WORKERS, Job, as_user, wait_for

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
# Puts 1 MiB into the round's store as PyTorch's client does, and ends when there is a file "go".
FILLER = """
import os, pathlib, socket, time
value = bytes(1 << 20)
with socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))) as store:
    store.sendall(b"\\x00\\xce\\xf7\\x85\\x3c\\x01" + (1).to_bytes(8, "little") + b"k" + len(value).to_bytes(8, "little") + value)
    while not pathlib.Path("go").exists():
        time.sleep(0.01)  # between two looks
"""
# Neither a launcher nor the daemon accepts a name with a control character or bytes that are not UTF-8.
NAMES = ['quote"name', "back\\slash", "naïve-漢字", '{job="x"} 1', " "]


def get(page, **headers):
    with urllib.request.urlopen(urllib.request.Request(page, headers=headers), timeout=60) as answer:
        return answer.headers["Content-Type"], answer.read()


def scrape(job, accept):
    return get(f"http://127.0.0.1:{job.port}/metrics", Accept=accept)


def status_of(page, **headers):
    """HTTP's status where the answer is a refusal, and its words."""
    with unittest.TestCase().assertRaises(urllib.error.HTTPError) as refused:
        get(page, **headers)
    with refused.exception as answer:
        return answer.code, answer.read().decode()


def far_address(family=socket.AF_INET):
    """An address of this host that is not loopback. Empty: it has none."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1" if family == socket.AF_INET else "2001:db8::1", 9))  # sends nothing
        except OSError:
            return ""
        return probe.getsockname()[0]


def token_of(job, kind, **secret):
    return subprocess.run([BIN / "musterd", f"--{kind}-token"], env=job.environment(**secret), capture_output=True, text=True,
                          timeout=60, check=True).stdout.strip()


def has_parser():
    return pathlib.Path(PYTHON).exists() and subprocess.run([PYTHON, "-c", "import prometheus_client.openmetrics.parser"], capture_output=True,
                          check=False).returncode == 0

NVML = os.environ.get("FAKE_NVML_LIBRARY")
needs_nvml = unittest.skipUnless(NVML, "FAKE_NVML_LIBRARY is not set")


class Metrics(unittest.TestCase):
    def check(self, page):
        text_type, text = get(page, Accept="*/*")
        self.assertEqual(text_type, "text/plain; version=0.0.4; charset=utf-8")
        open_type, open_text = get(page, Accept=OPEN_METRICS)
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
            daemon = f"http://127.0.0.1:{job.port}/metrics"
            self.check(daemon)
            nodes = []
            for name in NAMES:
                nodes.append(job.spawn("muster", "--nnodes", 1, "--rdzv-backend", "c10d", "--rdzv-endpoint",
                                       f"127.0.0.1:{job.port}", "--lease", 5, "--no-python", WORKERS / "elastic",
                                       "--until", "done", before=("env",), MUSTER_RDZV_ID=name))
            job.round(0, len(NAMES))
            seen = self.check(daemon)
            self.assertEqual(seen.count("('muster_job_restarts_total'"), len(NAMES), seen)
            self.assertIn("'naïve-漢字'", seen)
            # One look may find an agent that has had no CPU for a second.
            for line in (r"muster_leader 1", r"muster_leader_changes_total 0", r"muster_loop_turn_seconds_count [1-9]\d*",
                         r"muster_heartbeat_late_seconds_count [1-9]\d*", r"muster_agent_silence_max_seconds 0\.\d+", r"muster_build_info\{version=\".+\"\} 1"):
                wait_for(line, lambda at=f"(?m)^{line}$": re.search(at, scrape(job, "")[1].decode()))
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)
            over = 'muster_job_phase{job=" ",phase="over"} 1'
            wait_for("ended job in the metrics", lambda: over in scrape(job, "")[1].decode())
            seen = self.check(daemon)
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
                text = wait_for(f"both workers in {file}", lambda p=path: p.exists() and len(re.findall(r"(?m)^muster_worker_running\{.*\} 1$", t := p.read_text())) == 2 and t, 120)
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

    def test_the_daemon_of_a_launcher_and_its_rounds_store_share_one_limit_of_memory(self):
        with Job() as job:
            node = job.spawn("muster", "--nnodes", 1, "--nproc-per-node", 1, "--rdzv-backend", "c10d", "--rdzv-endpoint",
                             f"127.0.0.1:{job.port}", "--rdzv-id", job.id, "--no-python", sys.executable, "-c", FILLER)
            wait_for("the daemon", job.answers)
            wait_for("the value", lambda: int(re.search(rb"^muster_memory_bytes (\d+)$", scrape(job, "text/plain")[1], re.M)[1]) > 1 << 20)
            (job.directory / "go").touch()
            job.expect_exit(node, 0)

    def listen(self, job, place, *arguments, **extra):
        """A launcher of a job of its own, and the address of its page, as it prints it."""
        node = job.spawn("muster", "--nproc-per-node", 2, "--metrics-listen", place, *arguments, "--no-python",
                         WORKERS / "elastic", "--until", "done", **extra)
        said = wait_for("the port's line", lambda: re.search(r"metrics of this node: (\S+/metrics)\n", node.err.read_text()), 120)
        return node, said[1]

    def test_each_node_answers_on_a_port_of_its_own_in_both_formats_and_on_no_other_address(self):
        with Job() as job:
            nodes, pages = zip(*(self.listen(job, place, "--standalone", "--rdzv-id", "train") for place in ("0", "[::1]:0", "localhost:0")))
            job.round(0, 6)
            self.assertTrue(pages[0].startswith("http://127.0.0.1:") and pages[1].startswith("http://[::1]:"), pages)
            for page in pages:
                text = get(page)[1].decode()
                self.assertIn('muster_worker_info{job="train",local_rank="1",rank="1",round="0"} 1\n', text)
                self.check_file(text)
                code, words = status_of(page.replace("metrics", "status"))
                self.assertEqual((code, words), (404, "There is /metrics.\n"))
                code, words = status_of(page, Host="rebound.example")
                self.assertEqual((code, words.partition("; ")[2]), (421, "--metrics-listen NAME:PORT adds a name.\n"))
                if shutil.which("promtool") and has_parser():
                    self.assertIn("('muster_worker_running'", self.check(page))
            port = int(pages[0].split(":")[2].split("/")[0])
            if os.geteuid() == 0:
                self.assertRegex(self.as_nobody(str(port), "00"), r"\AHTTP/1.1 403 ")
            # Of more connections than the limit the oldest give way, and those that ask for nothing end.
            idle = [socket.create_connection(("127.0.0.1", port), 60) for _ in range(40)]
            idle[-1].sendall(b"GET /metrics HTTP/1.1\r\n")
            self.assertIn("muster_worker_running", get(pages[0])[1].decode())
            wait_for("the line of the limit", lambda: "its place is needed: 32 are open" in nodes[0].err.read_text())
            with socket.create_connection(("127.0.0.1", port), 60) as secure:
                secure.sendall(b"\x16\x03\x01")
                wait_for("the line about https", lambda: "it speaks TLS, and this port serves http:// alone" in nodes[0].err.read_text())
            for one in idle:
                self.assertEqual(one.recv(1), b"")
                one.close()
            # A taken port stops no job: its holder is named, and the launcher gets the port when the holder is gone, whose
            # connections may still be in TIME_WAIT.
            again = job.spawn("muster", "--standalone", "--rdzv-id", "again", "--metrics-listen", f"127.0.0.1:{port}", "--no-python", WORKERS / "elastic", "--until", "done")
            wait_for("the port's holder", lambda: re.search(rf"--metrics-listen: .*port {port} on 127.0.0.1.*held by process {nodes[0].pid} \(muster.*; tried again in 10 s",
                                                            again.err.read_text()), 120)
            os.kill(nodes[0].pid, signal.SIGKILL)
            nodes[0].wait()
            job.round(0, 7)
            wait_for("page of the next launcher", lambda: self.answers(pages[0]) and 'job="again"' in get(pages[0])[1].decode(), 120)
            job.finish()
            for node in (*nodes[1:], again):
                job.expect_exit(node, 0)
            self.assertFalse(self.answers(pages[0]))

    def check_limit_of_one_source(self, node, port):
        """Of nine connections of another user the ninth is closed at once; the others and the own user are served."""
        asked = subprocess.run([*as_user(NOBODY), PYTHON, "-c", """
import socket, sys
nine = [socket.create_connection(("127.0.0.1", int(sys.argv[1])), 60) for _ in range(9)]
print(nine[8].recv(1))
for one in nine[:8]:
    one.sendall(b"GET /metrics HTTP/1.0\\r\\n\\r\\n")
print({one.recv(12) for one in nine[:8]})
""", port], capture_output=True, text=True, timeout=60)
        self.assertEqual(asked.stdout + asked.stderr, "b''\n{b'HTTP/1.1 403'}\n")
        wait_for("the line of the limit", lambda: "refused: 8 connections of " in node.err.read_text())
        self.assertIn("muster_worker_running", get(f"http://127.0.0.1:{port}/metrics")[1].decode())

    def listen_by_ipv6(self, job, token):
        """Launchers whose ports other hosts reach by IPv6. None where this host has no such address."""
        nodes = []
        far = far_address(socket.AF_INET6)
        for place in (f"[{far}]:0", "[::]:0") if far else ():
            node, page = self.listen(job, place, "--standalone")
            page = f"http://[{far}]:{page.split(':')[-1]}"
            self.assertEqual(status_of(page)[0], 401)
            wait_for("workers", lambda at=page: "muster_worker_running{" in get(at, Authorization=f"Bearer {token}")[1].decode())
            nodes.append(node)
        return nodes

    def test_a_port_that_stays_taken_is_given_up_after_the_fourth_try_and_the_job_runs(self):
        with Job() as job, socket.create_server(("127.0.0.1", 0)) as holder:
            port = holder.getsockname()[1]
            node = job.spawn("muster", "--standalone", "--metrics-listen", port, "--no-python", WORKERS / "elastic", "--until", "done")
            job.round(0, 1)
            line = rf"--metrics-listen: .*port {port} on 127.0.0.1.*; "
            wait_for("the last try", lambda: re.search(line + "this node serves no metrics. Give each launcher", node.err.read_text()), 120)
            self.assertEqual(len(re.findall(line + "tried again in 10 s", node.err.read_text())), 3)
            self.assertIsNone(node.poll())
            job.finish()
            job.expect_exit(node, 0)

    def as_nobody(self, place, token=""):
        """What another user of this host is answered on loopback."""
        asked = subprocess.run([*as_user(NOBODY), "bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{place.split('/')[0]}; printf 'GET /metrics HTTP/1.0\\r\\n"
                                f"Host: localhost\\r\\nAuthorization: Bearer {token}\\r\\n\\r\\n' >&3; cat <&3"], capture_output=True, text=True, timeout=60)
        return asked.stdout or asked.stderr

    def answers(self, page):
        try:
            return get(page)
        except OSError:
            return None

    def test_other_hosts_need_the_token_of_the_jobs_key_and_without_a_key_nobody_listens_for_them(self):
        far = far_address()
        if not far:
            self.skipTest("this host has loopback alone")
        with Job() as job:
            keyed, page = self.listen(job, "0.0.0.0:0", "--standalone", MUSTER_KEY="0123456789abcdef0123")
            job.round(0, 2)
            port = page.split(":")[2]
            self.assertIn("muster_worker_running", get(f"http://127.0.0.1:{port}")[1].decode())
            page = f"http://{far}:{port}"
            self.assertEqual(status_of(page)[0], 401)
            self.assertEqual(status_of(page, Authorization="Bearer 00")[0], 401)
            status_token = token_of(job, "status", MUSTER_KEY="0123456789abcdef0123")
            code, words = status_of(page, Authorization=f"Bearer {status_token}")
            self.assertEqual((code, words.partition("--")[2]), (401, "metrics-token prints.\n"))
            token = token_of(job, "metrics", MUSTER_KEY="0123456789abcdef0123")
            self.assertIn("muster_worker_running", get(page, Authorization=f"Bearer {token}")[1].decode())
            if os.geteuid() == 0:
                self.assertRegex(self.as_nobody(port), r"\AHTTP/1.1 403 [^~]*Bearer TOKEN")
                self.assertRegex(self.as_nobody(port, token), r"\AHTTP/1.1 200 [^~]*muster_worker_running\{")
                self.check_limit_of_one_source(keyed, port.split("/")[0])
            # A job of one node gets a key for it, with which musterd --metrics-token agrees.
            made, page = self.listen(job, f"{far}:0", "--standalone")
            self.assertEqual(status_of(page)[0], 401)
            self.assertTrue((job.directory / ".muster" / "key").exists())
            token = token_of(job, "metrics")
            wait_for("workers", lambda: "muster_worker_running{" in get(page, Authorization=f"Bearer {token}")[1].decode())
            by_ipv6 = self.listen_by_ipv6(job, token)
            told, page = self.listen(job, f"{far}:0", "--standalone", "--insecure")
            wait_for("workers", lambda: "muster_worker_running{" in get(page)[1].decode())
            self.assertIn("--metrics-listen", told.err.read_text())
            job.finish()
            for node in (keyed, made, told, *by_ipv6):
                job.expect_exit(node, 0)

    def test_bad_places_to_listen_are_refused_by_a_sentence_before_anything_starts(self):
        with Job() as job:
            for place, code, words in ((":9400", 2, "accepted is [ADDR:]P"), ("::1:9400", 2, "accepted is [ADDR:]P"),
                                       ("70000", 2, "accepted is [ADDR:]P"), ("gpu07", 2, "accepted is [ADDR:]P"), ("", 2, "accepted is"),
                                       ("203.0.113.1:9400", 78, "the address must be one of this host's")):
                wrong = job.spawn("muster", "--standalone", "--insecure", "--metrics-listen", place, "--no-python", WORKERS / "elastic")
                self.assertEqual((place, job.exit_code(wrong)), (place, code))
                self.assertIn(words, wrong.err.read_text())
            self.assertEqual(job.starts(), [])

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
            # What a killed agent knew of its GPUs stays for the next one on them.
            pathlib.Path(f"/dev/shm/muster-gpus.{os.getuid()}.{nodes[0].pid}").unlink(missing_ok=True)

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
            self.assertIn("--hpc-job-mapping-dir: muster-gpus has not listed all GPUs within its 5 s: the NVIDIA driver hangs", node.err.read_text())
            self.assertEqual(node.err.read_text().count("waiting up to 5 s for the NVIDIA driver"), 1)
            self.assertEqual(list(folder.iterdir()), [])

    def test_a_directory_that_does_not_exist_ends_the_launcher_before_it_joins(self):
        with Job() as job:
            wrong = job.spawn("muster", "--standalone", "--metrics-file", job.directory / "missing", "--no-python", WORKERS / "elastic")
            self.assertNotEqual(job.exit_code(wrong), 0)
            self.assertIn("missing does not exist; name the directory", wrong.err.read_text())
            self.assertEqual(job.starts(), [])


if __name__ == "__main__":
    unittest.main()
