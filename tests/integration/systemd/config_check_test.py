"""muster config check and musterd --check: what an administrator is told about a file, and about what it names, before a unit
is started with it."""
import base64
import http.server
import json
import os
import pathlib
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import own_processes  # noqa: E402, F401

BUILD = pathlib.Path(os.environ["MUSTER_BUILD"])


class ConfigCheck(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="muster-config-")
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "train.conf"
        self.path.parent.chmod(0o755)

    def check(self, text, *command):
        self.path.write_text(text)
        command = command or (BUILD / "bin/muster", "config", "check")
        done = subprocess.run([*map(str, command), str(self.path)], stdin=subprocess.DEVNULL, text=True, timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return done.returncode, done.stdout, done.stderr.replace(str(self.path), "FILE").splitlines()

    def test_a_right_file_is_said_to_be(self):
        code, out, err = self.check("nnodes = 2:4\nrdzv-backend = c10d\nrdzv-endpoint = h\nprogram = /bin/true\n")
        self.assertEqual((code, out, err), (0, f"{self.path} is valid: job 'train', 2 to 4 nodes, runs /bin/true\n", []))

    def test_what_is_no_file_is_named(self):
        for path, why in ((self.path.parent / "none.conf", "No such file or directory; the path is misspelt, or meant "
                           "from another directory: write it absolute"),
                          (self.path.parent, "Is a directory; name the file in it")):
            done = subprocess.run([BUILD / "bin/muster", "config", "check", path], text=True, capture_output=True, timeout=60)
            self.assertEqual((done.returncode, done.stderr), (2, f"muster config: read {path}: {why}\n"))

    def test_a_program_that_is_found_from_here_alone_is_worth_a_word(self):
        (self.path.parent / "train.py").write_text("")
        self.path.write_text("program = train.py\n")
        done = subprocess.run([BUILD / "bin/muster", "config", "check", "train.conf"], text=True, capture_output=True, timeout=60,
                              cwd=self.path.parent)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (0, 1), done.stderr)
        self.assertIn("train.conf: warning: 'train.py' is relative to the working directory of muster, which is / for a unit", done.stderr)

    def test_every_wrong_line_is_told_and_then_what_contradicts_itself(self):
        code, _, err = self.check("nnodez = 2\nnproc-per-node = two\nprogram = /bin/true\n")
        self.assertEqual(code, 2)
        self.assertRegex(err[0], r"^muster config: FILE:1: unknown key 'nnodez'; the nearest known key is nnodes ")
        self.assertRegex(err[1], r"^muster config: FILE:2: nproc-per-node: got 'two'; accepted is a number from 1 ")
        code, _, err = self.check("restart-early-failures = yes\nprogram = /bin/true\n")
        self.assertEqual((code, len(err)), (2, 1))
        self.assertRegex(err[0], r"^muster config: FILE: --restart-early-failures contradicts --max-restarts 0")

    def test_a_program_that_is_not_there_and_a_low_port_are_told(self):
        code, _, err = self.check("program = /nowhere/train.py\n")
        self.assertEqual((code, len(err)), (127, 1), err)
        if os.geteuid() == 0:
            code, _, err = self.check("store-port = 80\nprogram = /bin/true\n", "setpriv", "--reuid", "65534",
                                      "--clear-groups", BUILD / "bin/muster", "config", "check")
            self.assertEqual((code, len(err)), (2, 1), err)
            self.assertIn("AmbientCapabilities=CAP_NET_BIND_SERVICE", err[0])

    def test_the_daemons_file_is_checked_as_well(self):
        daemon = (BUILD / "bin/musterd", "--check", "--config")
        self.assertEqual(self.check("bind = 127.0.0.1\nport = 0\nfirst-start = yes\nallow-faults = no\n", *daemon)[0], 0)
        for text, words in (("prt = 1\n", "FILE:1: unknown key 'prt'; the nearest known key is port"),
                            ("# x\nport = many\n", "FILE:2: port: "), ("first-start = x\n", "FILE:1: first-start: got 'x'"),
                            ("port = 1\nport = 2\n", "FILE:2: port is set twice"), ("check = yes\n", "FILE:1: unknown")):
            code, _, err = self.check(text, *daemon)
            self.assertEqual((code, len(err)), (2, 1), err)
            self.assertIn(f"musterd: {words}", err[0])

    def test_a_daemon_that_would_refuse_to_serve_is_told_before(self):
        home = {"HOME": str(self.path.parent)}
        for text in ("port = 0\n", "port = 0\nbind = 0.0.0.0\n"):
            code, said = self.check_state(text, MUSTER_KEY="", **home)
            served = subprocess.run([str(BUILD / "bin/musterd"), "--config", str(self.path)], stdin=subprocess.DEVNULL, text=True,
                                    capture_output=True, timeout=60, env={**os.environ, "MUSTER_KEY": "", **home})
            self.assertEqual((code, served.returncode), (78, 78), said + served.stderr)
            self.assertIn("it would serve other hosts at all addresses without a secret", said)
            self.assertIn(served.stderr.split(" ", 1)[1].rstrip("\n"), said)  # but for the time
        for text, variables in (("bind = 127.0.0.1\n", {}), ("bind = localhost\n", {}), ("insecure = yes\n", {}), ("", {"MUSTER_INSECURE": "1"}),
                                ("", {"MUSTER_KEY": "sixteen bytes 16"})):
            self.assertEqual(self.check_state(text, **{"MUSTER_KEY": "", **home, **variables}), (0, "musterd: the options are valid\n"))
        code, said = self.check_state("bind = 203.0.113.1\n")
        self.assertEqual(code, 78, said)
        self.assertIn("the address must be one of this host's", said)

    def check_state(self, text, *before, **variables):
        """musterd --check of these lines: exit code, and what it says in the end."""
        self.path.write_text(text)
        done = subprocess.run([*map(str, before), str(BUILD / "bin/musterd"), "--check", "--config", str(self.path)],
                              stdin=subprocess.DEVNULL, text=True, capture_output=True, timeout=60,
                              env={**os.environ, "MUSTER_KEY": "the key of the test", **variables})
        return done.returncode, done.stdout + done.stderr.replace(str(self.path), "FILE")

    def test_the_daemons_state_in_a_file_is_looked_at_and_not_touched(self):
        folder = self.path.parent
        right = (0, "musterd: the options are valid\n")
        state = folder / "state.db"
        self.assertEqual(self.check_state(f"state = sqlite:{state}\n"), right)
        self.assertFalse(state.exists())
        for path, said in ((folder / "no/state.db", f"the directory {folder}/no does not exist; create it"),
                           (folder, "is not a regular file"), (self.path / "state.db", "is not a directory; name a file in one")):
            code, text = self.check_state(f"state = sqlite:{path}\n")
            self.assertNotEqual(code, 0)
            self.assertIn("musterd: FILE:1: state: ", text)
            self.assertIn(said, text.replace("FILE", str(self.path)))
        for kept, code, said in ((b"", 0, "valid"), (b"some text", 78, "is not an SQLite file, or is damaged"),
                                 (sqlite_file(0, 0), 0, "valid"), (sqlite_file(0x6d737472, 1), 0, "valid"),
                                 (sqlite_file(0x6d737472, 9), 78, "has version 9; this musterd supports version 1"),
                                 (sqlite_file(5, 1), 2, "is the database of another program; name another")):
            state.write_bytes(kept)
            found, text = self.check_state(f"state = sqlite:{state}\n")
            self.assertEqual(found, code, text)
            self.assertIn(said, text)
            self.assertEqual(state.read_bytes(), kept)
        if os.geteuid() == 0:
            state.unlink()
            code, text = self.check_state(f"state = sqlite:{state}\n", "setpriv", "--reuid=65534", "--clear-groups")
            self.assertEqual(code, 78)
            self.assertIn("Permission denied; musterd writes its state there", text)

    def test_a_file_that_a_daemon_has_open_is_right(self):
        state = f"sqlite:{self.path.parent}/state.db"
        daemon = subprocess.Popen([str(BUILD / "bin/musterd"), "--bind=127.0.0.1", "--port=0", f"--state={state}"], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(lambda: (daemon.kill(), daemon.wait(), daemon.stdout.close()))
        self.assertIn("listening", daemon.stdout.readline())
        self.assertEqual(self.check_state(f"state = {state}\n"), (0, "musterd: the options are valid\n"))
        daemon.terminate()
        self.assertEqual(daemon.wait(60), 0)
        self.assertEqual(self.check_state(f"state = {state}\n"), (0, "musterd: the options are valid\n"))

    def test_the_daemons_etcd_is_asked(self):
        code, text = self.check_state("state = etcd://a b:1\n")
        self.assertEqual(code, 2, text)
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            port = nobody.getsockname()[1]
            code, text = self.check_state(f"port = 1\nstate = etcd://127.0.0.1:{port}\n")
            self.assertEqual((code, text.count("\n")), (78, 1), text)
            self.assertRegex(text, rf"musterd: FILE:2: state: no etcd member answers \(127.0.0.1:{port}: .*refused.*\); check")
            # What is asked, and what is made of the answer: an etcd played by the test.
            with PlayedEtcd() as etcd:
                place = f"state = etcd://127.0.0.1:{etcd.server_port}/cluster\n"
                self.assertEqual(self.check_state(place), (0, "musterd: the options are valid\n"))
                self.assertEqual(etcd.asked, [("/v3/kv/range", base64.b64encode(b"cluster/").decode())])
                code, text = self.check_state(f"state = etcd://127.0.0.1:{etcd.server_port},127.0.0.1:{port}\n")
                self.assertEqual(code, 0, text)
                self.assertIn("note: one etcd member does not answer, the others do: ", text)
                etcd.refusal = {"error": "etcdserver: user name is empty", "code": 3}
                code, text = self.check_state(place)
                self.assertEqual(code, 78)
                self.assertIn("user name is empty; if etcd requires a user, set MUSTER_ETCD_LOGIN_FILE to a file", text)

    def test_the_daemons_own_address_must_be_one_that_agents_can_use(self):
        for text, said in (("nodes:x", "not an endpoint"), ("n1", "the port is missing"),
                           ("[10.0.0.1,n1]:5", "'n1' is not a numeric address"), ("0.0.0.0:5", "means all addresses and cannot be reached"),
                           ("[::]:5", "means all addresses and cannot be reached")):
            code, out = self.check_state(f"advertise = {text}\n")
            self.assertEqual((code, out.count("\n")), (2, 1), out)
            self.assertIn(f"musterd: FILE:1: advertise: got '{text}', ", out)
            self.assertIn(said, out)
        code, out = self.check_state("advertise = 10.0.0.1:29400\n")
        self.assertEqual(code, 0)
        self.assertIn("note: --advertise has no effect with --state memory", out)
        with PlayedEtcd() as etcd:
            state = f"state = etcd://127.0.0.1:{etcd.server_port}\n"
            self.assertEqual(self.check_state(state + "advertise = [10.0.0.1,fd00::1]:29400\n"),
                             (0, "musterd: the options are valid\n"))
            self.assertIn("note: localhost:1 is a loopback address", self.check_state(state + "advertise = localhost:1\n")[1])
            code, out = self.check_state(state + "advertise = no-such-host.invalid:1\n")
            self.assertEqual(code, 78)
            self.assertIn("musterd: FILE:2: advertise: cannot resolve the name no-such-host.invalid on this host", out)


def sqlite_file(application, version):
    """An empty database, or one with a table."""
    with tempfile.NamedTemporaryFile(prefix="muster-sqlite-") as file:
        database = sqlite3.connect(file.name)
        database.execute(f"PRAGMA application_id={application}")
        database.execute(f"PRAGMA user_version={version}")
        if version:
            database.execute("CREATE TABLE records(key)")
        database.commit()
        database.close()
        return pathlib.Path(file.name).read_bytes()


class PlayedEtcd(http.server.HTTPServer):
    """Answers on a thread of its own; `asked` has the paths and keys."""

    def __init__(self):
        self.asked, self.refusal = [], None
        played = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                played.asked.append((self.path, body.get("key")))
                answer = json.dumps(played.refusal or {"header": {"revision": "7"}}).encode()
                self.send_response(400 if played.refusal else 200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)

    def __enter__(self):
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.thread.join()
        self.server_close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
