"""In a job: the looks while a node joins, the site's own health check, and settings that differ between nodes."""
import json
import os
import pathlib
import re
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "elastic"))
from job import Job, wait_for  # noqa: E402
from node_test import LOST_PORT  # noqa: E402
from nodes_test import job_status  # noqa: E402
from sick_node import roomy, silent_disk  # noqa: E402

GPUS = {"MUSTER_NVML_LIBRARY": os.environ["FAKE_NVML_LIBRARY"], "FAKE_NVML": "GPU-a;GPU-b"}
SICK = {**GPUS, "FAKE_NVML_HEALTH": "1 rows-failed 1"}
FAST = ("--lease", 10)  # nothing here is about a lost node
UNTIL_DONE = "until [ -e done ]; do sleep 0.01; done"
UNSHARE_MOUNTS = ("unshare", "--mount", "--propagation", "private")


def without_slow_looks(said):
    """What a launcher said, but for what only a busy host lets it and its looks say."""
    slow = r"could not look: \S+: .*no answer within .*|warning: (disk-write: .*wrote and synced|lookup-time: ).*"
    return re.sub(rf"(?m)^.*(preflight: ({slow})|this launcher stood still for .*)\n", "", said)


class Preflight(unittest.TestCase):
    def launch(self, job, *options, worker="true", **environment):
        return job.spawn("muster", *options, "--no-python", "/bin/sh", "-c", worker, **environment)

    def looked(self, job, *options, **environment):
        """What a launcher said, and its events; its worker ends after all looks at the node."""
        done, events, limits = (job.directory / name for name in ("done", "events.jsonl", "roomy"))
        done.unlink(missing_ok=True)
        events.unlink(missing_ok=True)
        if "--preflight-limits" not in options:
            limits.write_text(roomy())
            options = (*options, "--preflight-limits", limits)
        launcher = self.launch(job, "--events", events, *options, worker=UNTIL_DONE, **environment)
        wait_for("the verdict", lambda: events.exists() and "muster.doctor.verdict.v1" in events.read_text())
        done.touch()
        self.assertEqual(launcher.wait(60), 0, launcher.err.read_text())
        return launcher.err.read_text(), [json.loads(line) for line in events.read_text().splitlines()]

    def test_a_fault_of_the_node_is_logged_and_the_job_goes_on(self):
        with Job() as job:
            said, told = self.looked(job, **SICK)
            self.assertIn("preflight: critical: gpu-remapped-rows: GPU 1 (0000:e1:00.0, GPU-b): a row", said)
            self.assertEqual(without_slow_looks(said).count("preflight:"), 1, said)
            finding, = [one for one in told if "gpu-remapped-rows" in one["data"]["text"]]
            self.assertEqual((finding["type"], finding["data"]["check"], finding["data"]["level"]),
                             ("muster.doctor.check.v1", "gpu-remapped-rows", "critical"))
            self.assertIn(finding["data"]["text"], said)
            verdict, = [one["data"] for one in told if one["type"] == "muster.doctor.verdict.v1"]
            self.assertEqual(verdict["level"], "critical")
            self.assertIn("preflight: 1 critical", verdict["text"])

    def test_checks_are_left_out_and_limits_changed_by_options(self):
        with Job() as job:
            limits = job.directory / "limits"
            limits.write_text(roomy() + "gpu-count = 3\n")
            said, _ = self.looked(job, "--preflight-skip=gpu-remapped-rows,kernel-log", **SICK)
            self.assertEqual(without_slow_looks(said), "")
            said, _ = self.looked(job, "--preflight-limits", limits, **GPUS)
            self.assertIn("preflight: critical: gpu-count: ", said)
            limits.write_text("gpu-counts = 3\n")
            for words, sentence in ((("--preflight-skip", "gpu-row"), "--preflight-skip: there is no check 'gpu-row'"),
                                    (("--preflight-limits", limits), "line 1: there is no limit 'gpu-counts'; the nearest is gpu-count"),
                                    (("--preflight-limits", "/none"), "--preflight-limits: read /none")):
                wrong = self.launch(job, *words)
                self.assertEqual(wrong.wait(60), 2, words)
                self.assertIn(sentence, wrong.err.read_text())

    def test_a_driver_that_hangs_holds_up_no_worker_and_no_end(self):
        with Job() as job:
            # The check of GPU memory before workers start has its own limit; the driver hangs for ever.
            launcher = self.launch(job, worker="echo started", **{**GPUS, "FAKE_NVML": "hang"})
            self.assertEqual(launcher.wait(60), 0, launcher.err.read_text())

    @unittest.skipUnless(os.environ.get("CI") == "true" or os.geteuid() == 0, "mounting needs root")
    def test_a_checkpoint_disk_that_hangs_holds_up_no_start(self):
        with Job() as job:
            hung, started, done = (job.directory / name for name in ("hung", "started", "done"))
            hung.mkdir()
            worker = f'touch "{started}"; until [ -e "{done}" ]; do sleep 0.01; done'
            launcher = job.spawn("muster", "--checkpoint-dir", hung, "--no-python", "/bin/sh", "-c", worker,
                                 before=[*UNSHARE_MOUNTS, *silent_disk(str(hung))])
            said = launcher.err.read_text
            wait_for("word of the disk", lambda: f"preflight: could not look: disks: {hung}: no answer within 3 s" in said())
            wait_for("the worker", started.exists)
            done.touch()
            self.assertEqual(launcher.wait(60), 0, said())

    def test_off_looks_at_nothing(self):
        with Job() as job:
            launcher = self.launch(job, "--preflight=off", worker="touch off; " + UNTIL_DONE, **SICK)
            wait_for("its worker", (job.directory / "off").exists)
            self.looked(job, **SICK)  # begins later, and takes as long as its own looks would
            self.assertEqual(launcher.wait(60), 0)
            self.assertNotIn("preflight", launcher.err.read_text())
            wrong = self.launch(job, "--preflight=all")
            self.assertEqual(wrong.wait(60), 2)
            self.assertIn("accepted is off, local, pairs or full", wrong.err.read_text())

    @unittest.skipUnless("STANDIN_CUDA" in os.environ, "built without the headers of CUDA")
    def test_full_names_a_gpu_that_computes_wrong_results_before_the_workers_start(self):
        with Job() as job:
            faults = {**GPUS, "FAKE_NVML": "GPU-b", "MUSTER_CUDA_LIBRARY": os.environ["STANDIN_CUDA"],
                      "MUSTER_STANDIN_GPU_FAULT": "muster_CheckHalves", "TZ": "UTC"}
            launcher = self.launch(job, "--preflight=full", worker="echo worker $(date -u +%FT%T.%3N) >&2", **faults)
            self.assertEqual(launcher.wait(150), 0, launcher.err.read_text())
            said = launcher.err.read_text()
            self.assertRegex(said, r"preflight: critical: gpu-checksum: GPU 0 \(0000:e0:00.0, GPU-b\): .* f16 are wrong")
            # By the times: the log and the workers' output are written by threads of their own.
            named, began = (re.search(pattern, said)[1] for pattern in (r"(\S+)\+00:00 .* gpu-checksum", r"worker (\S+)"))
            self.assertLess(named, began)

    @unittest.skipUnless(os.environ.get("CI") == "true" or os.geteuid() == 0, "mounting needs root")
    def test_full_writes_to_no_rdma_port_that_another_job_may_use(self):
        with Job() as job:
            written, program = job.directory / "written", job.directory / "bin/ib_write_bw"
            program.parent.mkdir()
            program.write_text(f'#!/bin/sh\n: > "{written}"\n')
            program.chmod(0o755)
            active = LOST_PORT.replace("DOWN", "ACTIVE").replace("Polling", "LinkUp")
            launcher = job.spawn("muster", "--preflight=full", "--no-python", "/bin/true", FOLDER=str(job.directory / "sys"),
                                 PATH=f"{program.parent}:{os.environ['PATH']}", before=[*UNSHARE_MOUNTS, "sh", "-c", active + '\nexec "$@"', "sh"])
            self.assertEqual(launcher.wait(150), 0, launcher.err.read_text())
            self.assertFalse(written.exists())

    def test_nodes_test_their_links_and_then_start(self):
        # Where a busy host lets one of them stand still, the other's kernel sends again, and the link counts as lossy.
        for attempts_left in (2, 1, 0):
            try:
                return self.nodes_test_their_links_and_start()
            except AssertionError:
                if not attempts_left:
                    raise

    def nodes_test_their_links_and_start(self):
        with Job() as job:
            nodes = [job.node(*FAST, "--preflight=pairs", "--log-level=info", nproc=1) for _ in range(2)]
            job.round(0, 2)
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)
                self.assertIn("preflight: tested 1 link between nodes", node.err.read_text())
                self.assertNotIn("node-", node.err.read_text())
            job.expect_gone()

    def test_a_node_that_never_comes_is_waited_for_once(self):
        with Job() as job:
            conf = "join_timeout=9,last_call_timeout=0.2"
            launcher = job.node("--lease", 1, "--shutdown-timeout", 1, "--preflight=pairs", nproc=1, conf=conf)
            job.expect_exit(launcher, 75)
            said = launcher.err.read_text()
            self.assertIn("preflight: could not look: nodes: ", said)
            self.assertIn("no round within 2 s: ", said)

    def test_a_stop_while_links_are_tested_leaves_nothing(self):
        with Job() as job:
            launcher = job.node(*FAST, "--preflight=pairs", nproc=1)  # the other node never comes
            wait_for("the job of the test", lambda: any(job.command_of(pid).startswith("muster --nproc-per-node 1")
                                                        for pid in job.processes()))
            launcher.terminate()
            job.expect_exit(launcher, 143)
            job.expect_gone()
            self.assertEqual(list(job.directory.glob("muster-pairs-*")), [])

    def test_a_stop_ends_what_the_looks_have_started(self):
        with Job() as job:
            programs, begun = job.directory / "bin", job.directory / "begun"
            programs.mkdir()
            (programs / "dcgmi").write_text(f'#!/bin/sh\ntouch "{begun}"\nexec sleep 600\n')
            (programs / "dcgmi").chmod(0o755)
            looks = {"PATH": f"{programs}:{os.defpath}", "MUSTER_CUDA_LIBRARY": "/none", **GPUS}
            doctor = ("doctor", "--level", 3, "--skip", "names,network,system,pci,kernel-log,disks,settings")
            launch = ("--preflight=full", "--no-python", "/bin/true")
            for words, end_by in ((doctor, lambda stop: -stop), (launch, lambda stop: 128 + stop)):
                for stop in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
                    begun.unlink(missing_ok=True)
                    process = job.spawn("muster", *words, **looks)
                    wait_for("dcgmi", begun.exists)
                    process.send_signal(stop)
                    self.assertEqual(process.wait(60), end_by(stop), process.err.read_text())
                    job.expect_gone()
            self.assertIn("muster: SIGINT during start-up; no worker was started.", process.err.read_text())

    def test_a_clean_node_says_nothing(self):
        with Job() as job:
            said, _ = self.looked(job, **GPUS)
            self.assertEqual(without_slow_looks(said), "")


