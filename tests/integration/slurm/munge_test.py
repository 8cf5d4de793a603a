"""The key of a launch through munge: a step of a real Slurm (cluster.py) whose nodes share no home directory."""
import os
import pathlib
import json
import re
import stat
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import cluster  # noqa: E402
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from command_lines import CommandLines  # noqa: E402

BUILD = pathlib.Path(os.environ["MUSTER_BUILD"])
MUSTER = BUILD / "bin/muster"
SAY = "echo rank $RANK of $WORLD_SIZE on $SLURMD_NODENAME"

# In the place of the first node's muster: answers each question for the key with a credential of its own.
FALSE_NODE = r"""
import http.server, os, pathlib, subprocess, sys
how, listens = sys.argv[1:]
step = f"{os.environ['SLURM_JOB_ID']}.{os.environ['SLURM_STEP_ID']}"
port = 20480 + (int(os.environ["SLURM_JOB_ID"]) * 11 + int(os.environ["SLURM_STEP_ID"])) % 12288
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # as muster
    def do_GET(self):
        nonce = self.path.partition("nonce=")[2]
        text = (f"muster-key 1\nstep {'1.0' if how == 'step' else step}\njob {'other' if how == 'job' else step}\n"
                f"nonce {'0' * 64 if how == 'nonce' else nonce}\nkey muster-job-key:{'5' * 64}\n")
        words = ["munge", f"--restrict-uid={1 if how == 'restricted' else 0}"] + (["--uid=65534"] if how == "stranger" else [])
        made = subprocess.run(words, input=text.encode(), stdout=subprocess.PIPE, check=True).stdout
        if how == "replayed":
            subprocess.run(["unmunge", "--no-output"], input=made, check=True)
        if how == "damaged":
            made = made[:40] + b"AAAA" + made[44:]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(made)
server = http.server.HTTPServer(("", port), Handler)
pathlib.Path(listens).touch()
server.serve_forever()
"""


