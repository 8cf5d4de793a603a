"""--on-worker-failure=keep: a worker that fails is started again alone. The others keep their processes, their round and
their store."""
import json
import os
import re
import signal
import sys
import unittest

from job import Job, wait_for

# Says who it is, then waits for the end of the job, or for a file that asks this rank to fail.
WORKER = """
import os, pathlib, subprocess, sys, time
rank, again = os.environ["RANK"], os.environ.get("MUSTER_STARTED_AGAIN", "0")
child = subprocess.Popen(["sleep", "600"]) if "--child" in sys.argv else None
with open(os.environ["ELASTIC_LOG"], "a") as log:
    log.write(f"start rank={rank} round={os.environ['MUSTER_ROUND']} pid={os.getpid()} again={again} "
              f"restarts={os.environ['TORCHELASTIC_RESTART_COUNT']} port={os.environ['MASTER_PORT']} "
              f"child={child.pid if child else 0}\\n")
while not pathlib.Path("done").exists():
    time.sleep(0.01)
    if pathlib.Path(f"raise.{rank}.{again}").exists():
        import json
        with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
            json.dump({"message": {"message": f"planned {again}", "extraInfo": {"timestamp": "1"}}}, file)
        sys.exit(3)
if child:
    child.kill()
    child.wait()
"""


def start(job, *options, nproc=3, worker=(), nodes=None, **extra):
    (job.directory / "worker.py").write_text(WORKER)
    where = () if nodes is None else ("--nnodes", nodes, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{job.port}",
                                      "--rdzv-id", job.id, "--rdzv-conf", "last_call_timeout=60")
    return job.spawn("muster", "--nproc-per-node", nproc, "--on-worker-failure=keep", *where, *options, "worker.py", *worker,
                     PYTHON_EXEC=sys.executable, **extra)


def started(job, rank, again, number=0):
    return wait_for(f"start {again} of rank {rank} in round {number}",
                    lambda: job.starts(rank=rank, round=number, again=again))[0]


class Keep(unittest.TestCase):
    def test_the_others_keep_their_processes(self):
        with Job() as job:
            launcher = start(job)
            job.round(0, 3)
            for again in (1, 2):
                os.kill(started(job, 1, again - 1)["pid"], signal.SIGKILL)
                now = started(job, 1, again)
                self.assertEqual(now["port"], started(job, 0, 0)["port"])
                self.assertEqual(now["restarts"], 0)
            job.finish()
            job.expect_exit(launcher, 0)
            self.assertEqual(len(job.starts()), 5, job.story())
            self.assertIn("rank 1 on ", launcher.err.read_text())
            self.assertIn("starting it again (2 of 3 times in this round), the other workers keep running",
                          launcher.err.read_text())
            job.expect_gone()

    def test_after_the_limit_the_round_ends(self):
        with Job() as job:
            launcher = start(job, "--keep-limit=1", "--max-restarts=1")
            before = job.round(0, 3)
            os.kill(before[2]["pid"], signal.SIGKILL)
            os.kill(started(job, 2, 1)["pid"], signal.SIGKILL)
            after = job.round(1, 3)
            self.assertEqual({line["again"] for line in after.values()}, {0})
            self.assertEqual({line["restarts"] for line in after.values()}, {1})
            job.finish()
            job.expect_exit(launcher, 0)

    def test_another_node_hears_nothing(self):
        with Job() as job:
            launchers = [start(job, nproc=2, nodes=2) for _ in range(2)]
            before = job.round(0, 4)
            for rank in before:  # whichever node has rank 0 and the store
                os.kill(before[rank]["pid"], signal.SIGKILL)
                started(job, rank, 1)
            job.finish()
            for launcher in launchers:
                job.expect_exit(launcher, 0)
            self.assertEqual(len(job.starts(round=0)), 8, job.story())
            self.assertEqual(job.starts(round=1), [])

    def test_nothing_of_the_failed_worker_is_left_beside_the_new_one(self):
        with Job() as job:
            launcher = start(job, nproc=2, worker=("--child",))
            before = job.round(0, 2)
            os.kill(before[0]["pid"], signal.SIGKILL)
            started(job, 0, 1)
            self.assertNotIn(before[0]["child"], job.processes())
            self.assertIn(before[1]["child"], job.processes())
            job.finish()
            job.expect_exit(launcher, 0)

    def test_each_failure_keeps_its_error_file(self):
        with Job() as job:
            launcher = start(job, "--log-dir", "logs", "--redirects", "3", nproc=2)
            job.round(0, 2)
            job.touch("raise.1.0")
            started(job, 1, 1)
            job.touch("raise.1.1")
            started(job, 1, 2)
            job.finish()
            job.expect_exit(launcher, 0)
            found = sorted((job.directory / "logs").rglob("error*.json"))
            self.assertEqual([path.name for path in found], ["error.round-0-start-1.json", "error.round-0-start-2.json"])
            self.assertEqual([json.loads(path.read_text())["message"]["message"] for path in found], ["planned 0", "planned 1"])
            log = next((job.directory / "logs").rglob("1/stdout.log"))
            self.assertIn("--- round 0, start 2 ---", log.read_text())

    def test_a_standby_process_takes_the_place(self):
        with Job() as job:
            launcher = start(job, "--warm-workers=1", "--warm-imports=json", "--log-level=info", nproc=2)
            failing = job.round(0, 2)[0]

            def ready():
                return re.findall(r"\(pid (\d+)\) is ready; it has", launcher.err.read_text())
            for again in (1, 2, 3):
                standby = int(wait_for("standby process", lambda: ready()[again - 1:])[0])
                os.kill(failing["pid"], signal.SIGKILL)
                failing = started(job, 0, again)
                if failing["pid"] == standby:
                    break
                # On a busy machine it may not answer within half a second; the next one may.
                wait_for("the line of the one that was late",
                         lambda: launcher.err.read_text().count("its standby process did not take over") >= again)
            self.assertEqual(failing["pid"], standby, job.story())
            job.finish()
            job.expect_exit(launcher, 0)


if __name__ == "__main__":
    unittest.main()
