"""Steps that workers report: the status, the events and the time of a job follow from them."""
import json
import os
import pathlib
import sys
import time
import unittest
import urllib.request
import xml.etree.ElementTree

from job import Job, wait_for
from events_test import events_of, types
from status_test import status

FAST = ("--lease", 5)
# Speaks to its agent as muster's runtime does (rendezvous/wire/local): Hello with its token, then Progress. It steps on
# while there is a file "step" in its directory that names a step, and ends with "done", or fails with "fail".
WORKER = r"""
import itertools, os, pathlib, socket, struct, sys, time
folder = pathlib.Path(sys.argv[1])
link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
address = os.environ["MUSTER_AGENT_SOCKET"]
link.connect("\0" + address[1:] if address.startswith("@") else address)
token = os.environ["MUSTER_AGENT_TOKEN"].encode()
runtime = b"a test"
link.send(struct.pack("<BIi", 1, 1, os.getpid()) + struct.pack("<H", len(runtime)) + runtime + struct.pack("<H", len(token)) + token)
link.send(struct.pack("<BH", 3, 10) + b"checkpoint" + struct.pack("<Q", 0))  # until its first step
loads, names = True, itertools.cycle((b"evaluation", b"checkpoint"))
(folder / ("started-" + os.environ["RANK"] + "-" + os.environ["MUSTER_ROUND"])).touch()
while not (folder / "done").exists():
    if os.environ["MUSTER_ROUND"] == "0" and (folder / "fail").exists() and os.environ["RANK"] == "1":
        sys.exit(3)
    if (folder / "step").exists():
        section = next(names) if (folder / "sections").exists() else b""
        if section or loads:
            link.send(struct.pack("<BH", 3, len(section)) + section + struct.pack("<Q", 0))
            loads = bool(section)
        link.send(struct.pack("<Bq", 2, int((folder / "step").read_text() or 0)))
    time.sleep(0.05)  # a step
"""
# Its last checkpoint is of step 40, and it kills itself right after step 57.
TRAINER = r"""
import os, pathlib, signal, sys, time
import muster
folder, first = pathlib.Path(sys.argv[1]), os.environ["MUSTER_ROUND"] == "0"
with open(folder / "steps", "a") as done:
    for step in range(1 if first else 41, 10 ** 9):
        time.sleep(0.05)  # a step: agents look once a second
        print(step, file=done, flush=True)
        muster.progress(step)
        if first and step == 57:
            os.kill(os.getpid(), signal.SIGKILL)
        if (folder / "done").exists():
            break
"""
PYTHON = pathlib.Path(__file__).resolve().parents[3] / "worker_runtime/python"


