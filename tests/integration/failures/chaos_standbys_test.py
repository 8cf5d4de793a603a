"""scripts/bench/chaos --warm tells standby processes from workers, whatever one of them has become, and its faults hit the former."""
import pathlib
import random
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "scripts/bench/faults"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "scripts/bench"))
import chaos_job  # noqa: E402
from chaos_faults import Chaos  # noqa: E402
from measuring import BUILD  # noqa: E402

WORKERS = 2
SCRIPT = """import os, signal
if os.environ["RANK"] == "0":
    print("world 2: training from the start", flush=True)
signal.pause()
"""


def command_in(folder):
    (folder / "script.py").write_text(SCRIPT)
    return ["--warm-workers", WORKERS, "--warm-imports", "json", "--log-level", "info", folder / "script.py"]


def pids_of(job, which):
    return {pid for name in job.agents for pid in which(name)}


def told(job, pattern):
    return {int(found[1]) for one in job.everybody for _, line in list(one.lines) if (found := re.search(pattern, line))}


def state(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0]
    except OSError:
        return "gone"


class ChaosStandbys(unittest.TestCase):
    def setUp(self):
        self.nodes, chaos_job.NODES = chaos_job.NODES, 1  # and the spare

    def tearDown(self):
        chaos_job.NODES = self.nodes

    def test_faults_of_standby_processes_hit_no_worker(self):
        with chaos_job.ChaosJob(BUILD, command_in, 5, PYTHON_EXEC=sys.executable) as job:
            job.start()
            chaos = Chaos(job, random.Random(1))
            job.until("standby processes of both nodes", lambda: len(told(job, r"\(pid (\d+)\) is ready")) == 2 * WORKERS, 60)
            ready = told(job, r"\(pid (\d+)\) is ready")
            workers = pids_of(job, job.workers)
            self.assertEqual((pids_of(job, job.standbys), len(workers), job.warm_workers()), (ready, WORKERS, 0))
            chaos.worker_signalled()
            job.until("the next workers", lambda: len(now := pids_of(job, job.workers)) == WORKERS and not now & workers, 60)
            job.until("the next round", lambda: len(job.begun) == 2, 60)
            workers = pids_of(job, job.workers)
            if "did not take over" not in job.story():
                self.assertEqual((len(workers & ready), job.warm_workers()), (WORKERS, WORKERS))
            said = chaos.standby_stopped(), chaos.standby_killed()
            stopped, killed = (int(one.removeprefix("pid ")) for one in said)
            self.assertEqual({stopped, killed} & workers, set())
            job.until("the end of a standby process", lambda: state(killed) == "gone", 20)
            job.until("a stopped standby process", lambda: state(stopped) == ("T" if stopped != killed else "gone"), 20)
            self.assertEqual(pids_of(job, job.workers), workers)


if __name__ == "__main__":
    unittest.main()
