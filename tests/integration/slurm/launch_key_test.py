"""How the nodes of a step agree on a key where munge misbehaves: two launchers on this host with the variables of a step
of Slurm's, and stand-ins for munge and unmunge that do what a test asks for. munge_test.py has the real ones."""
import base64
import contextlib
import http.server
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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import own_processes  # noqa: E402, F401
import ports  # noqa: E402

MUSTER = pathlib.Path(os.environ["MUSTER_BUILD"]) / "bin/muster"
SAY = "echo rank $RANK of $WORLD_SIZE"

# Both count their runs in $HOME/NAME.runs. $MUNGE_RULE and $UNMUNGE_RULE are shell text that runs before the rest.
MUNGE = r"""#!/bin/sh
echo x >>"$HOME/munge.runs"; runs=$(wc -l <"$HOME/munge.runs")
eval "$MUNGE_RULE"
printf 'MUNGE:%s:\n' "$(base64 -w0)"
"""
UNMUNGE = r"""#!/bin/sh
echo x >>"$HOME/unmunge.runs"; runs=$(wc -l <"$HOME/unmunge.runs")
eval "$UNMUNGE_RULE"
read -r credential
printf 'STATUS:          0\nUID:             %s\nUID_RESTRICTION: %s\n\n' "$(id -u)" "$(id -u)"
credential=${credential#MUNGE:}
printf %s "${credential%:}" | base64 -d
"""


