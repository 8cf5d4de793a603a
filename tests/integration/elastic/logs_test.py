"""muster logs: --failed of a folder's files, and the files of a running job's nodes."""
import http.server
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

from job import BIN, NOBODY, Job, as_user, wait_for

FAST = ("--lease", 5)


def logs(job, *words):
    return subprocess.run([BIN / "muster", "logs", *map(str, words)], capture_output=True, text=True, timeout=120, env=job.environment())


def agents(job):
    with urllib.request.urlopen(f"http://127.0.0.1:{job.port}/api/v1/jobs/{job.id}/agents", timeout=60) as page:
        return json.load(page)


def ranks_with_stacks(shown):
    """The ranks of all groups of `muster logs --stacks`, each of which has frames."""
    ranks = set()
    for listed in re.findall(r"(?m)^ranks? ([\d,-]+) on .* \(pid \d+\):\n +\S", shown.stdout):
        for piece in listed.split(","):
            first, _, last = piece.partition("-")
            ranks |= set(range(int(first), int(last or first) + 1))
    return ranks


def is_connected(port):
    """Somebody on this host is connected to this port."""
    lines = [line.split() for table in ("tcp", "tcp6") for line in pathlib.Path("/proc/net", table).read_text().splitlines()[1:]]
    return any(words[3] == "01" and words[2].endswith(f":{port:04X}") for words in lines)


def is_open(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Front(http.server.ThreadingHTTPServer):
    """Gives the daemon's answers, or refuses each question for a job's nodes, or gives these another name."""
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            front = self.server
            asks_for_nodes = self.path.endswith("/agents")
            if front.refuses and asks_for_nodes:
                front.refused += 1
                self.send_error(front.refuses)
                return
            with urllib.request.urlopen(f"http://127.0.0.1:{front.behind}{self.path}", timeout=60) as page:
                body = page.read()
            if front.host and asks_for_nodes:
                answer = json.loads(body)
                for node in answer["nodes"]:
                    node["host"] = front.host
                body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)

        def version_string(self):
            return "muster"

        def log_message(self, *_):
            pass

    def __init__(self, behind):
        super().__init__(("127.0.0.1", 0), self.Handler)
        self.behind, self.refuses, self.refused, self.host = behind, None, 0, None
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


