"""muster logs -f: a running job is followed from round to round, and to its end."""
import os
import signal
import unittest

from job import Job, wait_for
from log_views import Front, agents, is_open, logs, of_job, wait_until_followed


def start(job, folder, script, *options):
    return job.spawn("muster", *options, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{job.port}", "--rdzv-id", job.id, "--rdzv-conf",
                     "last_call_timeout=60", "--log-dir", folder, "-r", 3, "--no-python", "sh", "-c", script)


def follow(job, port):
    return job.spawn("muster", "logs", "-f", job.id, "--rdzv-endpoint", f"127.0.0.1:{port}", "--all")


class LogsFollow(unittest.TestCase):
    FOLLOWED = ('for i in $(seq 200); do echo "round $MUSTER_ROUND rank $RANK line $i"; done; '
                'if test $MUSTER_ROUND = 0; then while ! test -e go; do sleep 0.01; done; '
                'for i in $(seq 200); do echo "end of round 0 rank $RANK line $i"; done; test $RANK = 0 && exit 3; exec sleep 600; fi; '
                'while ! test -e more; do sleep 0.01; done; echo "round 1 rank $RANK line 201"; '
                'while ! test -e done; do sleep 0.01; done')

    def test_follow_goes_on_through_a_restart_without_a_line_missing_or_twice(self):
        with Job() as job:
            job.daemon()
            folders = [job.directory / f"node {i}" for i in range(2)]
            nodes = [start(job, folder, self.FOLLOWED, "--nnodes", 2, "--nproc-per-node", 2, "--max-restarts", 1) for folder in folders]

            def shown():
                return sorted(line.removeprefix("~") for line in following.out.read_text().splitlines())

            def lines_of(round_number, count=200):
                return sorted(f"[{rank}]: round {round_number} rank {rank} line {i + 1}" for rank in range(4) for i in range(count))

            wait_for("round 0", lambda: all(list(folder.rglob("stdout.log")) for folder in folders), deadline=120)
            following = follow(job, job.port)
            wait_for("the lines of round 0", lambda: shown() == lines_of(0), deadline=120)
            job.touch("go")
            wait_until_followed(job, following)
            job.touch("more")
            wait_for("the lines of round 1", lambda: set(lines_of(1, 201)) <= set(shown()), deadline=120)
            job.touch("done")
            for process in (*nodes, following):
                job.expect_exit(process, 0, deadline=120)
            self.assertEqual(shown(), sorted(logs(job, *folders, "--all").stdout.splitlines()))

    def test_a_last_round_that_was_over_before_it_was_seen_is_not_passed_over_in_silence(self):
        with Job() as job:
            job.daemon()
            node = start(job, job.directory / "node", self.LAST_WORDS, "--nnodes", 1, "--nproc-per-node", 1, "--max-restarts", 1)
            wait_for("round 0", lambda: list(job.directory.rglob("stdout.log")), deadline=120)
            following = follow(job, job.port)
            wait_for("first line", lambda: "is here" in following.out.read_text(), deadline=120)
            os.kill(following.pid, signal.SIGSTOP)
            job.touch("go")
            job.expect_exit(node, 3, deadline=120)
            os.kill(following.pid, signal.SIGCONT)
            job.expect_exit(following, 1, deadline=120)
            self.assertIn("the job is over; its last round ended before it was seen; muster logs DIR shows the files\n",
                          following.err.read_text())

    # Nothing comes between the last lines and the end of the round.
    LAST_WORDS = ('echo "rank $RANK is here"; while ! test -e go; do sleep 0.01; done; test $RANK = 0 || exec sleep 600; '
                  'for i in $(seq 200); do echo "last line $i"; done; printf "no end"; exit 3')

    def test_the_last_lines_of_a_job_that_fails_are_shown_and_its_end_is_said_once(self):
        with Job() as job:
            job.daemon()
            nodes = [start(job, job.directory / f"node {i}", self.LAST_WORDS, "--nnodes", 2, "--nproc-per-node", 1) for i in range(2)]
            wait_for("files", lambda: len(list(job.directory.rglob("stdout.log"))) == 2, deadline=120)
            following = follow(job, job.port)
            wait_for("first lines", lambda: following.out.read_text().count("is here") == 2, deadline=120)
            job.touch("go")
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
            node = start(job, job.directory / "logs", self.FOLLOWED, "--nnodes", 1, "--nproc-per-node", 2, "--max-restarts", 1)
            wait_for("round 0", lambda: list((job.directory / "logs").rglob("stdout.log")), deadline=120)
            following = follow(job, front.server_port)
            wait_for("the lines of round 0", lambda: following.out.read_text().count("round 0") == 400, deadline=120)
            port = agents(job)["nodes"][0]["port"]
            front.refuses = 403
            wait_for("a refusal", lambda: "answers 403" in following.err.read_text(), deadline=120)
            job.touch("go")
            wait_for("the end of round 0", lambda: not is_open(port), deadline=120)
            refused = front.refused
            wait_for("one more refusal", lambda: front.refused > refused or following.poll() is not None, deadline=120)
            front.refuses = None
            wait_until_followed(job, following)
            job.touch("more")
            wait_for("the lines of round 1", lambda: following.out.read_text().count("round 1") == 402, deadline=120)
            job.touch("done")
            for process in (node, following):
                job.expect_exit(process, 0, deadline=120)
            over = of_job(job, "-f")
            self.assertEqual((over.returncode, over.stdout), (1, ""))
            self.assertIn("the job is over; muster logs DIR shows the files", over.stderr)


if __name__ == "__main__":
    unittest.main()