class Munge(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="muster-key-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.slurm = cluster.Cluster(cls.folder.name, nodes=2, slurmd_timeout=10)
        cls.slurm.__enter__()
        cls.addClassCleanup(cls.slurm.close)

    def setUp(self):
        self.place = pathlib.Path(tempfile.mkdtemp(dir=self.folder.name))
        self.homes = {name: self.place / name for name in self.slurm.nodes}
        for home in self.homes.values():
            home.mkdir()

    def step(self, *words, home='"$PLACE/$SLURMD_NODENAME"', before="", options=("--kill-on-bad-exit=1",)):
        """muster on both nodes with these arguments, each with a home of its own. Their stderr comes by files: srun may lose the
        last lines of a task that ends when it ends the step."""
        script = f'export HOME={home}; {before}\nexec "$@" 2>>"$PLACE/said.$SLURM_NODEID"'
        done = self.slurm.run("env", f"PLACE={self.place}", "srun", "-N2", "--ntasks-per-node=1", *options, "sh", "-c", script, "sh",
                              MUSTER, "--nproc-per-node=1", *words, timeout=180)
        for said in sorted(self.place.glob("said.*")):
            done.stderr += said.read_text()
            said.unlink()
        return done

    def check_formed(self, done):
        self.assertEqual(done.returncode, 0, done.stderr + self.slurm.logs())
        self.assertEqual(sorted(re.findall(r"rank (\d) of 2 on (n\d)", done.stdout)), [("0", "n1"), ("1", "n2")], done.stderr)

    def keys(self):
        return [str(path.relative_to(self.place)) for path in sorted(self.place.rglob(".muster/key"))]

    def test_nodes_without_a_shared_home_get_a_key(self):
        secrets = ("muster-job-key", "MUNGE:")
        with CommandLines(*secrets, programs=("srun", "muster"), told=self.place / "seen") as lines:
            done = self.step(f"--report={self.place}/report-%h.json", "--log-level=debug", "--no-python", "sh", "-c",
                             f"{SAY}; env; {lines.wait}")
        self.check_formed(done)
        self.assertEqual((lines.found, lines.unseen), (set(), set()))
        reports = list(self.place.glob("report-*.json"))
        self.assertEqual([json.loads(path.read_text())["auth"] for path in reports], ["key", "key"])
        self.assertEqual(self.keys(), [])
        everything = done.stdout + done.stderr + "".join(path.read_text() for path in reports)
        for secret in secrets:
            self.assertNotIn(secret, everything)

    def test_the_first_nodes_own_key_comes_by_munge_too(self):
        (self.homes["n1"] / ".muster").mkdir(mode=0o700)
        key = self.homes["n1"] / ".muster/key"
        key.write_text("the first node's key, long enough\n")
        key.chmod(0o600)
        self.check_formed(self.step("--no-python", "sh", "-c", SAY))
        self.assertEqual(self.keys(), ["n1/.muster/key"])

    def test_a_first_node_that_comes_late_is_waited_for(self):
        done = self.step("--no-python", "sh", "-c", SAY, before="[ $SLURM_NODEID = 1 ] || sleep 25")
        self.check_formed(done)
        self.assertRegex(done.stderr, "waiting for the key of this job from its first node, n1:.*: it does not answer")

    def test_a_named_endpoint_whose_host_is_told(self):
        done = self.step("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=n1:29555", "--rdzv-id=mine", "--no-python", "sh", "-c",
                         SAY, before="export MUSTER_RDZV_CONF=is_host=$((1 - SLURM_NODEID))")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(re.findall(r"rank (\d) of 2", done.stdout)), ["0", "1"], done.stderr)
        self.assertEqual(self.keys(), [])

    def test_encrypted_ranks_need_no_key_of_the_user(self):
        done = self.step("--wire-security=encrypt", "--no-python", BUILD / "bin/digits_trainer", "--data",
                         pathlib.Path(__file__).resolve().parents[3] / "worker_runtime/examples/data/digits.csv", "--epochs", "1")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_with_a_key_in_the_shared_home_nothing_changes(self):
        shared = self.homes["n1"]
        (shared / ".muster").mkdir(mode=0o700)
        (shared / ".muster/key").write_text("a key of the test, long enough\n")
        (shared / ".muster/key").chmod(0o600)
        self.without_munged("n1", "n2")
        done = self.step("--no-python", "sh", "-c", SAY, home='"$PLACE/n1"')
        self.check_formed(done)
        self.assertNotIn("munge does not work", done.stderr)

    def without_munged(self, *names):
        for name in names:
            self.slurm.unlink_munge(name)
            self.addCleanup(self.slurm.link_munge, name)

    def without_programs(self):
        """A folder like /usr/bin, but for munge and unmunge."""
        folder = self.place / "bin"
        folder.mkdir()
        for path in [*pathlib.Path("/usr/bin").iterdir(), *pathlib.Path("/bin").iterdir()]:
            if path.name not in ("munge", "unmunge") and not (folder / path.name).is_symlink():
                (folder / path.name).symlink_to(path)
        return f"export PATH={folder}"

    def test_without_the_programs_the_shared_home_has_the_key(self):
        done = self.step("--no-python", "sh", "-c", SAY, home='"$PLACE/n1"', before=self.without_programs())
        self.check_formed(done)
        self.assertEqual(self.keys(), ["n1/.muster/key"])
        self.assertEqual(stat.S_IMODE((self.homes["n1"] / ".muster/key").stat().st_mode), 0o600)
        self.assertNotIn("munge does not work", done.stderr)

    def test_with_munged_stopped_on_the_first_node_the_shared_home_has_the_key(self):
        self.without_munged("n1")
        done = self.step("--no-python", "sh", "-c", SAY, home='"$PLACE/n1"')
        self.check_formed(done)
        self.assertEqual(done.stderr.count("munge does not work on this node (munge: Error: Failed to access"), 1, done.stderr)
        self.assertEqual(self.keys(), ["n1/.muster/key"])

    def test_with_munged_stopped_on_another_node_waiting_helps(self):
        self.without_munged("n2")
        done = self.step("--no-python", "sh", "-c", SAY)
        self.assertRegex(done.stderr, r"n2: task 1: Exited with exit code 75")
        self.assertRegex(done.stderr, r"munge credential with this job's key, from .*, cannot be used: munge does not work on this node "
                                      r"\(unmunge: Error: Failed to access .*start munged there")
        self.assertEqual(self.keys(), [])

    def test_a_node_without_the_programs_says_so(self):
        done = self.step("--no-python", "sh", "-c", SAY, before=f"if [ $SLURM_NODEID = 1 ]; then {self.without_programs()}; fi")
        self.assertRegex(done.stderr, r"n2: task 1: Exited with exit code 78")
        self.assertIn("this node has no program unmunge: install munge", done.stderr)

    def test_a_false_first_node_is_not_believed(self):
        false_node = self.place / "false_node.py"
        false_node.write_text(FALSE_NODE)
        for how, code, told in (("stranger", 75, "it was made by the user 65534, and this muster runs as 0"),
                                ("step", 75, "it is for Slurm's step 1.0, and this node is of Slurm's step "),
                                ("job", 75, "it is for the job other, and this node is of the job "),
                                ("nonce", 75, "it answers another question"),
                                ("replayed", 78, "decoded on this node before"),
                                ("restricted", 78, "Unauthorized credential"),
                                ("damaged", 78, "munge refuses it")):
            with self.subTest(how):
                # The other node's limit of 12 s begins when the false one listens.
                listens = self.place / how
                before = (f"[ $SLURM_NODEID = 1 ] || exec {sys.executable} {false_node} {how} {listens}\n"
                          f"until [ -e {listens} ]; do sleep 0.05; done")
                done = self.step("--rdzv-conf=join_timeout=12", "--no-python", "sh", "-c", SAY, before=before)
                self.assertRegex(done.stderr, f"n2: task 1: Exited with exit code {code}")
                self.assertIn(told, done.stderr)
                self.assertNotIn("rank", done.stdout)
        self.assertEqual(self.keys(), [])


if __name__ == "__main__":
    if missing := cluster.missing_parts() + cluster.hosts.missing("munge", "unmunge"):
        cluster.skip_or_fail(f"a Slurm cluster with munge needs {', '.join(missing)}")
    if os.getpid() != 1:
        os.execvp("unshare", ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child=SIGKILL", sys.executable, *sys.argv])
    unittest.main(verbosity=2)