def wait_for_lines(job, pattern, count):
    """So many lines of workers are in files: the launcher writes there what it reads from them."""
    wait_for(f"{count} lines in files", lambda: sum(len(re.findall(pattern, file.read_text())) for file in job.directory.rglob("std*.log")) == count,
             deadline=120)


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
            shown = logs(job, folder, "--failed-in", events, "--all")
            self.assertEqual(shown.stdout.splitlines(), ["[0]: rank 0 of round 0", "[1]: rank 1 of round 1"], shown.stderr)
            shown = logs(job, folder, "--failed-in", report, "--all")
            self.assertEqual(shown.stdout, "[1]: rank 1 of round 1\n", shown.stderr)
            self.assertEqual(len(logs(job, folder, "--all").stdout.splitlines()), 6)
            for wrong in (job.directory / "none", job.log):
                refused = logs(job, folder, "--failed-in", wrong)
                self.assertEqual(refused.returncode, 2)
                self.assertIn(f"--failed-in: {wrong}: it cannot be read, or is neither a report", refused.stderr)
            refused = logs(job, folder, "--failed")
            self.assertEqual(refused.returncode, 2)
            self.assertIn("for folders write --failed-in FILE", refused.stderr)

    # ---- of a running job ----
    def test_workers_of_a_running_job_that_have_failed_are_known_to_its_daemon(self):
        with Job() as job:
            job.daemon()
            job.spawn("muster", "--nnodes", 1, "--nproc-per-node", 3, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{job.port}",
                      "--rdzv-id", job.id, "--max-restarts", 1, *FAST, "--log-dir", job.directory / "logs", "-r", 3, "--no-python", "sh", "-c",
                      'echo "rank $RANK of round $MUSTER_ROUND"; test $RANK.$MUSTER_ROUND = 1.0 || exec sleep 600; '
                      'until test -e fail; do sleep 0.05; done; exit 3')
            wait_for_lines(job, r"rank \d of round 0\n", 3)
            none = self.of_job(job, "--failed")
            self.assertEqual((none.returncode, none.stdout), (1, ""))
            self.assertIn("no worker of the job has failed, as far as this daemon knows since its start", none.stderr)
            job.touch("fail")
            wait_for_lines(job, r"rank \d of round 1\n", 3)
            shown = self.of_job(job, "--failed", "--all")
            self.assertEqual((shown.returncode, shown.stdout), (0, "[1]: rank 1 of round 0\n"), shown.stderr)
            refused = self.of_job(job, "--failed", "-f")
            self.assertEqual((refused.returncode, refused.stdout), (2, ""))
            self.assertIn("--failed shows who has failed by now", refused.stderr)
            self.assertEqual(len(self.of_job(job, "--all").stdout.splitlines()), 6)

    WORKER = 'echo "rank $RANK says hello"; echo "rank $RANK warns" >&2; echo everybody; touch "$READY.$RANK"; exec sleep 600'

    def start_node(self, job, *options, **extra):
        return job.spawn("muster", "--nnodes", 2, "--nproc-per-node", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint",
                         f"127.0.0.1:{job.port}", "--rdzv-id", job.id, "--rdzv-conf", "last_call_timeout=60", *options,
                         "--no-python", "sh", "-c", self.WORKER, READY=str(job.directory / "ready"), **extra)

    def start_job(self, job, first=(), second=()):
        """Two nodes with two workers each, which have written their lines."""
        job.daemon()
        nodes = [self.start_node(job, "--log-dir", job.directory / f"node {i}", "-r", 3, *options)
                 for i, options in enumerate((first, second))]
        wait_for_lines(job, "everybody\n|warns\n", 8)
        return nodes

    def of_job(self, job, *words):
        return logs(job, job.id, "--rdzv-endpoint", f"127.0.0.1:{job.port}", *words)

    def test_the_lines_of_all_nodes_of_a_job_are_one_stream(self):
        with Job() as job:
            self.start_job(job)
            shown = self.of_job(job, "--all")
            self.assertEqual(shown.returncode, 0, shown.stderr)
            self.assertEqual(sorted(shown.stdout.splitlines()),
                             sorted(line for rank in range(4) for line in (f"[{rank}]: rank {rank} says hello", f"[{rank}]: rank {rank} warns",
                                                                           f"[{rank}]: everybody")))
            folded = self.of_job(job, "-i", "everybody", "-n", 1)
            self.assertRegex(folded.stdout, r"\A\[.\]: everybody\n  \[same from all 4 ranks\]\n\Z")
            self.assertEqual(sorted(self.of_job(job, "--rank", "1,2", "--stream", "err", "--all").stdout.splitlines()),
                             ["[1]: rank 1 warns", "[2]: rank 2 warns"])
            self.assertEqual(self.of_job(job, "--round", 7).stdout, "")
            stacks = self.of_job(job, "--stacks")
            self.assertEqual((stacks.returncode, stacks.stderr), (0, ""))
            self.assertEqual(ranks_with_stacks(stacks), {0, 1, 2, 3}, stacks.stdout)
            self.assertEqual(len(set(re.findall(r"\S+ \(pid \d+\)", stacks.stdout))), 2, stacks.stdout)
            self.assertIn("--stacks asks the agents", logs(job, job.directory / "node 0", "--stacks").stderr)
            stacks = self.of_job(job, "--stacks", "--rank", "1,3-9")
            self.assertEqual((stacks.returncode, ranks_with_stacks(stacks)), (0, {1, 3}), stacks)
            stacks = self.of_job(job, "--stacks", "--rank", "0")
            self.assertEqual((stacks.returncode, ranks_with_stacks(stacks)), (0, {0}), stacks)
            stacks = self.of_job(job, "--stacks", "--rank", "17")
            self.assertEqual((stacks.returncode, stacks.stdout), (1, ""))
            self.assertIn("no node that has answered has a worker of these ranks now", stacks.stderr)
            for words in (("--round", 7), ("-i", "nothing"), ("--since=5",), ("--times",), ("-f",)):
                refused = self.of_job(job, "--stacks", *words)
                self.assertEqual((refused.returncode, refused.stdout), (2, ""))
                self.assertIn("--stacks shows no lines, among which " + str(words[0]).split("=")[0], refused.stderr)
            host, port = (agents(job)["nodes"][0][name] for name in ("host", "port"))
            self.assertEqual(len(self.of_job(job, "--node", host, "--all", "-i", "hello").stdout.splitlines()), 4)
            self.assertEqual(len(logs(job, job.directory / "node 0", "--node", host, "--all", "-i", "hello").stdout.splitlines()), 2)
            refused = self.of_job(job, "--node", "other")
            self.assertEqual((refused.returncode, refused.stdout), (1, ""))
            self.assertIn(f"--node: the job has no node 'other' now; it has {host}", refused.stderr)
            for path in ("logs", "stacks"):
                with self.assertRaises(urllib.error.HTTPError) as refusal:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}?job=other", timeout=60)
                self.assertEqual(refusal.exception.code, 404)
                refusal.exception.close()
            self.assertEqual(len(self.of_job(job, "--round", "last", "--all", "-n", 5).stdout.splitlines()), 5)

    WRONG_CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec* now) {
    static int (*real)(clockid_t, struct timespec*);
    if (!real) real = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    const char* ahead = getenv("CLOCK_AHEAD_S");
    if (clock == CLOCK_REALTIME && ahead) now->tv_sec += atol(ahead);
    return result;
}
"""
    # Each line is written 2 s after the one before it, by ranks that take turns.
    IN_TURNS = ('for turn in 0 1 2 3; do while ! test -e "$READY.$turn"; do sleep 0.01; done; '
                'if test $((turn % 2)) = $RANK; then sleep 2; echo "turn $turn"; touch "$READY.$((turn + 1))"; fi; done; exec sleep 600')

    def test_clocks_that_are_wrong_by_an_hour_do_not_change_the_order(self):
        # LD_PRELOAD takes no path with a space, which the job's folder has.
        with Job() as job, tempfile.TemporaryDirectory(prefix="muster-clock-") as folder:
            job.daemon()
            library = pathlib.Path(folder) / "wrong_clock.so"
            subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library, "-ldl"], input=self.WRONG_CLOCK, text=True, check=True)
            for ahead in (3600, -3600):
                job.spawn("muster", "--nnodes", 2, "--nproc-per-node", 1, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{job.port}",
                          "--rdzv-id", job.id, "--rdzv-conf", "last_call_timeout=60", "--log-dir", job.directory / f"logs {ahead}", "-r", 3,
                          "--no-python", "sh", "-c", self.IN_TURNS, READY=str(job.directory / "turn"), LD_PRELOAD=str(library), CLOCK_AHEAD_S=str(ahead))
            (job.directory / "turn.0").touch()
            wait_for_lines(job, r"turn \d\n", 4)
            shown = self.of_job(job, "--all")
            self.assertEqual([line.split(": ")[1] for line in shown.stdout.splitlines()], [f"turn {turn}" for turn in range(4)], shown.stderr)
            # By the files alone the order is that of the wrong clocks.
            folders = [job.directory / f"logs {ahead}" for ahead in (3600, -3600)]
            self.assertNotEqual(logs(job, *folders, "--all").stdout, shown.stdout)

    def test_a_node_that_goes_away_is_said_and_the_others_are_shown(self):
        with Job() as job:
            nodes = self.start_job(job, ("--lease", 120), ("--lease", 120))
            # Stopped: its port accepts, and nobody answers.
            os.kill(nodes[1].pid, signal.SIGSTOP)
            shown = self.of_job(job, "--all", "-i", "hello")
            os.kill(nodes[1].pid, signal.SIGCONT)
            self.assertEqual(len(shown.stdout.splitlines()), 2, shown.stdout + shown.stderr)
            self.assertIn(f"(pid {nodes[1].pid}): it does not answer within 10 s; its other lines are missing here", shown.stderr)
            self.assertEqual(shown.returncode, 1)

    def test_a_file_that_cannot_be_read_costs_the_view_only_that_file(self):
        with Job() as job:
            self.start_job(job)
            folder = next((job.directory / "node 0").rglob("stdout.log")).parent.parent
            for name in ("9", "8\nfile 0 round 0 rank 0 on x"):
                (folder / name).mkdir()
            os.mkfifo(folder / "9" / "stdout.log")
            (folder / "8\nfile 0 round 0 rank 0 on x" / "stdout.log").write_text("forged\n")
            shown = self.of_job(job, "--all", "-i", "hello|forged")
            self.assertEqual((shown.returncode, len(shown.stdout.splitlines())), (1, 4), shown.stdout + shown.stderr)
            self.assertEqual(len(shown.stderr.splitlines()), 2, shown.stderr)
            self.assertIn("9/stdout.log: Invalid argument", shown.stderr)
            self.assertIn("control characters are left out", shown.stderr)

    def test_follow_waits_for_a_node_that_has_not_joined(self):
        with Job() as job, Front(job.port) as front:
            self.start_job(job)
            viewer = job.spawn("muster", "logs", "-f", job.id, "--rdzv-endpoint", f"127.0.0.1:{front.server_port}", "--node", "later", "--all", "-i", "hello")
            wait_for("what it waits for", lambda: "no node 'later' now" in viewer.err.read_text() and "when it joins" in viewer.err.read_text(), deadline=120)
            front.host = "later"
            wait_for("lines of four ranks", lambda: viewer.out.read_text().count("hello") == 4 or viewer.poll() is not None, deadline=120)
            self.assertIsNone(viewer.poll(), viewer.err.read_text())

    def test_a_daemon_that_does_not_lead_denies_no_job(self):
        with Job() as job, Front(job.port) as front:
            job.daemon()
            front.refuses = 503
            shown = logs(job, job.id, "--rdzv-endpoint", f"127.0.0.1:{front.server_port}")
            self.assertIn("answers 503", shown.stderr)
            self.assertNotIn("no job", shown.stderr)

    def test_a_node_that_waits_is_not_asked(self):
        with Job() as job:
            self.start_job(job)
            self.start_node(job, "--log-dir", job.directory / "spare", "-r", 3)
            wait_for("a third node", lambda: len(agents(job)["waiting_nodes"]) == 1, deadline=120)
            self.assertEqual(len(agents(job)["nodes"]), 2)
            shown = self.of_job(job, "--all", "-i", "hello")
            self.assertEqual((shown.returncode, shown.stderr, len(shown.stdout.splitlines())), (0, "", 4))

    def test_a_node_that_stops_after_its_first_lines_is_said_while_the_others_go_on(self):
        with Job() as job:
            nodes = self.start_job(job, ("--lease", 120), ("--lease", 120))
            viewer = job.spawn("muster", "logs", "-f", job.id, "--rdzv-endpoint", f"127.0.0.1:{job.port}", "--all", "-i", "hello")
            wait_for("lines of four ranks", lambda: viewer.out.read_text().count("hello") == 4, deadline=120)
            os.kill(nodes[1].pid, signal.SIGSTOP)
            sentence = f"(pid {nodes[1].pid}): nothing has come from it for 10 s"
            wait_for("the end of the silent node", lambda: sentence in viewer.err.read_text(), deadline=120)
            os.kill(nodes[1].pid, signal.SIGCONT)
            self.assertIsNone(viewer.poll())

    FOLLOWED = ('for i in $(seq 200); do echo "round $MUSTER_ROUND rank $RANK line $i"; done; '
                'if test $MUSTER_ROUND = 0; then while ! test -e "$READY.go"; do sleep 0.01; done; '
                'for i in $(seq 200); do echo "end of round 0 rank $RANK line $i"; done; test $RANK = 0 && exit 3; exec sleep 600; fi; '
                'while ! test -e "$READY.more"; do sleep 0.01; done; echo "round 1 rank $RANK line 201"; '
                'while ! test -e "$READY.done"; do sleep 0.01; done')

    def test_follow_goes_on_through_a_restart_without_a_line_missing_or_twice(self):
        with Job() as job:
            job.daemon()
            folders = [job.directory / f"node {i}" for i in range(2)]
            nodes = [job.spawn("muster", "--nnodes", 2, "--nproc-per-node", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{job.port}",
                               "--rdzv-id", job.id, "--rdzv-conf", "last_call_timeout=60", "--max-restarts", 1, "--log-dir", folder, "-r", 3,
                               "--no-python", "sh", "-c", self.FOLLOWED, READY=str(job.directory / "follow")) for folder in folders]

            def shown():
                return sorted(line.removeprefix("~") for line in following.out.read_text().splitlines())

            def lines_of(round_number, count=200):
                return sorted(f"[{rank}]: round {round_number} rank {rank} line {i + 1}" for rank in range(4) for i in range(count))

            def is_in_round_1():
                page = agents(job)
                return page.get("round") == 1 and len(page["nodes"]) == 2 and all(is_connected(node["port"]) for node in page["nodes"])

            wait_for("round 0", lambda: all(list(folder.rglob("stdout.log")) for folder in folders), deadline=120)
            following = job.spawn("muster", "logs", "-f", job.id, "--rdzv-endpoint", f"127.0.0.1:{job.port}", "--all")
            wait_for("the lines of round 0", lambda: shown() == lines_of(0), deadline=120)
            (job.directory / "follow.go").touch()
            # The last look at round 0 may show the first lines of round 1: only what comes later is of its own connection.
            wait_for("the connections of round 1", is_in_round_1, deadline=120)
            (job.directory / "follow.more").touch()
            wait_for("the lines of round 1", lambda: set(lines_of(1, 201)) <= set(shown()), deadline=120)
            (job.directory / "follow.done").touch()
            for process in (*nodes, following):
                job.expect_exit(process, 0, deadline=120)
            self.assertEqual(shown(), sorted(logs(job, *folders, "--all").stdout.splitlines()))

    def test_a_last_round_that_was_over_before_it_was_seen_is_not_passed_over_in_silence(self):
        with Job() as job:
            job.daemon()
            node = job.spawn("muster", "--nnodes", 1, "--nproc-per-node", 1, "--rdzv-backend", "c10d", "--rdzv-endpoint",
                             f"127.0.0.1:{job.port}", "--rdzv-id", job.id, "--max-restarts", 1, "--log-dir", job.directory / "node", "-r", 3,
                             "--no-python", "sh", "-c", self.LAST_WORDS, READY=str(job.directory / "words"))
            wait_for("round 0", lambda: list(job.directory.rglob("stdout.log")), deadline=120)
            following = job.spawn("muster", "logs", "-f", job.id, "--rdzv-endpoint", f"127.0.0.1:{job.port}", "--all")
            wait_for("first line", lambda: "is here" in following.out.read_text(), deadline=120)
            os.kill(following.pid, signal.SIGSTOP)
            (job.directory / "words.go").touch()
            job.expect_exit(node, 3, deadline=120)
            os.kill(following.pid, signal.SIGCONT)
            job.expect_exit(following, 1, deadline=120)
            self.assertIn("the job is over; the last lines of 1 node may be missing; muster logs DIR shows the files\n",
                          following.err.read_text())

    # Nothing comes between the last lines and the end of the round.
    LAST_WORDS = ('echo "rank $RANK is here"; while ! test -e "$READY.go"; do sleep 0.01; done; test $RANK = 0 || exec sleep 600; '
                  'for i in $(seq 200); do echo "last line $i"; done; printf "no end"; exit 3')

    def test_the_last_lines_of_a_job_that_fails_are_shown_and_its_end_is_said_once(self):
        with Job() as job:
            job.daemon()
            nodes = [job.spawn("muster", "--nnodes", 2, "--nproc-per-node", 1, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{job.port}",
                               "--rdzv-id", job.id, "--rdzv-conf", "last_call_timeout=60", "--log-dir", job.directory / f"node {i}", "-r", 3,
                               "--no-python", "sh", "-c", self.LAST_WORDS, READY=str(job.directory / "words")) for i in range(2)]
            wait_for("files", lambda: len(list(job.directory.rglob("stdout.log"))) == 2, deadline=120)
            following = job.spawn("muster", "logs", "-f", job.id, "--rdzv-endpoint", f"127.0.0.1:{job.port}", "--all")
            wait_for("first lines", lambda: following.out.read_text().count("is here") == 2, deadline=120)
            (job.directory / "words.go").touch()
            for node in nodes:
                node.wait(timeout=120)
            job.expect_exit(following, 0, deadline=120)
            shown = [line.removeprefix("~") for line in following.out.read_text().splitlines()]
            self.assertEqual([line for line in shown if "is here" not in line],
                             [f"[0]: last line {i + 1}" for i in range(200)] + ["[0]: no end"])
            self.assertEqual(following.err.read_text(), "muster logs: the job is over\n")

    def test_a_daemon_that_names_no_nodes_for_a_while_ends_no_view(self):
        with Job() as job, Front(job.port) as front:
            job.daemon()
            node = job.spawn("muster", "--nnodes", 1, "--nproc-per-node", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{job.port}",
                             "--rdzv-id", job.id, "--max-restarts", 1, "--log-dir", job.directory / "logs", "-r", 3,
                             "--no-python", "sh", "-c", self.FOLLOWED, READY=str(job.directory / "follow"))
            wait_for("round 0", lambda: list((job.directory / "logs").rglob("stdout.log")), deadline=120)
            following = job.spawn("muster", "logs", "-f", job.id, "--rdzv-endpoint", f"127.0.0.1:{front.server_port}", "--all")
            wait_for("the lines of round 0", lambda: following.out.read_text().count("round 0") == 400, deadline=120)
            port = agents(job)["nodes"][0]["port"]
            front.refuses = 403
            wait_for("a refusal", lambda: "answers 403" in following.err.read_text(), deadline=120)
            (job.directory / "follow.go").touch()
            wait_for("the end of round 0", lambda: not is_open(port), deadline=120)
            refused = front.refused
            wait_for("one more refusal", lambda: front.refused > refused or following.poll() is not None, deadline=120)
            front.refuses = None
            wait_for("the lines of round 1", lambda: following.out.read_text().count("round 1") == 400, deadline=120)
            (job.directory / "follow.done").touch()
            for process in (node, following):
                job.expect_exit(process, 0, deadline=120)
            over = self.of_job(job, "-f")
            self.assertEqual((over.returncode, over.stdout), (1, ""))
            self.assertIn("the job is over; muster logs DIR shows the files", over.stderr)

    def test_a_viewer_that_is_stopped_slows_no_worker(self):
        # 40 MB: more than the sockets between agent and viewer hold.
        worker = ('echo "rank $RANK is here"; while ! test -e "$READY.go"; do sleep 0.01; done; '
                  'head -c 10000000 /dev/zero | tr "\\0" "x" | fold -w 99; echo; echo "rank $RANK is through"')
        with Job() as job:
            job.daemon()
            nodes = [job.spawn("muster", "--nnodes", 2, "--nproc-per-node", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{job.port}",
                               "--rdzv-id", job.id, "--rdzv-conf", "last_call_timeout=60", "--log-dir", job.directory / f"node {i}", "-r", 3,
                               "--report", job.directory / f"report {i}.json", "--no-python", "sh", "-c", worker,
                               READY=str(job.directory / "stopped")) for i in range(2)]
            wait_for("files", lambda: len(list(job.directory.rglob("stdout.log"))) == 4, deadline=120)
            viewer = job.spawn("muster", "logs", "-f", job.id, "--rdzv-endpoint", f"127.0.0.1:{job.port}", "--all")
            wait_for("first lines", lambda: viewer.out.read_text().count("is here") == 4, deadline=120)
            viewer.send_signal(signal.SIGSTOP)
            (job.directory / "stopped.go").touch()
            for i, node in enumerate(nodes):
                job.expect_exit(node, 0, deadline=120)
                # The launcher waits 1 s for the viewer. Who kills it then has the report.
                if i == 0:
                    self.assertGreater(time.time() - (job.directory / "report 0.json").stat().st_mtime, 0.9)
            self.assertEqual(sum(path.read_text().count("is through") for path in job.directory.rglob("stdout.log")), 4)
            viewer.send_signal(signal.SIGCONT)
            job.expect_exit(viewer, 1, deadline=120)
            self.assertIn("the last lines of 2 nodes may be missing; muster logs DIR shows the files", viewer.err.read_text())

    def test_a_reader_that_goes_ends_the_command_and_costs_the_job_nothing(self):
        with Job() as job:
            nodes = self.start_job(job)
            command = [BIN / "muster", "logs", job.id, "--rdzv-endpoint", f"127.0.0.1:{job.port}", "--all"]
            reading = subprocess.Popen(command, stdout=subprocess.PIPE, env=job.environment())
            self.assertIn(b"rank", reading.stdout.readline())
            reading.stdout.close()
            self.assertEqual(reading.wait(timeout=120), 0)
            self.assertEqual([node.poll() for node in nodes], [None, None])

    def test_what_is_missing_is_said_with_what_to_do(self):
        with Job() as job:
            job.daemon()
            for node in range(2):
                self.start_node(job)
            wait_for("four ranks", lambda: all((job.directory / f"ready.{rank}").exists() for rank in range(4)), deadline=120)
            without_files = self.of_job(job)
            self.assertIn("its workers' output goes to no files; start the job with --log-dir DIR and -r 3", without_files.stderr)
            self.assertEqual((without_files.returncode, without_files.stdout), (1, ""))
            unknown = logs(job, "nojob", "--rdzv-endpoint", f"127.0.0.1:{job.port}")
            self.assertIn("no job 'nojob'", unknown.stderr)
            self.assertIn(job.id, unknown.stderr)
            self.assertEqual(unknown.returncode, 1)
            self.assertIn("goes to no files", self.of_job(job, "-f").stderr)

    STUBBORN = """