class Steps(unittest.TestCase):
    def test_the_time_of_a_job_is_counted_by_the_steps_of_its_workers(self):
        with Job() as job:
            job.daemon()
            script = job.directory / "worker.py"
            script.write_text(WORKER)
            report = job.directory / "report.json"
            node = job.spawn("muster", "--nnodes", 1, "--nproc-per-node", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint",
                             f"127.0.0.1:{job.port}", "--rdzv-id", job.id, "--max-restarts", 1, *FAST, "--report", report,
                             "--no-python", sys.executable, script, job.directory, MUSTER_SUBMITTED_AT=str(int(time.time()) - 100))

            def page():
                return json.loads(status(job, job.id, "--json").stdout)["jobs"][0]

            def write(step):
                (job.directory / "new").write_text(str(step))
                (job.directory / "new").rename(job.directory / "step")

            for rank in (0, 1):
                wait_for("start of a worker", (job.directory / f"started-{rank}-0").exists)
            before = page()
            self.assertNotIn("step", before)
            self.assertGreater(before["goodput"]["pending"], 0)
            write(10)
            wait_for("first step in the status", lambda: page().get("step") == 10)
            wait_for("stepping time", lambda: page()["goodput"]["stepping"] > 0.5)
            self.assertIn("step 10", status(job).stdout)
            job.touch("sections")
            wait_for("time in both", lambda: min(page()["goodput"].get(one, 0) for one in ("section:evaluation", "checkpoint_blocked")) > 1)
            (job.directory / "sections").unlink()
            job.touch("fail")
            wait_for("start of the next round", (job.directory / "started-1-1").exists)
            wait_for("first step of the next round", lambda: page().get("step") == 10)
            spent = page()["goodput"]
            buckets = ("waiting_nodes", "starting", "stepping", "data_wait", "hung", "unmeasured", "stopping", "reconfiguring",
                       "queued", "loading_checkpoint", "checkpoint_blocked", "detecting", "section:evaluation", "pending")
            self.assertAlmostEqual(sum(spent[one] for one in buckets), spent["wall_clock"], places=6)
            self.assertGreaterEqual(spent["queued"], 100)
            self.assertGreater(spent["loading_checkpoint"], 0)
            self.assertEqual(spent["lost_steps"], 1)  # step 10, once more
            job.finish()
            job.expect_exit(node, 0)
            events = wait_for("end of the job", lambda: (found := events_of(job)) and types(found)[-1] == "job.ended" and found)
            told = types(events)
            self.assertEqual(told.count("round.stepping"), 2, told)
            ended = next(event for event in events if event["type"] == "muster.round.ended.v1")
            self.assertEqual(ended["data"]["step"], 10)
            self.assertIn("% of", json.loads(report.read_text())["goodput"])
            picture = job.directory / "timeline.svg"
            drawn = status(job, job.id, "--plot", picture)
            self.assertEqual(drawn.returncode, 0, drawn.stderr)
            titles = [title.text for title in xml.etree.ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}title")]
            for word in ("round 0, stepping for", "round 1, starting for", "waiting for nodes for", "failed: exit code 3"):
                self.assertTrue(any(word in title for title in titles), titles)
            listed = status(job, f"--job={job.id}", "--events")
            self.assertEqual(listed.returncode, 0, listed.stderr)
            as_json = [json.loads(line) for line in status(job, job.id, "--events", "--json").stdout.splitlines()]
            self.assertEqual(listed.stdout.splitlines(), [f"{one['time'][:19]}Z {one['data']['text']}" for one in as_json])
            self.assertIn("job.ended", as_json[-1]["type"])
            here = status(job, job.id, "--events", "--node", os.uname().nodename).stdout.splitlines()
            self.assertTrue(here and set(here) < set(listed.stdout.splitlines()), here)
            as_json = status(job, job.id, "--events", "--json", "--node", os.uname().nodename).stdout.splitlines()
            self.assertEqual([json.loads(line)["data"]["text"] for line in as_json], [line[21:] for line in here])
            for words, told in ((("nosuch", "--plot", picture), "no job 'nosuch'"), (("nosuch", "--events"), "no job 'nosuch'"),
                                ((job.id, "--node", "x"), "write --events"), ((job.id, "--plot", "/nowhere/x.svg"), "write /nowhere/x.svg"),
                                ((job.id, "--plot", picture, "--watch"), "leave out --watch"),
                                ((job.id, "--plot", picture, "--events"), "write one of them"),
                                ((job.id, "--events", "--node", "elsewhere"), "no events of node 'elsewhere'")):
                wrong = status(job, *words)
                self.assertIn(wrong.returncode, (1, 2))
                self.assertIn(told, wrong.stderr)

    def test_lost_work_is_exactly_what_the_program_repeats_also_of_a_worker_that_kills_itself(self):
        with Job() as job:
            job.daemon()
            script = job.directory / "trainer.py"
            script.write_text(TRAINER)
            node = job.spawn("muster", "--nnodes", 1, "--nproc-per-node", 1, "--rdzv-backend", "c10d", "--rdzv-endpoint",
                             f"127.0.0.1:{job.port}", "--rdzv-id", job.id, "--max-restarts", 1, *FAST, "--no-python",
                             sys.executable, script, job.directory, PYTHONPATH=str(PYTHON), MUSTER_LIBRARY=os.environ["MUSTER_LIBRARY"])

            def page():
                return json.loads(status(job, job.id, "--json").stdout)["jobs"][0]

            wait_for("start of the trainer", (job.directory / "steps").exists)
            wait_for("first step of the next round", lambda: page()["round"] == 1 and "step" in page())
            self.assertEqual(page()["goodput"]["lost_steps"], 57 - 41 + 1)
            job.finish()
            job.expect_exit(node, 0)
            done = [int(line) for line in (job.directory / "steps").read_text().split()]
            with urllib.request.urlopen(f"http://127.0.0.1:{job.port}/metrics", timeout=60) as answer:
                text = answer.read().decode()
            self.assertIn(f'muster_job_steps_total{{job="{job.id}"}} {len(done)}\n', text)
            # The first step of each round began at an unknown time.
            self.assertIn(f'muster_job_step_seconds_count{{job="{job.id}"}} {len(done) - 2}\n', text)


if __name__ == "__main__":
    unittest.main()
