"""A daemon whose disk is full, also at its start: it says so everywhere, timeouts hold, and it goes on when there is room again."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time
import unittest
import urllib.error
import urllib.request

from job import Job, wait_for

REASON = "database or disk is full"
PLACE = "/mnt"  # covered in the daemon's own mount namespace
BALLAST = 6 << 20
# A mount of one's own needs root, or a user namespace.
UNSHARE = ["unshare", "--mount", "--propagation", "private", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
MOUNT = f"mount -t tmpfs -o size={BALLAST} none {PLACE}"
ON_TINY_DISK = [*UNSHARE, "sh", "-c", f'{MOUNT} && exec "$@"', "sh"]
ON_FULL_DISK = [*UNSHARE, "sh", "-c", f'{MOUNT} && {{ head -c {BALLAST} /dev/zero > {PLACE}/ballast; exec "$@"; }}', "sh"]
WITHOUT_INODES = [*UNSHARE, "sh", "-c", f'mount -t tmpfs -o nr_inodes=3 none {PLACE} && touch {PLACE}/ballast && exec "$@"', "sh"]
# As a service manager does: a daemon that was killed is started again.
AGAIN_ON_TINY_DISK = [*UNSHARE, "sh", "-c", f'{MOUNT} && {{ "$@"; exec "$@"; }}', "sh"]


def page(job, path):
    """Status and body of a page of the daemon."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{job.port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