def own_address():
    """An address of this host beside loopback; empty: it has none. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("198.51.100.1", 9))
        return probe.getsockname()[0]
    return ""


def is_muster(pid):
    with contextlib.suppress(OSError):  # it has ended
        return os.path.samefile(f"/proc/{pid}/exe", MUSTER)
    return False


class LaunchKey(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="muster-launch-key-")
        self.addCleanup(place.cleanup)
        self.place = pathlib.Path(place.name)
        self.place.chmod(0o777)
        self.programs = self.place / "bin"
        self.programs.mkdir()
        for name, text in (("munge", MUNGE), ("unmunge", UNMUNGE)):
            (self.programs / name).write_text(text)
            (self.programs / name).chmod(0o755)
        self.address = own_address()
        self.port = ports.free_port()

    def start(self, node, *words, home=None, conf="", path=None, user=None, **rules):
        """The launcher of this node of the step's two; its worker says its rank."""
        home = self.place / (home or f"n{node}")
        home.mkdir(exist_ok=True)
        if user is not None:
            os.chown(home, user, user)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("MUSTER_", "SLURM_"))}
        environment |= {"PATH": path or f"{self.programs}:{os.environ['PATH']}", "HOME": str(home), "SLURM_JOB_ID": "4711",
                        "SLURM_STEP_ID": "0", "SLURM_PROCID": str(node), "SLURM_NODEID": str(node), "SLURM_STEP_NODELIST": "n[0-1]"}
        environment |= {f"{name.upper()}_RULE": rule for name, rule in rules.items()}
        process = subprocess.Popen(
            [MUSTER, "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", f"--rdzv-endpoint={self.address}:{self.port}",
             "--rdzv-id=mine", f"--rdzv-conf=is_host={1 - node}{conf}", *(words or ("--no-python", "sh", "-c", SAY))],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, user=user, group=user)
        self.addCleanup(self.end, process)
        return process

    def start_first(self, **rules):
        """The first node, which answers when this returns: another one waits for it no longer than its join_timeout."""
        self.start(0, **rules)

        def answers():
            with socket.socket() as link:
                return link.connect_ex((self.address, self.port)) == 0
        self.wait_until(answers, "the first node does not answer")

    def end(self, process):
        process.kill()
        process.communicate()

    def check_formed(self, *processes):
        said = [process.communicate(timeout=120) for process in processes]
        self.assertEqual([process.returncode for process in processes], [0, 0], said)
        self.assertEqual(sorted(re.findall(r"rank (\d) of 2", "".join(out for out, _ in said))), ["0", "1"], said)
        return "".join(err for _, err in said)

    def check_ends(self, process, code, told):
        _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, code, err)
        self.assertRegex(err, told)
        return err

    def without_programs(self):
        """A PATH like /usr/bin, but for munge and unmunge."""
        folder = self.place / "no_munge"
        folder.mkdir()
        for path in [*pathlib.Path("/usr/bin").iterdir(), *pathlib.Path("/bin").iterdir()]:
            if path.name not in ("munge", "unmunge") and not (folder / path.name).is_symlink():
                (folder / path.name).symlink_to(path)
        return str(folder)

    def in_its_place(self, answer):
        """Another server at the endpoint, which answers each request with what answer(handler) does."""
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            do_GET = answer

            def log_message(self, *_):
                pass
        server = http.server.ThreadingHTTPServer((self.address, self.port), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server

    def keys(self):
        return [str(path.relative_to(self.place)) for path in sorted(self.place.rglob(".muster/key"))]

    def wait_until(self, is_true, what):
        until = time.monotonic() + 60
        while not is_true():
            self.assertLess(time.monotonic(), until, what)
            time.sleep(0.02)

    @unittest.skipUnless(os.geteuid() == 0, "a process of another user is needed")
    def test_no_process_of_the_same_user_can_read_the_guardian(self):
        ready = self.place / "ready"
        script = f"touch {ready}-$RANK; exec sleep 600"
        nodes = [self.start(node, "--no-python", "sh", "-c", script, user=2001) for node in (0, 1)]
        self.wait_until(lambda: all(pathlib.Path(f"{ready}-{rank}").exists() for rank in (0, 1)), "the job did not start")
        for node in nodes:
            children = pathlib.Path(f"/proc/{node.pid}/task/{node.pid}/children").read_text().split()
            owners = {}
            for pid in (str(node.pid), *children):
                with contextlib.suppress(FileNotFoundError):  # it has ended
                    owners[pid] = os.stat(f"/proc/{pid}/mem").st_uid
            # Asked after that: a child may start a program of its own meanwhile, and those know no key.
            guarded = {pid: owner for pid, owner in owners.items() if is_muster(pid)}
            self.assertGreater(len(guarded), 1)  # a launcher and its guardian
            self.assertEqual(set(guarded.values()), {0}, guarded)
            node.send_signal(signal.SIGTERM)

    def test_a_foreign_server_makes_no_node_write_a_key(self):
        self.in_its_place(lambda handler: handler.send_error(404))
        self.check_ends(self.start(1, conf=",join_timeout=6"), 75, "something else than this job's muster answers there")
        self.assertEqual(self.keys(), [])

    def test_without_munge_and_a_shared_home_the_other_node_is_refused_and_writes_no_key(self):
        path = self.without_programs()
        self.start(0, path=path)
        self.check_ends(self.start(1, path=path), 78, "has no munge, and this node has another home directory; install munge")
        self.assertEqual(self.keys(), ["n0/.muster/key"])
        self.assertFalse((self.place / "n1/.muster").exists())

    def test_without_munge_the_key_in_a_shared_home_is_used(self):
        for rules in ({"path": self.without_programs()}, {"munge": "exit 1"}):
            with self.subTest(rules):
                self.check_formed(*(self.start(node, home="n0", **rules) for node in (0, 1)))
                self.assertEqual(self.keys(), ["n0/.muster/key"])
                (self.place / "n0/.muster/key").unlink()
                self.port = ports.free_port()

    def test_a_munge_that_fails_once_changes_nothing(self):
        for failing in (1, 2):  # the probe's, and the answer's
            with self.subTest(failing):
                munge = f"[ $runs != {failing} ] || exit 1"
                self.check_formed(*(self.start(node, home=f"h{failing}{node}", munge=munge) for node in (0, 1)))
                self.assertEqual(self.keys(), [])
                self.port = ports.free_port()

    def test_a_munge_that_never_works_keeps_a_node_of_another_home_waiting(self):
        self.start_first(munge="echo munge: Error: no munged >&2; exit 1")
        self.check_ends(self.start(1, conf=",join_timeout=6"), 75, r"munge does not work on the first node.*no munged")
        self.assertEqual(self.keys(), ["n0/.muster/key"])

    def test_a_munge_that_hangs_is_given_5_s_and_the_home_directory_has_the_key(self):
        started = time.monotonic()
        said = self.check_formed(*(self.start(node, home="n0", munge="exec sleep 99") for node in (0, 1)))
        self.assertGreater(time.monotonic() - started, 4.9)
        self.assertIn("munge does not work on this node", said)
        self.assertEqual(self.keys(), ["n0/.muster/key"])

    def test_a_clock_that_is_off_is_told_and_the_node_may_be_started_again(self):
        for status, end in ((15, "has expired"), (16, "is of a later time")):
            with self.subTest(status):
                unmunge = f"printf 'STATUS:          {status}\\n\\n'; exit 1"
                self.start_first(home=f"h{status}0")
                self.check_ends(self.start(1, home=f"h{status}1", unmunge=unmunge, conf=",join_timeout=6"), 75,
                                rf"munge says that it {end}: the clocks of this node and of the first one differ; synchronize them")
                self.assertEqual(self.keys(), [])
                self.port = ports.free_port()

    def test_lines_of_a_preloaded_library_are_no_answer(self):
        noise = "echo \"ERROR: ld.so: object x from LD_PRELOAD\" >&2"
        said = self.check_formed(*(self.start(node, munge=noise, unmunge=f"{noise}; echo >&2") for node in (0, 1)))
        self.assertNotIn("munge does not work", said)
        self.assertEqual(self.keys(), [])

    def test_a_first_node_whose_user_munged_does_not_know_uses_the_home_directory(self):
        unmunge = "echo unmunge: Error: Unauthorized credential for client UID=100000 GID=100000 >&2; exit 1"
        said = self.check_formed(*(self.start(node, home="n0", unmunge=unmunge) for node in (0, 1)))
        self.assertRegex(said, r"munge does not work on this node \(.*Unauthorized credential")
        self.assertEqual(self.keys(), ["n0/.muster/key"])

    def test_a_foreign_answer_before_the_first_nodes_is_asked_again(self):
        answers = []

        def answer(handler):
            body = (b"hello", b"MUNGE:" + base64.b64encode(b"muster-key 1\nstep 1.0\njob mine\n") + b":\n", b"MUNGE:cut short")
            body = body[len(answers) % 3]
            answers.append(body)
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(body) + (10 if b"cut" in body else 0)))
            handler.send_header("Connection", "close")
            handler.end_headers()
            handler.wfile.write(body)
            handler.close_connection = True
        server = self.in_its_place(answer)
        other = self.start(1)
        self.wait_until(lambda: len(answers) >= 4, "it did not ask again")
        server.shutdown()
        server.server_close()
        self.check_formed(self.start(0), other)

    def test_a_foreign_answer_is_told_at_the_time_limit(self):
        body = b"MUNGE:" + base64.b64encode(b"muster-key 1\nstep 1.0\njob mine\nnonce 0\nkey 0\n") + b":\n"

        def answer(handler):
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)
            handler.close_connection = True
        self.in_its_place(answer)
        self.check_ends(self.start(1, conf=",join_timeout=6"), 75, "for Slurm's step 1.0, and this node is of Slurm's step 4711.0")

    def test_a_service_that_does_not_speak_http_is_told(self):
        def answer(handler):
            handler.wfile.write(b"SSH-2.0-OpenSSH_9.6\r\n")
            handler.close_connection = True
        self.in_its_place(answer)
        self.check_ends(self.start(1, conf=",join_timeout=6"), 75, "something else than this job's muster answers there")

    def test_a_signal_while_unmunge_runs_is_obeyed_at_once(self):
        first = self.start(0)
        other = self.start(1, unmunge="exec sleep 30")
        self.wait_until((self.place / "n1/unmunge.runs").exists, "unmunge was not started")
        other.send_signal(signal.SIGTERM)
        _, said = other.communicate(timeout=60)
        self.assertNotIn("unmunge", said)  # which itself is given 5 s
        self.assertEqual(self.keys(), [])
        first.send_signal(signal.SIGTERM)
        first.communicate(timeout=120)

    def test_a_signal_while_munge_runs_makes_no_key(self):
        node = self.start(0, munge="exec sleep 30")
        self.wait_until((self.place / "n0/munge.runs").exists, "munge was not started")
        node.send_signal(signal.SIGTERM)
        node.communicate(timeout=120)
        self.assertEqual(self.keys(), [])


if __name__ == "__main__":
    if not own_address():
        print("skipped: this host has no address beside loopback")
        sys.exit(77)
    unittest.main(verbosity=2)