class HealthCheck(unittest.TestCase):
    def test_a_sick_node_parks_and_comes_back_when_its_check_passes(self):
        with Job() as job:
            job.daemon()
            ill, report = job.directory / "ill", job.directory / "report.json"
            ill.touch()
            check = f'test ! -e "{ill}" || {{ echo first; echo "GPU 3 is lost, job $MUSTER_JOB, $MUSTER_WHEN, round $MUSTER_ROUND."; exit 1; }}'
            options = (*FAST, "--spares", 1, "--max-restarts", 0)
            sick = job.node(*options, "--health-check", check, "--health-interval", 0.2, "--report", report, nproc=1)
            finding = f"--health-check: GPU 3 is lost, job {job.id}, join, round ."
            wait_for("the finding", lambda: f"this node is sick, and takes part in no round until its health check passes: {finding}"
                     in sick.err.read_text())
            def here():
                nodes = [node for one in json.loads(job_status(job))["jobs"] for node in one["nodes"]]
                return next((node for node in nodes if node["pid"] == sick.pid), {})
            # It says so before it joins; others that are there first would begin without word of it.
            wait_for("the sick node", lambda: "left_out" in here())
            nodes = [job.node(*options, nproc=1) for _ in range(2)]
            job.round(0, 2)
            wait_for("the node to be parked", lambda: here().get("place") == "parked")
            self.assertEqual((here()["left_out"], here()["unhealthy"]), (True, finding))
            for node in nodes:
                wait_for("word of the parked node",
                         lambda: f"is parked until its health check passes: {finding}" in node.err.read_text())
            ill.unlink()
            wait_for("the node to be a spare", lambda: here() and "left_out" not in here())
            wait_for("word of the check", lambda: "passes again" in sick.err.read_text())
            job.finish()
            for node in (sick, *nodes):
                job.expect_exit(node, 0)
            self.assertNotIn("unhealthy", json.loads(report.read_text()))

    def test_a_node_that_falls_sick_between_rounds_parks_uncharged(self):
        with Job() as job:
            daemon = job.daemon()
            ill, report = job.directory / "ill", job.directory / "report.json"
            check = f'test "$MUSTER_WHEN$MUSTER_ROUND" = join && exit 0; test ! -e "{ill}" || {{ echo broken; exit 9; }}'
            options = (*FAST, "--max-restarts", 1, "--spares", 1)
            stays = job.node(*options, nproc=1)
            falls = job.node(*options, "--health-check", check, "--report", report, nproc=1)
            wait_for("both nodes", lambda: job_status(job).count('"host"') == 2)
            spare = job.node(*options, nproc=1)
            first = job.round(0, 2)
            ill.touch()
            victim = next(line["pid"] for line in first.values() if job.parent(job.parent(line["pid"])) == falls.pid)
            os.kill(victim, 9)
            second = job.round(1, 2)
            self.assertEqual({line["restart"] for line in second.values()}, {1})
            self.assertNotIn(falls.pid, {job.parent(job.parent(line["pid"])) for line in second.values()})
            job.finish()
            for node in (stays, falls, spare):
                job.expect_exit(node, 0)
            self.assertIn("was parked at the end, because its health check failed: --health-check: broken", falls.err.read_text())
            self.assertEqual(json.loads(report.read_text())["unhealthy"], "--health-check: broken")
            job.expect_gone(but=[daemon])

    def test_a_check_that_is_broken_everywhere_does_not_empty_the_job(self):
        with Job() as job:
            job.daemon()
            broken = ("--health-check", "echo nhc: no configuration; exit 1")
            nodes = [job.node(*FAST, *broken, nnodes="3", nproc=1) for _ in range(3)]
            job.round(0, 3)
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)
                self.assertIn("go on although their health check failed; look at the check: --health-check: nhc", node.err.read_text())

    def hanging(self, job):
        """A check that hangs with a process of its own session, and the paths in /proc of both, which it waits for."""
        pids = job.directory / "sleepers"
        check = f'echo $$ > "{pids}"; setsid sh -c \'echo $$ >> "{pids}"; exec sleep 600\' & wait'
        return check, lambda: [pathlib.Path("/proc", pid) for pid in pids.read_text().split()] if pids.exists() else []

    def test_a_check_that_hangs_costs_its_limit_and_all_that_it_started_is_killed(self):
        with Job() as job:
            check, sleepers = self.hanging(job)
            # Within the limit both shells have to have written their pids.
            launcher = job.spawn("muster", "--health-check", check, "--health-timeout", 12, "--no-python", "/bin/true")
            self.assertEqual(launcher.wait(60), 0, launcher.err.read_text())
            self.assertIn("the health check gave no answer, so this node joins: --health-check: it did not end within 12 s",
                          launcher.err.read_text())
            self.assertEqual(len(sleepers()), 2)
            wait_for("the end of the check", lambda: not [one for one in sleepers() if one.exists()])

    def test_a_check_ends_with_its_launcher_and_all_that_it_started(self):
        for end in (signal.SIGKILL, signal.SIGTERM):
            with self.subTest(end), Job() as job:
                check, sleepers = self.hanging(job)
                launcher = job.spawn("muster", "--health-check", check, "--no-python", "/bin/true")
                wait_for("the check", lambda: len(sleepers()) == 2)
                os.kill(launcher.pid, end)
                launcher.wait(60)
                wait_for("the end of the check", lambda: not [one for one in sleepers() if one.exists()])

    def test_what_checks_leave_behind_does_not_stay_as_defunct_processes(self):
        with Job() as job:
            job.daemon()
            pids = job.directory / "pids"
            # As the watchdog of LBNL NHC, it outlives its check.
            check = f'sh -c \'echo $$ >> "{pids}"; exec sleep 0.3\' & echo broken; exit 1'
            job.node(*FAST, "--spares", 1, "--health-check", check, "--health-interval", 0.2, nproc=1)
            def left():
                return pids.read_text().splitlines() if pids.exists() else []
            wait_for("several checks", lambda: len(left()) > 4)
            wait_for("the end of what the first one left", lambda: not pathlib.Path("/proc", left()[0]).exists())

    def test_a_check_that_prints_without_an_end_costs_its_limit(self):
        with Job() as job:
            launcher = job.spawn("muster", "--health-check", "yes", "--health-timeout", 1, "--no-python", "/bin/true")
            self.assertEqual(launcher.wait(60), 0, launcher.err.read_text())
            self.assertIn("--health-check: it did not end within 1 s", launcher.err.read_text())
            long = job.spawn("muster", "--health-check", "seq 100000; echo GPU 3 is lost; exit 1", "--no-python", "/bin/true")
            self.assertEqual(long.wait(60), 76)
            self.assertIn("--health-check: GPU 3 is lost", long.err.read_text())

    @unittest.skipUnless(os.environ.get("CI") == "true" or os.geteuid() == 0, "only root's checks are run")
    def test_checks_that_all_hang_cost_one_limit(self):
        with Job() as job:
            folder = job.directory / "health.d"
            folder.mkdir(mode=0o755)
            for number in range(10, 22):
                (folder / f"{number}-nfs").write_text("#!/bin/sh\nexec sleep 600\n")
                (folder / f"{number}-nfs").chmod(0o755)
            launcher = job.spawn("muster", "--health-dir", folder, "--health-timeout", 10, "--no-python", "/bin/true")
            self.assertEqual(launcher.wait(60), 0, launcher.err.read_text())
            self.assertIn("10-nfs: it did not end within 10 s; 11-nfs and what follows it did not run within 10 s", launcher.err.read_text())

    @unittest.skipUnless(os.environ.get("CI") == "true" or os.geteuid() == 0, "only root's checks are run")
    def test_a_folder_or_a_check_on_a_disk_that_hangs_holds_nothing_up(self):
        with Job() as job:
            folder, disk = job.directory / "health.d", job.directory / "disk"
            folder.mkdir(mode=0o755)
            disk.mkdir()
            (folder / "10-nhc").symlink_to(disk / "nhc")
            for where in (folder, disk / "health.d"):
                launcher = job.spawn("muster", "--health-dir", where, "--health-timeout", 1, "--no-python", "/bin/true",
                                     before=(*UNSHARE_MOUNTS, *silent_disk(str(disk))))
                self.assertEqual(launcher.wait(60), 0, launcher.err.read_text())
                self.assertIn(f"this node joins: the checks in {where} are not run: no answer within 1 s", launcher.err.read_text())

    @unittest.skipUnless(os.environ.get("CI") == "true" or os.geteuid() == 0, "only root's checks are run")
    def test_a_node_comes_back_although_another_check_cannot_run(self):
        with Job() as job:
            job.daemon()
            folder, ill = job.directory / "health.d", job.directory / "ill"
            folder.mkdir(mode=0o755)
            (folder / "10-never").write_text("#!/bin/sh\nexit 127\n")
            (folder / "10-never").chmod(0o755)
            ill.touch()
            sick = job.node(*FAST, "--health-dir", folder, "--health-check", f'test ! -e "{ill}" || {{ echo hot; exit 1; }}',
                            "--health-interval", 0.2, nproc=1)
            other = job.node(*FAST, nproc=1)
            wait_for("the finding", lambda: "this node is sick" in sick.err.read_text())
            ill.unlink()
            job.round(0, 2)
            job.finish()
            for node in (sick, other):
                job.expect_exit(node, 0)
            self.assertIn("it is ready for a round; no answer: 10-never: it cannot be run", sick.err.read_text())

    @unittest.skipUnless(os.environ.get("CI") == "true" or os.geteuid() == 0, "only root's checks are run")
    def test_a_node_comes_back_when_the_check_that_found_it_sick_is_taken_away(self):
        with Job() as job:
            job.daemon()
            folder = job.directory / "health.d"
            folder.mkdir(mode=0o755)
            for name, text in (("10-broken", "echo hot; exit 1"), ("20-never", "exit 127")):
                (folder / name).write_text(f"#!/bin/sh\n{text}\n")
                (folder / name).chmod(0o755)
            sick = job.node(*FAST, "--health-dir", folder, "--health-interval", 0.2, nproc=1)
            other = job.node(*FAST, nproc=1)
            wait_for("the finding", lambda: "this node is sick" in sick.err.read_text())
            (folder / "10-broken").unlink()
            job.round(0, 2)
            job.finish()
            for node in (sick, other):
                job.expect_exit(node, 0)
            self.assertIn("it is ready for a round; no answer: 20-never: it cannot be run", sick.err.read_text())

    @unittest.skipUnless(os.environ.get("CI") == "true" or os.geteuid() == 0, "only root's checks are run")
    def test_a_node_stays_parked_while_the_check_that_found_it_sick_or_its_folder_is_refused(self):
        with Job() as job:
            job.daemon()
            folder = job.directory / "health.d"
            folder.mkdir(mode=0o755)
            check = folder / "10-broken"
            check.write_text("#!/bin/sh\necho hot; exit 1\n")
            check.chmod(0o755)
            sick = job.node(*FAST, "--health-dir", folder, "--health-interval", 0.2, nproc=1)
            other = job.node(*FAST, nproc=1)
            wait_for("the finding", lambda: "this node is sick" in sick.err.read_text())
            for what in (check, folder):
                what.chmod(0o775)
                wait_for(f"the next check, which refuses {what}",
                         lambda: f"is still taken for sick: {what} is not run: others than its owner" in sick.err.read_text())
                self.assertNotIn("ready for a round", sick.err.read_text())
            folder.chmod(0o755)
            check.unlink()
            job.round(0, 2)
            job.finish()
            for node in (sick, other):
                job.expect_exit(node, 0)

    @unittest.skipUnless(os.environ.get("CI") == "true" or os.geteuid() == 0, "only root's checks are run")
    def test_the_checks_of_a_folder_run_in_order_of_their_names(self):
        with Job() as job:
            folder, ran = job.directory / "health.d", job.directory / "ran"
            folder.mkdir(mode=0o755)
            for name, text in (("10-first", "exit 0"), ("20-second", "echo row 7 is bad; exit 1"), ("30-third", "exit 0")):
                (folder / name).write_text(f'#!/bin/sh\necho {name} $MUSTER_WHEN >> "{ran}"\n{text}\n')
                (folder / name).chmod(0o755)
            sick = job.spawn("muster", "--health-dir", folder, "--no-python", "/bin/true")
            self.assertEqual(sick.wait(60), 76)
            self.assertIn("20-second: row 7 is bad", sick.err.read_text())
            self.assertEqual(ran.read_text(), "10-first join\n20-second join\n")
            (folder / "20-second").chmod(0o775)
            joins = job.spawn("muster", "--health-dir", folder, "--health-check", f'echo last >> "{ran}"', "--no-python", "/bin/true")
            self.assertEqual(joins.wait(60), 0, joins.err.read_text())
            self.assertIn("20-second is not run: others than its owner can change it", joins.err.read_text())
            self.assertEqual(ran.read_text().split()[-5:], ["10-first", "join", "30-third", "join", "last"])

    def test_nodes_that_the_failure_did_not_touch_are_not_checked_between_rounds(self):
        with Job() as job:
            job.daemon()
            nodes, checks = [], []
            for number in range(2):
                checks.append(job.directory / f"checks{number}")
                nodes.append(job.node(*FAST, "--max-restarts", 1, "--health-check", f'echo $MUSTER_WHEN >> "{checks[-1]}"', nproc=1))
            first = job.round(0, 2)
            os.kill(next(line["pid"] for line in first.values() if job.parent(job.parent(line["pid"])) == nodes[0].pid), 9)
            job.round(1, 2)
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)
            self.assertEqual([one.read_text().split() for one in checks], [["join", "between"], ["join"]])

    def test_a_check_does_not_get_the_jobs_secret(self):
        with Job() as job:
            seen = job.directory / "seen"
            launcher = job.spawn("muster", "--health-check", f'env > "{seen}"', "--no-python", "/bin/true", MUSTER_KEY="a" * 40)
            self.assertEqual(launcher.wait(60), 0, launcher.err.read_text())
            self.assertIn("MUSTER_WHEN=join", seen.read_text())
            self.assertNotIn("a" * 40, seen.read_text())

    def test_the_host_of_the_rendezvous_only_names_what_its_check_found(self):
        with Job() as job:
            host = job.node(*FAST, "--health-check", "echo broken; exit 1", nproc=1)
            wait_for("the host's word", lambda: "broken; this node joins, because it hosts the rendezvous" in host.err.read_text())
            other = job.node(*FAST, nproc=1)
            job.round(0, 2)
            job.finish()
            for node in (host, other):
                job.expect_exit(node, 0)

    def test_a_check_that_cannot_run_says_nothing_about_the_node(self):
        with Job() as job:
            launcher = job.spawn("muster", "--health-check", "/none/nhc", "--no-python", "/bin/true")
            self.assertEqual(launcher.wait(60), 0, launcher.err.read_text())
            self.assertRegex(launcher.err.read_text(), "so this node joins: --health-check: it cannot be run: .*/none/nhc.*not found")

    def test_a_stop_while_the_check_runs(self):
        with Job() as job:
            begun = job.directory / "begun"
            launcher = job.spawn("muster", "--health-check", f'touch "{begun}"; sleep 600', "--no-python", "/bin/true")
            wait_for("the check", begun.exists)
            launcher.terminate()
            self.assertEqual(launcher.wait(60), 143)
            job.expect_gone()


class Settings(unittest.TestCase):
    def test_settings_that_differ_are_named_once_on_every_node(self):
        with Job() as job:
            job.daemon()
            nodes = [job.node(*FAST, "--max-restarts", 1, nproc=1, NCCL_ALGO=algorithm) for algorithm in ("Ring", "Tree")]
            first = job.round(0, 2)
            os.kill(first[0]["pid"], 9)
            job.round(1, 2)
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)
                said = node.err.read_text()
                self.assertEqual(said.count("versions of the NCCL variables differ: NCCL_ALGO=Ring on "), 1, said)
                self.assertIn("; NCCL_ALGO=Tree on ", said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