@unittest.skipIf(subprocess.run([*ON_TINY_DISK, "true"], capture_output=True).returncode, "no mount namespace can be made here")
class FullDisk(unittest.TestCase):
    def setUp(self):
        self.job = self.enterContext(Job())

    def start(self, before=ON_TINY_DISK):
        self.musterd = self.job.spawn("musterd", "--port", self.job.port, "--first-start", "--state", f"sqlite:{PLACE}/state.db",
                                      before=before)
        wait_for("listening musterd", self.job.answers)
        self.ballast = pathlib.Path(f"/proc/{self.musterd.pid}/root{PLACE}/ballast")

    def fill(self):
        with contextlib.suppress(OSError), self.ballast.open("wb", buffering=0) as file:
            for piece in (1 << 16, 1 << 8, 1):
                with contextlib.suppress(OSError):
                    while file.write(b"x" * piece):
                        pass

    def says(self, node, *words):
        wait_for(f"{words} in the node's words", lambda: all(word in node.err.read_text() for word in words))

    def stalls(self):
        return page(self.job, "/healthz")[0] == 503

    def goes_well(self):
        wait_for("a healthy daemon", lambda: page(self.job, "/healthz") == (200, "ok\n"))

    def late_node(self):
        return self.job.spawn("muster", "--nnodes", 1, "--nproc-per-node", 1, "--rdzv-backend", "c10d", "--rdzv-endpoint",
                              f"127.0.0.1:{self.job.port}", "--rdzv-id", "late", "--no-python", "true")

    def two_nodes(self, lost_timeout):
        nodes = [self.job.node("--lease", 5, "--rdzv-lost-timeout", lost_timeout, "--max-restarts", 3) for _ in range(2)]
        return nodes, self.job.round(0, 4)

    def starts_without_room(self, before, reason):
        self.start(before)
        wait_for("an unhealthy daemon", self.stalls)
        self.assertIn(reason, page(self.job, "/healthz")[1])
        self.assertIn(reason, json.loads(page(self.job, "/status")[1])["state_stalled"]["why"])
        node = self.late_node()
        self.says(node, "serves no job", reason, "timeout in")
        command = self.job.spawn("muster", "drain", "nobody", "--job", "late", "--rdzv-endpoint", f"127.0.0.1:{self.job.port}",
                                 MUSTER_KEY="k" * 43)
        self.says(command, "it cannot write its state: ", reason)
        self.ballast.unlink()
        self.job.expect_exit(node, 0)
        self.goes_well()
        self.says(self.musterd, "is open now")  # a thread writes it
        said = self.musterd.err.read_text()
        self.assertEqual(said.count("no job is served until the state can be opened"), 1, said)
        self.assertEqual(said.count("is open now"), 1, said)
        self.assertNotIn("was empty", said)

    def test_a_daemon_that_starts_on_a_full_disk_says_so_and_serves_when_there_is_room(self):
        self.starts_without_room(ON_FULL_DISK, REASON)

    def test_a_disk_without_inodes_is_a_full_one(self):
        self.starts_without_room(WITHOUT_INODES, "free space or inodes on its disk")

    def test_a_stop_ends_a_daemon_that_waits_for_room(self):
        self.start(ON_FULL_DISK)
        wait_for("an unhealthy daemon", self.stalls)
        self.musterd.terminate()
        self.job.expect_exit(self.musterd, 0)

    def test_a_daemon_that_is_killed_while_its_disk_is_full_costs_no_job(self):
        self.start(AGAIN_ON_TINY_DISK)
        nodes, first = self.two_nodes(250)
        self.fill()
        os.kill(first[1]["pid"], signal.SIGKILL)
        wait_for("an unhealthy daemon", self.stalls)
        killed, = pathlib.Path(f"/proc/{self.musterd.pid}/task/{self.musterd.pid}/children").read_text().split()
        os.kill(int(killed), signal.SIGKILL)
        self.says(self.musterd, "no job is served until the state can be opened")
        wait_for("an unhealthy daemon", self.stalls)
        late = self.late_node()
        self.says(late, "serves no job", REASON)
        self.ballast.unlink()
        self.job.expect_exit(late, 0)
        second = self.job.round(1, 4)
        self.assertEqual({line["restart"] for line in second.values()}, {1})
        self.goes_well()
        self.job.finish()
        for node in nodes:
            self.job.expect_exit(node, 0)
        self.job.expect_gone(but=[self.musterd])

    def test_everybody_is_told_and_it_goes_on_when_there_is_room(self):
        self.start()
        nodes, first = self.two_nodes(250)
        self.fill()
        os.kill(first[1]["pid"], signal.SIGKILL)
        wait_for("an unhealthy daemon", self.stalls)
        self.assertIn(REASON, page(self.job, "/healthz")[1])
        for node in nodes:
            self.says(node, REASON, "timeout in")
        late = self.late_node()
        self.says(late, REASON, "timeout in")
        status = json.loads(page(self.job, "/status")[1])
        self.assertEqual({job["id"] for job in status["jobs"]}, {self.job.id, "late"})
        self.assertIn(REASON, status["state_stalled"]["why"])
        self.says(self.musterd, REASON)
        self.ballast.unlink()
        self.job.expect_exit(late, 0)
        second = self.job.round(1, 4)
        self.assertEqual({line["restart"] for line in second.values()}, {1})
        self.goes_well()
        wait_for("a status without trouble", lambda: "state_stalled" not in page(self.job, "/status")[1])
        self.job.finish()
        for node in nodes:
            self.job.expect_exit(node, 0)
        self.job.expect_gone(but=[self.musterd])

    def test_the_lost_timeout_holds_and_the_job_stays_in_the_status(self):
        self.start()
        nodes, _ = self.two_nodes(40)
        running = self.job.spawn("muster", "--nnodes", 1, "--nproc-per-node", 1, "--rdzv-backend", "c10d", "--rdzv-endpoint",
                                 f"127.0.0.1:{self.job.port}", "--rdzv-id", "running", "--lease", 8, "--rdzv-lost-timeout", 10,
                                 "--no-python", "sh", "-c", "echo runs; exec sleep 600")
        wait_for("a worker that runs", lambda: "runs" in running.out.read_text())
        self.fill()
        self.job.finish()
        wait_for("an unhealthy daemon", self.stalls)
        for node in nodes:
            self.says(node, REASON)
        # Beyond the time for which a job that is over is remembered: these nodes have not heard that it is.
        held_since = time.monotonic()
        wait_for("more than that time", lambda: time.monotonic() > held_since + 12)
        status = json.loads(page(self.job, "/status")[1])
        self.assertEqual({job["id"] for job in status["jobs"]}, {self.job.id, "running"})
        for node in nodes:
            self.job.expect_exit(node, 75)
            self.says(node, REASON, "--rdzv-lost-timeout")
        # A round that waits for no decision goes on.
        self.assertIsNone(running.poll())
        self.ballast.unlink()
        self.goes_well()
        running.terminate()
        self.job.exit_code(running)
        self.job.expect_gone(but=[self.musterd])


if __name__ == "__main__":
    unittest.main(verbosity=2)
