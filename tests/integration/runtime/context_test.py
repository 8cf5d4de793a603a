"""The runtime's context where people use it: under muster, alone, and with an environment that is wrong. (Under the real torchrun:
tests/integration/trainer.)"""
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import own_processes  # noqa: E402, F401
from line_times import without_times  # noqa: E402

BIN = Path(os.environ["MUSTER_BIN"])
WORKER = str(Path(os.environ["MUSTER_WORKERS"]) / "context")
DEADLINE_S = 120


def clean_environment(**extra):
    kept = {key: value for key, value in os.environ.items()
            if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
            and not key.startswith(("MUSTER_", "TORCHELASTIC_", "PET_", "SLURM_"))}
    return {**kept, **extra}


def run(*command, **extra):
    with tempfile.TemporaryDirectory() as scratch:
        return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=DEADLINE_S,
                              env=clean_environment(TMPDIR=scratch, **extra))


def under_muster(ranks, *arguments, **extra):
    return run(BIN / "muster", "--standalone", "--nproc-per-node", ranks, "--no-python", WORKER, *arguments, **extra)


class Context(unittest.TestCase):
    def check_lines(self, done, ranks, transport):
        self.assertEqual(done.returncode, 0, done.stderr)
        total = ranks * (ranks + 1) // 2
        self.assertEqual(sorted(done.stdout.splitlines()),
                         sorted(f"rank={rank} world={ranks} local={rank} round=0 device={rank} sum={total} "
                                f"transport={transport}" for rank in range(ranks)))

    def test_under_muster_the_ranks_of_one_host_share_memory(self):
        for ranks in (2, 11):
            self.check_lines(under_muster(ranks), ranks, "shared memory")

    def test_tcp_can_be_asked_for(self):
        self.check_lines(under_muster(3, MUSTER_TRANSPORT="tcp"), 3, "tcp")

    def test_with_a_key_the_ranks_prove_themselves_with_what_their_agents_give_them(self):
        for ranks, transport, name in ((2, "", "shared memory"), (3, "tcp", "tcp")):
            done = under_muster(ranks, MUSTER_TRANSPORT=transport, MUSTER_KEY="a key of the test, 28 bytes")
            self.check_lines(done, ranks, name)
            done = under_muster(ranks, MUSTER_TRANSPORT=transport, MUSTER_WIRE_SECURITY="encrypt", MUSTER_KEY="a key of the test, 28 bytes")
            self.check_lines(done, ranks, name)
        # One node makes a key for its ranks where the job has none; two cannot.
        self.check_lines(under_muster(2, MUSTER_TRANSPORT="tcp", MUSTER_WIRE_SECURITY="encrypt"), 2, "tcp")
        for place, code, told in ((("c10d", "--rdzv-endpoint=127.0.0.1:1"), 2, "contradicts --insecure"),
                                  (("static", "--master-addr=127.0.0.1", "--master-port=1"), 78, "--wire-security encrypt needs a key")):
            with self.subTest(place[0]):
                unkeyed = run(BIN / "muster", "--nnodes=2", "--insecure", "--rdzv-id=x", "--rdzv-backend", *place, "--no-python", WORKER,
                              MUSTER_WIRE_SECURITY="encrypt")
                self.assertEqual(unkeyed.returncode, code)
                self.assertIn(told, unkeyed.stderr)

    def test_a_worker_that_gets_no_key_says_why_instead_of_joining_without(self):
        cases = [("unset MUSTER_AGENT_SOCKET", "MUSTER_AGENT_SOCKET is not set. Either the agent could not open its channel"),
                 ("unset MUSTER_AGENT_TOKEN", "MUSTER_AGENT_TOKEN is not set. Leave all MUSTER_ variables"),
                 ("export MUSTER_AGENT_TOKEN=0123", "MUSTER_AGENT_TOKEN is another worker's"),
                 ("export MUSTER_AGENT_SOCKET=@muster/nobody", "runs in another network namespace than its agent")]
        for change, told in cases:
            with tempfile.TemporaryDirectory() as scratch, self.subTest(change):
                program = Path(scratch) / "changed.sh"
                program.write_text(f"{change}; exec {WORKER}")
                done = run(BIN / "muster", "--standalone", "--nproc-per-node=2", "--no-python", "/bin/sh", program,
                           MUSTER_KEY="a key of the test, 28 bytes", MUSTER_WIRE_SECURITY="encrypt")
                self.assertEqual(done.returncode, 1)
                self.assertIn("the key of this round's ranks", done.stderr)
                self.assertIn(told, done.stderr)

    def check_two_nodes(self, transport, daemon_environment, *environments):
        """Two nodes at one musterd, with these environments."""
        command = [str(BIN / "musterd"), "--bind", "127.0.0.1", "--port", "0", "--first-start"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env=clean_environment(**daemon_environment)) as daemon:
            try:
                port = re.search(r"(\d+)\D*$", daemon.stdout.readline())[1]
                node = [BIN / "muster", "--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-id=two",
                        f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-conf=is_host=0", "--no-python", WORKER]
                with tempfile.TemporaryDirectory() as scratch:
                    nodes = [subprocess.Popen(list(map(str, node)), stdout=subprocess.PIPE, text=True,
                                              env=clean_environment(TMPDIR=scratch, MUSTER_TRANSPORT=transport, **environment))
                             for environment in environments]
                    lines = [line for one in nodes for line in one.communicate(timeout=DEADLINE_S)[0].splitlines()]
                self.assertEqual([one.returncode for one in nodes], [0, 0])
                self.assertEqual(sorted(lines), [f"rank={rank} world=4 local={rank % 2} round=0 device={rank % 2} sum=10 "
                                                 f"transport={transport}" for rank in range(4)])
            finally:
                daemon.terminate()

    def test_two_nodes_are_hierarchical_when_that_is_asked_for(self):
        self.check_two_nodes("hierarchical", {}, {}, {})

    def test_ranks_meet_while_one_node_has_the_old_key_and_one_the_new_one(self):
        with tempfile.TemporaryDirectory() as scratch:
            new, old = Path(scratch) / "key", Path(scratch) / "key.old"
            for file in (new, old):
                file.write_text(f"the {file.name} of the test, long enough")
                file.chmod(0o600)
            self.check_two_nodes("tcp", {"MUSTER_SECRET_FILE": str(new)}, {"MUSTER_SECRET_FILE": str(new)},
                                 {"MUSTER_SECRET_FILE": str(old)})

    def test_the_page_s_program_prints_what_the_page_says(self):
        page = (Path(__file__).resolve().parents[3] / "worker_runtime/RUNTIME.md").read_text()
        done = run(BIN / "muster", "--standalone", "--nproc-per-node", 2, "--no-python", Path(WORKER).with_name("runtime_page"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), sorted(re.search(r"^```text\n(.*?)^```$", page, re.M | re.S)[1].splitlines()))

    @unittest.skipUnless(os.environ.get("MUSTER_STAND_INS"), "the NCCL plugin was not built")
    def test_nccl_can_be_asked_for(self):
        folder = Path(os.environ["MUSTER_STAND_INS"])
        libraries = {"MUSTER_TRANSPORT": "nccl", "MUSTER_NCCL_PLUGIN": BIN.parent / "lib" / "libmuster_nccl.so",
                     "MUSTER_CUDA_LIBRARY": folder / "libstandin_cuda.so",
                     "MUSTER_NCCL_LIBRARY": folder / "libstandin_nccl.so"}
        self.check_lines(under_muster(2, **libraries), 2, "nccl")
        settings = {**libraries, "NCCL_ALGO": "Ring", "NCCL_NET": "Socket"}
        alone = run(WORKER, **settings)
        self.assertEqual(alone.stdout, "rank=0 world=1 local=0 round=0 device=0 sum=1 transport=nccl\n", alone.stderr)
        what = r"NCCL \d+\.\d+.*, device \d at .*NCCL_ALGO=Ring.*NCCL_NET=Socket"
        self.assertRegex(without_times(alone.stderr), f"^muster: {what}")
        self.assertEqual(run(WORKER, **settings, MUSTER_LOG_LEVEL="error").stderr, "")
        # Rank 0 alone says it unasked.
        self.assertEqual(len(re.findall(what, under_muster(2, **settings).stderr)), 1)
        self.assertEqual(len(re.findall(what, under_muster(2, **settings, MUSTER_LOG_LEVEL="info").stderr)), 2)
        # The failure of one rank's GPU is every rank's error, and nobody waits for the deadline.
        done = under_muster(2, **{**libraries, "MUSTER_STANDIN_GPUS": "1"})
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no usable GPU: this rank's would be number 1, and 1 is visible", done.stderr)

    def test_without_its_plugin_nccl_is_an_error_that_says_so(self):
        done = run(WORKER, MUSTER_TRANSPORT="nccl", MUSTER_NCCL_PLUGIN="/nowhere/libmuster_nccl.so")
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot load the NCCL plugin: /nowhere/libmuster_nccl.so", done.stderr)

    def test_an_interface_that_does_not_exist_is_named_with_those_that_do(self):
        done = under_muster(2, MUSTER_TRANSPORT="tcp", MUSTER_IFNAME="nosuch0")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("MUSTER_IFNAME=nosuch0: ", done.stderr)
        self.assertRegex(done.stderr, r"there are: .*\blo\b")

    def test_alone_the_world_is_one(self):
        done = run(WORKER)
        self.assertEqual(done.stdout, "rank=0 world=1 local=0 round=0 device=0 sum=1 transport=alone\n", done.stderr)

    def test_a_wrong_environment_is_an_error_that_names_the_variable(self):
        good = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": "29500"}
        cases = [({"WORLD_SIZE": None}, "WORLD_SIZE is not set"), ({"MASTER_ADDR": None}, "MASTER_ADDR is not set"),
                 ({"RANK": "2"}, "RANK=2 contradicts WORLD_SIZE=2"), ({"LOCAL_RANK": "x"}, "LOCAL_RANK=x is not a whole"),
                 ({"LOCAL_WORLD_SIZE": "3"}, "LOCAL_WORLD_SIZE=3 contradicts WORLD_SIZE=2"),
                 ({"LOCAL_RANK": "1"}, "LOCAL_RANK=1 contradicts RANK=0: all 2 ranks are on this node"),
                 ({"RANK": None, "WORLD_SIZE": None}, "WORLD_SIZE is not set, though LOCAL_RANK is"),
                 ({"WORLD_SIZE": "4", "LOCAL_RANK": "1"}, "LOCAL_RANK=1 contradicts RANK=0: its node has 1 lower ranks"),
                 ({"RANK": "3", "WORLD_SIZE": "4"}, "RANK=3 contradicts LOCAL_WORLD_SIZE=2: its node has 1 higher ranks"),
                 ({"MUSTER_TRANSPORT": "pigeon"}, "MUSTER_TRANSPORT=pigeon; accepted:"),
                 ({"MUSTER_TCP_ALGORITHM": "star"}, "MUSTER_TCP_ALGORITHM=star; accepted:"),
                 ({"MUSTER_LOG_LEVEL": "loud"}, "MUSTER_LOG_LEVEL=loud; accepted:")]
        for change, words in cases:
            with self.subTest(words):
                environment = {name: value for name, value in {**good, **change}.items() if value is not None}
                if any(name.startswith("MUSTER_") for name in change):
                    environment = change
                done = run(WORKER, **environment)
                self.assertEqual(done.returncode, 1)
                self.assertIn(words, done.stderr)

    def under_a_lie(self, lie, **extra):
        """Where rank 1 is told something else; everybody says what it thinks of it."""
        shell = f'trap "" TERM; if test "$RANK" = 1; then export {lie}; fi; "$0"'
        return run(BIN / "muster", "--standalone", "--nproc-per-node=2", "--shutdown-timeout=1", "--no-python", "sh", "-c", shell,
                   WORKER, **extra)

    def test_ranks_that_were_told_different_things_say_so_at_once(self):
        for lie, words in (("RANK=0 LOCAL_RANK=0", r"RANK=0 is the rank of two processes of this round, this one \(pid \d+ on .*\) and pid"),
                           ("WORLD_SIZE=3", r"WORLD_SIZE=[23] on rank \d \(pid \d+ on .*\) contradicts WORLD_SIZE=[23] on rank \d"),
                           ("MUSTER_TRANSPORT=tcp", r"(MUSTER_TRANSPORT=tcp on rank 1 .* contradicts transport=automatic on rank 0|"
                                                   r"transport=automatic on rank 0 .* contradicts MUSTER_TRANSPORT=tcp on rank 1)")):
            with self.subTest(lie):
                done = self.under_a_lie(lie)
                self.assertNotEqual(done.returncode, 0)
                self.assertRegex(done.stderr, words)

    def test_programs_of_a_worker_meet_one_after_another(self):
        for transport in ("automatic", "tcp"):
            done = run(BIN / "muster", "--standalone", "--nproc-per-node=2", "--no-python", "sh", "-c", '"$0" && "$0" && "$0"',
                       WORKER, MUSTER_TRANSPORT=transport)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(len(re.findall(r"^rank=\d world=2 .* sum=3 ", done.stdout, re.MULTILINE)), 6, done.stdout)

    def test_programs_of_a_worker_may_have_a_transport_each(self):
        done = run(BIN / "muster", "--standalone", "--nproc-per-node=2", "--no-python", "sh", "-c",
                   'MUSTER_TRANSPORT=tcp "$0" && MUSTER_TRANSPORT=shared_memory "$0"', WORKER)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(re.findall(r"transport=(.*)", done.stdout)), ["shared memory"] * 2 + ["tcp"] * 2)

    def test_a_driver_that_has_closed_its_context_leaves_its_rank_to_its_child(self):
        self.check_lines(under_muster(2, "driver"), 2, "shared memory")

    def test_ranks_that_do_not_meet_are_told_who_is_at_another_context(self):
        shell = ('until_there() { until test -e "$1"; do sleep 0.05; done; }\n'
                 'if test "$RANK" = 1; then "$0" meet; touch "$1/once"; until_there "$1/twice"\n'
                 'else until_there "$1/once"; "$0" meet; "$0" meet; touch "$1/twice"; fi; exit 3')
        with tempfile.TemporaryDirectory() as marks:
            done = run(BIN / "muster", "--standalone", "--nproc-per-node=2", "--no-python", "sh", "-c", shell, WORKER, marks)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("rank 1 opens its context 1 of this round, this rank its context 2", done.stderr)

    def test_the_rounds_end_ends_a_wait_that_no_dead_peer_would(self):
        done = run(BIN / "muster", "--standalone", "--nproc-per-node=3", "--shutdown-timeout=20",
                   "--no-python", WORKER, "outlive")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("the round ended", done.stdout)
        self.assertIn("rank 2", done.stdout)

    def test_a_rank_that_is_killed_in_a_split_is_named_long_before_any_deadline(self):
        for transport in ("shared_memory", "tcp"):
            with self.subTest(transport):
                done = under_muster(3, "split", MUSTER_TRANSPORT=transport)
                killed = float(re.search(r"killed at ([\d.]+)", done.stdout)[1])
                failures = re.findall(r"failed at ([\d.]+): (.*)", done.stdout)
                self.assertEqual(len(failures), 2, done.stdout + done.stderr)
                for when, why in failures:
                    self.assertRegex(why, r"rank 1\b")
                    self.assertLess(float(when) - killed, 100)  # the meeting's deadline is 300 s

    def test_flight_records_stay_after_a_failure_and_tell_who_is_missing(self):
        with tempfile.TemporaryDirectory(prefix="muster flight ") as logs:
            command = (BIN / "muster", "--standalone", "--nproc-per-node=3", "--shutdown-timeout=1", "--max-restarts=1",
                       "--log-dir", logs, "--no-python", WORKER, "absent")
            done = run(*command)
            self.assertEqual(done.returncode, 3, done.stderr)
            rings = [path.name for path in sorted(Path(logs).rglob("*.ring"))]
            self.assertEqual(rings, ["flight_0.ring", "flight_1.ring", "flight_2.ring"] * 2, "one for each rank and attempt")
            told = re.search(r"muster flight '(.*)'$", done.stderr, re.MULTILINE)
            self.assertIsNotNone(told, done.stderr)
            self.assertEqual(Path(told[1]).name, "attempt_1")
            flight = run(BIN / "muster", "flight", told[1])
            self.assertRegex(flight.stdout, r"rank 1 \(pid \d+ on .*\) is missing from operation 1 \(barrier\): it has run no operation")

    def test_a_job_that_ends_well_leaves_no_flight_record(self):
        with tempfile.TemporaryDirectory() as logs:
            failing_once = f'test -e "$0/once" || {{ touch "$0/once"; "{WORKER}" fail; exit; }}; exec "{WORKER}"'
            done = run(BIN / "muster", "--standalone", "--nproc-per-node=1", "--max-restarts=1", "--log-dir", logs,
                       "--no-python", "sh", "-c", failing_once, logs)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue((Path(logs) / "once").exists())
            self.assertEqual(list(Path(logs).rglob("*.ring")), [])
            self.assertNotIn("muster flight", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