import os, pathlib, signal, time
def here(what): return pathlib.Path(f"{os.environ['READY']}.{what}")
def stay_on_purpose():
    here(f"stopped.{rank}").touch()
    while not here("end").exists(): time.sleep(0.01)
    os._exit(0)
rank = os.environ["RANK"]
signal.signal(signal.SIGTERM, lambda *_: stay_on_purpose())
here(f"runs.{rank}").touch()
while not (rank == "0" and here("fail").exists()): time.sleep(0.01)
os._exit(3)
"""

    def test_workers_that_do_not_end_have_stacks_while_they_are_stopped(self):
        with Job() as job:
            job.daemon()
            node = job.spawn("muster", "--nnodes", 1, "--nproc-per-node", 3, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{job.port}",
                             "--rdzv-id", job.id, *FAST, "--no-python", sys.executable, "-c", self.STUBBORN, READY=str(job.directory / "ready"))
            wait_for("workers", lambda: all((job.directory / f"ready.runs.{rank}").exists() for rank in range(3)), 120)
            (job.directory / "ready.fail").touch()
            wait_for("workers that do not end", lambda: all((job.directory / f"ready.stopped.{rank}").exists() for rank in (1, 2)), 120)
            stacks = self.of_job(job, "--stacks")
            self.assertEqual((stacks.returncode, ranks_with_stacks(stacks)), (0, {1, 2}), stacks)
            self.assertIn("stay_on_purpose", stacks.stdout)
            (job.directory / "ready.end").touch()
            job.expect_exit(node, 3)

    def test_the_lines_are_for_who_has_the_job_s_key(self):
        with Job() as job:
            key, other = "0123456789abcdef" * 4, "fedcba9876543210" * 4
            job.spawn("musterd", "--port", job.port, "--first-start", MUSTER_KEY=key)
            wait_for("listening musterd", job.answers)
            for node in range(2):
                self.start_node(job, "--log-dir", job.directory / "logs", "-r", 3, MUSTER_KEY=key)
            wait_for_lines(job, "everybody\n", 4)
            of_job = [BIN / "muster", "logs", job.id, "--rdzv-endpoint", f"127.0.0.1:{job.port}"]
            command = [*of_job, "--all", "-i", "hello"]
            shown = subprocess.run(command, capture_output=True, text=True, timeout=120, env=job.environment(MUSTER_KEY=key))
            self.assertEqual(len(shown.stdout.splitlines()), 4, shown.stderr)
            stacks = subprocess.run([*of_job, "--stacks"], capture_output=True, text=True, timeout=120, env=job.environment(MUSTER_KEY=key))
            self.assertEqual(ranks_with_stacks(stacks), {0, 1, 2, 3}, stacks.stderr)
            page = f"http://127.0.0.1:{agents(job)['nodes'][0]['port']}/stacks?job={job.id}"
            with urllib.request.urlopen(page, timeout=60) as answer:  # the agent's own user
                self.assertIn(b"rank ", answer.read())
            if os.geteuid() == 0:
                stranger = subprocess.run([*as_user(NOBODY), "bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{page.split(':')[2].split('/')[0]}; "
                                           f"printf 'GET /stacks?job={job.id} HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3"],
                                          capture_output=True, text=True, timeout=60)
                self.assertTrue(stranger.stdout.startswith("HTTP/1.1 403 "), stranger)
                self.assertNotIn("rank ", stranger.stdout)
            refused = subprocess.run(command, capture_output=True, text=True, timeout=120, env=job.environment(MUSTER_KEY=other))
            self.assertEqual((refused.returncode, refused.stdout), (1, ""))
            self.assertEqual(refused.stderr.count("it has another key of the job; give the same secret to this command"), 2)


if __name__ == "__main__":
    unittest.main()
