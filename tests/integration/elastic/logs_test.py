"""muster logs: --failed of a folder's files, and the files of a running job's nodes."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

from job import BIN, NOBODY, Job, as_user, wait_for
from log_views import Front, agents, late_ones, logs, of_job, ranks_with_stacks, wait_for_lines

FAST = ("--lease", 5)


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
            none = of_job(job, "--failed")
            self.assertEqual((none.returncode, none.stdout), (1, ""))
            self.assertIn("no worker of the job has failed, as far as this daemon knows since its start", none.stderr)
            job.touch("fail")
            wait_for_lines(job, r"rank \d of round 1\n", 3)
            shown = of_job(job, "--failed", "--all")
            self.assertEqual((shown.returncode, shown.stdout), (0, "[1]: rank 1 of round 0\n"), shown.stderr)
            refused = of_job(job, "--failed", "-f")
            self.assertEqual((refused.returncode, refused.stdout), (2, ""))
            self.assertIn("--failed shows who has failed by now", refused.stderr)
            self.assertEqual(len(of_job(job, "--all").stdout.splitlines()), 6)

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

    def test_the_lines_of_all_nodes_of_a_job_are_one_stream(self):
        with Job() as job:
            self.start_job(job)
            shown = of_job(job, "--all")
            self.assertEqual(shown.returncode, 0, shown.stderr)
            self.assertEqual(sorted(shown.stdout.splitlines()),
                             sorted(line for rank in range(4) for line in (f"[{rank}]: rank {rank} says hello", f"[{rank}]: rank {rank} warns",
                                                                           f"[{rank}]: everybody")))
            folded = of_job(job, "-i", "everybody", "-n", 1)
            late = late_ones(of_job(job, "-i", "everybody", "--times").stdout.splitlines())  # of a busy machine
            self.assertRegex(folded.stdout, r"\A\[.\]: everybody\n" + (r"  \[same from all 4 ranks\]\n\Z" if late == 0 else ""))
            self.assertEqual(sorted(of_job(job, "--rank", "1,2", "--stream", "err", "--all").stdout.splitlines()),
                             ["[1]: rank 1 warns", "[2]: rank 2 warns"])
            self.assertEqual(of_job(job, "--round", 7).stdout, "")
            stacks = of_job(job, "--stacks")
            self.assertEqual((stacks.returncode, stacks.stderr), (0, ""))
            self.assertEqual(ranks_with_stacks(stacks), {0, 1, 2, 3}, stacks.stdout)
            self.assertEqual(len(set(re.findall(r"\S+ \(pid \d+\)", stacks.stdout))), 2, stacks.stdout)
            self.assertIn("--stacks asks the agents", logs(job, job.directory / "node 0", "--stacks").stderr)
            stacks = of_job(job, "--stacks", "--rank", "1,3-9")
            self.assertEqual((stacks.returncode, ranks_with_stacks(stacks)), (0, {1, 3}), stacks)
            stacks = of_job(job, "--stacks", "--rank", "0")
            self.assertEqual((stacks.returncode, ranks_with_stacks(stacks)), (0, {0}), stacks)
            stacks = of_job(job, "--stacks", "--rank", "17")
            self.assertEqual((stacks.returncode, stacks.stdout), (1, ""))
            self.assertIn("no node that has answered has a worker of these ranks now", stacks.stderr)
            for words in (("--round", 7), ("-i", "nothing"), ("--since=5",), ("--times",), ("-f",)):
                refused = of_job(job, "--stacks", *words)
                self.assertEqual((refused.returncode, refused.stdout), (2, ""))
                self.assertIn("--stacks shows no lines, among which " + str(words[0]).split("=")[0], refused.stderr)
            host, port = (agents(job)["nodes"][0][name] for name in ("host", "port"))
            self.assertEqual(len(of_job(job, "--node", host, "--all", "-i", "hello").stdout.splitlines()), 4)
            self.assertEqual(len(logs(job, job.directory / "node 0", "--node", host, "--all", "-i", "hello").stdout.splitlines()), 2)
            refused = of_job(job, "--node", "other")
            self.assertEqual((refused.returncode, refused.stdout), (1, ""))
            self.assertIn(f"--node: the job has no node 'other' now; it has {host}", refused.stderr)
            for path in ("logs", "stacks"):
                with self.assertRaises(urllib.error.HTTPError) as refusal:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}?job=other", timeout=60)
                self.assertEqual(refusal.exception.code, 404)
                refusal.exception.close()
            self.assertEqual(len(of_job(job, "--round", "last", "--all", "-n", 5).stdout.splitlines()), 5)

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
    # Each line is written 2 s after the one before it is in a file, by ranks that take turns. The test begins each turn.
    IN_TURNS = ('for turn in 0 1 2 3; do while ! test -e "$READY.$turn"; do sleep 0.01; done; '
                'if test $((turn % 2)) = $RANK; then sleep 2; echo "turn $turn"; fi; done; exec sleep 600')

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
            for turn in range(4):
                (job.directory / f"turn.{turn}").touch()
                wait_for_lines(job, r"turn \d\n", turn + 1)
            shown = of_job(job, "--all")
            self.assertEqual([line.split(": ")[1] for line in shown.stdout.splitlines()], [f"turn {turn}" for turn in range(4)], shown.stderr)
            # By the files alone the order is that of the wrong clocks.
            folders = [job.directory / f"logs {ahead}" for ahead in (3600, -3600)]
            self.assertNotEqual(logs(job, *folders, "--all").stdout, shown.stdout)

    def test_a_node_that_goes_away_is_said_and_the_others_are_shown(self):
        with Job() as job:
            nodes = self.start_job(job, ("--lease", 120), ("--lease", 120))
            # Stopped: its port accepts, and nobody answers.
            os.kill(nodes[1].pid, signal.SIGSTOP)
            shown = of_job(job, "--all", "-i", "hello")
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
            shown = of_job(job, "--all", "-i", "hello|forged")
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
            shown = of_job(job, "--all", "-i", "hello")
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

    def test_a_reader_of_files_that_goes_ends_the_command(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "job_x", "attempt_0", "0", "stdout.log")
            file.parent.mkdir(parents=True)
            file.write_text("--- round 0 ---\n" + "more than a pipe holds\n" * 100_000)
            reading = subprocess.Popen([BIN / "muster", "logs", folder, "--all"], stdout=subprocess.PIPE)
            self.assertTrue(reading.stdout.readline())
            reading.stdout.close()
            self.assertEqual(reading.wait(timeout=120), 0)

    def test_what_is_missing_is_said_with_what_to_do(self):
        with Job() as job:
            job.daemon()
            for node in range(2):
                self.start_node(job)
            wait_for("four ranks", lambda: all((job.directory / f"ready.{rank}").exists() for rank in range(4)), deadline=120)
            without_files = of_job(job)
            self.assertIn("its workers' output goes to no files; start the job with --log-dir DIR and -r 3", without_files.stderr)
            self.assertEqual((without_files.returncode, without_files.stdout), (1, ""))
            unknown = logs(job, "nojob", "--rdzv-endpoint", f"127.0.0.1:{job.port}")
            self.assertIn("no job 'nojob'", unknown.stderr)
            self.assertIn(job.id, unknown.stderr)
            self.assertEqual(unknown.returncode, 1)
            self.assertIn("goes to no files", of_job(job, "-f").stderr)

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
            stacks = of_job(job, "--stacks")
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
            hello = ("--all", "-i", "hello")
            shown = of_job(job, *hello, MUSTER_KEY=key)
            self.assertEqual(len(shown.stdout.splitlines()), 4, shown.stderr)
            stacks = of_job(job, "--stacks", MUSTER_KEY=key)
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
            refused = of_job(job, *hello, MUSTER_KEY=other)
            self.assertEqual((refused.returncode, refused.stdout), (1, ""))
            self.assertEqual(refused.stderr.count("it has another key of the job; give the same secret to this command"), 2)


if __name__ == "__main__":
    unittest.main()
