#!/usr/bin/env python3
"""PyTorch's Python API that starts jobs, with scripts/torchrun-compat in front in PATH: muster runs the workers, and callers get what
torch's own launcher gives them. torch is imported once; most workers are scripts without it.

MUSTER_TEST_PYTHON names the Python that has PyTorch. Without PyTorch: exit 77, in CI 1.
"""
import contextlib
import importlib.util
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import types
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/support"))
from line_times import LINE_TIME  # noqa: E402
from torch_there import has_torch  # noqa: E402

PYTHON = os.environ.get("MUSTER_TEST_PYTHON") or str(ROOT / ".venv/bin/python")
COMPAT = ROOT / "scripts/torchrun-compat"
PACKAGE = ROOT / "worker_runtime/python"
DEADLINE = 180


def go_on_with_torch():
    if not has_torch(PYTHON):
        print("skipped: no PyTorch (MUSTER_TEST_PYTHON)")
        sys.exit(1 if os.environ.get("CI") == "true" else 77)
    for name in [name for name in os.environ if name.startswith(("PET_", "SLURM_"))]:
        del os.environ[name]
    os.environ.update(PATH=f"{COMPAT}:{os.environ['PATH']}", PYTHONPATH=str(PACKAGE), MUSTER_PROGRAM=os.environ["MUSTER_BINARY"],
                      IN_TORCH_API_TEST="1", OMP_NUM_THREADS="1", TORCHELASTIC_ERROR_FILE="")
    os.execv(PYTHON, [PYTHON, *sys.argv])


if __name__ == "__main__" and not os.environ.get("IN_TORCH_API_TEST"):
    go_on_with_torch()

import own_tmpdir  # noqa: E402, F401
from ports import free_port  # noqa: E402
import torch  # noqa: E402, F401
import torch.distributed.run as torchrun  # noqa: E402
from torch.distributed.elastic.multiprocessing import SignalException  # noqa: E402
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError  # noqa: E402
from torch.distributed.launcher import api  # noqa: E402

from muster import compat  # noqa: E402

# A line for each worker: whose it is, and what it was given.
SCRIPT = """
import json, os, sys, time
FOLDER = os.path.dirname(os.path.abspath(__file__))
rank = os.environ["RANK"]
with open(f"{FOLDER}/{rank}", "w") as file:
    json.dump({"arguments": sys.argv[1:], "muster": "MUSTER_ROUND" in os.environ, "restarts": os.environ["TORCHELASTIC_RESTART_COUNT"],
               "python": sys.executable, "pid": os.getpid()}, file)
"""


def doubled(number, word):
    return int(os.environ["RANK"]) + number, word, "MUSTER_ROUND" in os.environ


def inherited(name):
    return os.environ[name]


def fails(_):
    if os.environ["RANK"] == "1":
        raise LookupError("of this function")
    time.sleep(600)  # until muster ends it


def wait_for(condition):
    until = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < until, "the condition has not come"
        time.sleep(0.01)  # between two looks


class Api(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="muster api ")))
        self.heard = self.enterContext(contextlib.redirect_stderr(io.StringIO()))

    def script(self, text="", name="train it.py"):
        path = self.folder / name
        path.write_text(SCRIPT+ textwrap.dedent(text))
        return str(path)

    def workers(self, ranks=2):
        found = [json.loads((self.folder / str(rank)).read_text()) for rank in range(ranks)]
        self.assertEqual([worker["muster"] for worker in found], [True] * ranks, found)
        return found

    def config(self, **fields):
        return api.LaunchConfig(**{"min_nodes": 1, "max_nodes": 1, "nproc_per_node": 2, "run_id": "api", "rdzv_backend": "c10d",
                                   "rdzv_endpoint": "localhost:0", "max_restarts": 0, **fields})

    def test_main_and_run_start_muster(self):
        torchrun.main(["--nproc-per-node=2", self.script(), "--lr", "a b", "${local_rank}"])
        found = self.workers()
        self.assertEqual([worker["arguments"] for worker in found], [["--lr", "a b", str(rank)] for rank in (0, 1)])
        self.assertEqual({worker["python"] for worker in found}, {sys.executable})
        (self.folder / "trainer.py").write_text(pathlib.Path(self.script()).read_text())
        with unittest.mock.patch.dict(os.environ, {"PYTHONPATH": f"{PACKAGE}:{self.folder}"}):
            torchrun.run(torchrun.parse_args(["--nproc_per_node=2", "--nnodes=1", "--standalone", "--module", "trainer", "of a module"]))
        self.assertEqual([worker["arguments"] for worker in self.workers()], [["of a module"]] * 2)
        torchrun.main(["--nproc-per-node=2", "--run-path", self.script(), "of a path"])
        self.assertEqual([worker["arguments"] for worker in self.workers()], [["of a path"]] * 2)

    def test_options_are_translated(self):
        # As lightning's `fabric run` calls it, on one of two nodes.
        fabric = torchrun.parse_args(["--nproc_per_node=4", "--nnodes=2", "--node_rank=1", "--master_addr=node0", "--master_port=29400", "train.py"])
        config, command, arguments = torchrun.config_from_args(fabric)
        words = compat.options.of(config)
        for word in ("--nnodes=2", "--nproc-per-node=4", "--node-rank=1", "--rdzv-backend=static", "--rdzv-endpoint=node0:29400", "--rdzv-id=none",
                     "--rdzv-conf=timeout=900", "--max-restarts=0", "--redirects=0", "--tee=0", "--shutdown-timeout=30"):
            self.assertIn(word, words)
        self.assertEqual(compat.options.program(command, arguments), (["train.py"], {"PYTHON_EXEC": sys.executable}))
        words = compat.options.of(self.config(max_nodes=3, virtual_local_rank=True, duplicate_stdout_filters=["a,b", "c"], local_addr="here"))
        for word in ("--nnodes=1:3", "--virtual-local-rank", "--duplicate-stdout-filters=a,,b,c", "--local-addr=here", "--rdzv-id=api"):
            self.assertIn(word, words)
        self.assertEqual([word for word in words if word.startswith("--rdzv-conf")], [])
        # torch reads the first one so, and makes such a one of --master_addr.
        for endpoint, taken in (("fd00::1:6000", "[fd00::1]:6000"), ("[fd00::1]:6000", "[fd00::1]:6000"), ("fd00::1", "fd00::1"),
                                ("a:1,b:2", "a:1,b:2"), ("http://a:1", "http://a:1"), ("a", "a")):
            self.assertIn(f"--rdzv-endpoint={taken}", compat.options.of(self.config(rdzv_endpoint=endpoint)))
        static = torchrun.parse_args(["--nnodes=2", "--node_rank=1", "--master_addr=fd00::1", "--master_port=29400", "train.py"])
        self.assertIn("--rdzv-endpoint=[fd00::1]:29400", compat.options.of(torchrun.config_from_args(static)[0]))

    def test_launch_gives_the_local_rank(self):
        from torch.distributed import launch

        launch.main(["--nproc_per_node=2", self.script(), "x"])
        self.assertEqual([worker["arguments"] for worker in self.workers()], [[f"--local-rank={rank}", "x"] for rank in (0, 1)])

    def test_commands_and_logs(self):
        logs = api.DefaultLogsSpecs(log_dir=str(self.folder / "logs"), redirects={0: torchrun.Std.OUT, 1: torchrun.Std.ALL})
        returned = api.elastic_launch(self.config(logs_specs=logs, run_id="named"), "sh")("-c", 'echo "out $RANK $TORCHELASTIC_RUN_ID"')
        self.assertEqual(returned, {0: None, 1: None})
        self.assertEqual(sorted(path.read_text().splitlines()[-1] for path in self.folder.glob("logs/*/attempt_0/*/stdout.log")),
                         ["out 0 named", "out 1 named"])

    def test_a_failure_is_torchs_exception(self):
        for end, code in (("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", -9)):
            with self.assertRaises(ChildFailedError) as raised:
                torchrun.main(["--nproc-per-node=2", self.script(f"if rank == '1': {end}\ntime.sleep(600)")])
            ((rank, failure),) = raised.exception.failures.items()
            pid = json.loads((self.folder / "1").read_text())["pid"]  # rank 0 may have been stopped before it wrote anything
            self.assertEqual((rank, failure.local_rank, failure.exitcode, failure.pid), (1, 1, code, pid))
            self.assertIn("train it.py FAILED", str(raised.exception))

    def test_a_killed_worker_is_started_again(self):
        text = "if rank == '1' and os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': os.kill(os.getpid(), 9)"
        torchrun.main(["--nproc-per-node=2", "--max-restarts=1", self.script(text)])
        self.assertEqual([worker["restarts"] for worker in self.workers()], ["1", "1"])

    def test_a_function_returns_its_values(self):
        returned = api.elastic_launch(self.config(), doubled)(40, "${local_rank}")
        self.assertEqual(returned, {0: (40, "0", True), 1: (41, "1", True)})

    def test_nodes_that_call_the_same_function_run_the_same_program(self):
        """Agents compare its name and arguments: a difference is a warning on all nodes, and a surplus node is refused for it."""
        def program(function, *arguments):
            with tempfile.TemporaryDirectory() as folder:
                (path, *words), _ = compat.function.pack(function, list(arguments), self.config(), folder)
                return pathlib.Path(path).name, words
        self.assertEqual(program(doubled, 40, "a"), program(doubled, 40, "a"))
        self.assertNotEqual(program(doubled, 40, "a"), program(doubled, 41, "a"))
        self.assertNotEqual(program(doubled, 40, "a"), program(fails, 40, "a"))

    def test_what_a_function_raises_is_in_the_failure(self):
        with self.assertRaises(ChildFailedError) as raised:
            api.elastic_launch(self.config(), fails)("x")
        rank, failure = raised.exception.get_first_failure()
        self.assertEqual((rank, failure.exitcode), (1, 1))
        self.assertIn("LookupError: of this function", failure.message["message"])
        self.assertIn("fails FAILED", str(raised.exception))

    def test_a_signal_reaches_the_workers_once(self):
        text = """
            import signal
            def stop(*_):
                with open(f"{os.environ['STOPS']}.{rank}", "a") as file:
                    file.write("stop ")
                sys.exit(0)
            signal.signal(signal.SIGTERM, stop)
            open(f"{os.environ['STOPS']}.{rank}", "w").close()
            time.sleep(600)
            """
        stops = self.folder / "stops"
        script = self.script(text)

        def send():
            try:
                wait_for(lambda: all(pathlib.Path(f"{stops}.{rank}").exists() for rank in (0, 1)))
                children = pathlib.Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
                groups.extend(os.getpgid(int(child)) for child in children)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

        before = signal.getsignal(signal.SIGTERM)
        groups = []
        with unittest.mock.patch.dict(os.environ, {"STOPS": str(stops)}):
            sender = threading.Thread(target=send)
            sender.start()
            with self.assertRaises(SignalException) as raised:
                torchrun.main(["--nproc-per-node=2", script])
            sender.join()
        self.assertEqual(raised.exception.sigval, signal.SIGTERM)
        self.assertEqual(signal.getsignal(signal.SIGTERM), before)
        # A signal to this process's group, such as that of Ctrl-C, comes to muster through this process alone.
        self.assertEqual(len(groups), 1)
        self.assertNotEqual(groups[0], os.getpgid(0))
        self.assertEqual([pathlib.Path(f"{stops}.{rank}").read_text() for rank in (0, 1)], ["stop "] * 2)

    def test_muster_does_not_outlive_its_caller(self):
        script = self.script("os.rename(f'{FOLDER}/{rank}', f'{FOLDER}/{rank}.ready')\ntime.sleep(600)")
        caller = os.fork()
        if caller == 0:
            try:
                torchrun.main(["--nproc-per-node=2", script])
            finally:
                os._exit(1)
        try:
            ready = [self.folder / f"{rank}.ready" for rank in (0, 1)]
            wait_for(lambda: all(path.exists() for path in ready))
        finally:
            os.kill(caller, signal.SIGKILL)
            os.waitpid(caller, 0)
        workers = [json.loads(path.read_text())["pid"] for path in ready]
        try:
            wait_for(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in workers))
        except AssertionError:
            os.kill(workers[0], signal.SIGKILL)  # which ends the job
            raise

    def test_muster_says_what_is_wrong_with_an_option(self):
        with self.assertRaisesRegex(ValueError, "muster exited with 2: "):
            torchrun.main(["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--rdzv-conf=no_such_key=1", self.script()])

    def test_the_report_is_where_the_user_wants_it(self):
        with unittest.mock.patch.dict(os.environ, {"MUSTER_REPORT": str(self.folder / "100%% %j.json")}):
            torchrun.main(["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--rdzv-id=named", self.script()])
        self.assertEqual(json.loads((self.folder / "100% named.json").read_text())["outcome"], "succeeded")

    def test_a_report_that_cannot_be_written_is_told_before_anything_runs(self):
        with unittest.mock.patch.dict(os.environ, {"MUSTER_REPORT": str(self.folder / "no such folder/report")}):
            with self.assertRaisesRegex(ValueError, "muster exited with 2: "):
                torchrun.main(["--nproc-per-node=1", self.script()])
        self.assertFalse((self.folder / "0").exists())
        with unittest.mock.patch.dict(os.environ, {"MUSTER_REPORT": str(self.folder / "%j")}):
            api.elastic_launch(self.config(nproc_per_node=1, run_id="team/run"), "true")()
        self.assertEqual(json.loads((self.folder / "team_run").read_text())["job"], "team/run")

    def test_a_job_without_an_id_is_no_other_job(self):
        ready, over = self.folder / "ready", self.folder / "over"
        config = self.config(nproc_per_node=1, run_id="", rdzv_endpoint="")
        first = threading.Thread(target=api.elastic_launch(config, "sh"),
                                 args=("-c", 'touch "$0"; until [ -e "$1" ]; do sleep 0.05; done', str(ready), str(over)))
        first.start()
        try:
            wait_for(ready.exists)
            api.elastic_launch(config, "touch")(str(self.folder / "second"))
            self.assertTrue((self.folder / "second").exists())
        finally:
            over.touch()
            first.join()

    def stand_in(self, text):
        program = self.folder / "stand-in"
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
        return unittest.mock.patch.dict(os.environ, {"MUSTER_PROGRAM": str(program)})

    def test_a_spare_has_no_result(self):
        with self.stand_in("""echo '{"part": "spare", "job": "full"}' > "$MUSTER_CALLER_REPORT\""""), \
                self.assertRaisesRegex(RuntimeError, "job full is over, and this node was a spare"):
            api.elastic_launch(self.config(), "true")()

    def test_a_stop_signal_that_comes_at_the_jobs_end_is_not_lost(self):
        ready = self.folder / "ready"
        sender = threading.Thread(target=lambda: (wait_for(ready.exists), os.kill(os.getpid(), signal.SIGTERM)))
        with self.stand_in(f"trap 'exit 0' TERM\ntouch '{ready}'\nwhile :; do sleep 0.05; done"):
            sender.start()
            with self.assertRaises(SignalException):
                api.elastic_launch(self.config(), "true")()
            sender.join()

    def test_a_handler_that_is_not_pythons_stays(self):
        config = self.config(nproc_per_node=1, signals_to_handle="SIGUSR2,SIGTERM,SIGTERM")
        before = signal.getsignal(signal.SIGTERM)
        with unittest.mock.patch("signal.getsignal", lambda number: None if number == signal.SIGUSR2 else before), \
                unittest.mock.patch("signal.signal", wraps=signal.signal) as set_handler:
            self.assertEqual(api.elastic_launch(config, "true")(), {0: None})
        self.assertEqual([call.args[0] for call in set_handler.call_args_list], [signal.SIGTERM] * 2)
        self.assertEqual(signal.getsignal(signal.SIGTERM), before)

    def test_what_torch_does_not_read_muster_does_not_either(self):
        with unittest.mock.patch.dict(os.environ, {"PET_NODE_RANK": "3", "PET_NO_PYTHON": "1", "PET_RDZV_CONF": "no_such_key=1"}):
            self.assertEqual(api.elastic_launch(self.config(), doubled)(1, os.environ["PET_NODE_RANK"]), {0: (1, "3", True), 1: (2, "3", True)})
            self.assertEqual(api.elastic_launch(self.config(), inherited)("PET_NODE_RANK"), {0: "3", 1: "3"})
            self.assertEqual(api.elastic_launch(self.config(), "sh")("-c", 'test "$PET_NODE_RANK" = 3'), {0: None, 1: None})
        with unittest.mock.patch.dict(os.environ, {"PET_NODE_RANK": "3"}):
            torchrun.main(["--standalone", "--nproc-per-node=2", self.script()])
            static = self.config(rdzv_backend="static", rdzv_endpoint=f"localhost:{free_port()}")
            self.assertEqual(api.elastic_launch(static, "true")(), {0: None, 1: None})
        self.workers()

    def refusal(self, config, entrypoint, *arguments, **named):
        """What is said when torch's own launcher, a stand-in here, gets the job."""
        api_of_torch = types.SimpleNamespace(**{name: getattr(api, name) for name in ("LaunchConfig", "elastic_launch")},
                                             launch_agent=lambda config, entrypoint, args, health_check_server=None: "torch's own")
        compat.attach(api_of_torch)
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(api_of_torch.launch_agent(config, entrypoint, list(arguments), **named), "torch's own")
        self.assertEqual(said.getvalue().count("\n"), 1)
        return said.getvalue()

    def test_what_muster_cannot_do_is_left_to_torch_and_told(self):
        shared = torch.zeros(2).share_memory_()
        for said, config, entrypoint, arguments in (
                ("with start_method='fork' the function doubled may need the memory", self.config(start_method="fork"), doubled, ()),
                ("cannot be pickled", self.config(), lambda: 5, ()),
                ("a tensor in shared memory would be copied", self.config(), doubled, (shared,)),
                ("does not know the rendezvous back end 'zeus'", self.config(rdzv_backend="zeus"), "sh", ()),
                ("does not know the event log handler 'mine'", self.config(event_log_handler="mine"), "sh", ()),
                ("does not know LaunchConfig.metrics_cfg={'a': 'b'}", self.config(metrics_cfg={"a": "b"}), "sh", ())):
            self.assertIn(f"muster: PyTorch's own launcher is used: {'the function' if 'pickled' in said else ''}",
                          told := self.refusal(config, entrypoint, *arguments))
            self.assertIn(said, told)
        self.assertIn("has no health check server", self.refusal(self.config(), "sh", health_check_server=object()))
        with unittest.mock.patch.dict(os.environ, {"MUSTER_PROGRAM": "", "PATH": "/nonexistent"}), \
                unittest.mock.patch("muster.__main__.find_program", lambda: None):
            self.assertIn("there is no program muster", self.refusal(self.config(), "sh"))

    def test_another_interface_of_torch_stays_as_it_is(self):
        other = types.SimpleNamespace(LaunchConfig=api.LaunchConfig, elastic_launch=api.elastic_launch, launch_agent=lambda spec: spec)
        before = other.launch_agent
        for module in (other, types.SimpleNamespace()):
            with contextlib.redirect_stderr(io.StringIO()) as said:
                compat.attach(module)
            self.assertRegex(said.getvalue(), rf"\A{LINE_TIME}muster: PyTorch's own launcher is used: "
                             r"muster does not know the interface of this torch.*\n\Z")
        self.assertIs(other.launch_agent, before)


class Programs(unittest.TestCase):
    """Whole programs, each of which imports torch."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="muster api ")))

    def run_words(self, *words, **environment):
        done = subprocess.run([str(word) for word in words], text=True, capture_output=True, timeout=DEADLINE, cwd=self.folder,
                              env={**os.environ, **environment})
        return done.returncode, done.stdout, done.stderr

    def test_a_program_of_a_virtual_environment(self):
        """As pip writes one where the path has spaces; neither torchrun-compat nor muster's package is on a path yet."""
        env = self.folder / "an env"
        subprocess.run([sys._base_executable, "-m", "venv", "--without-pip", env], check=True, timeout=DEADLINE)
        site = next(env.glob("lib/python3*/site-packages"))
        (site / "torchs.pth").write_text(str(pathlib.Path(torch.__file__).parents[1]))
        tool = env / "bin/tool"
        tool.write_text(f"""#!/bin/sh\n'''exec' "{env}/bin/python" "$0" "$@"\n' '''\nimport sys, torch.distributed.run as r\nr.main(sys.argv[1:])\n""")
        tool.chmod(0o755)
        script = self.folder / "train it.py"
        script.write_text("import os, sys; sys.stdout.write(f\"{'MUSTER_ROUND' in os.environ} {sys.prefix} {sys.argv[1:]}\\n\")")
        path = os.environ["PATH"].removeprefix(f"{COMPAT}:")
        code, text, told = self.run_words("sh", "-c", 'PYTHONPATH=$1 exec "$2" -m muster.compat tool --nproc_per_node=2 "$3" "a b"', "sh", PACKAGE,
                                    env / "bin/python", script, PATH=path, PYTHONPATH="")
        self.assertEqual((code, text), (0, f"True {env} ['a b']\n" * 2), told)

    def test_a_program_of_an_environment_without_muster_is_told(self):
        tool = self.folder / "tool"
        (self.folder / "muster_torch.py").write_text("print('imported')")
        # -E, -I: it sees no PYTHONPATH, which is where muster is. Modules of the current directory are not its own.
        for flag, lines in (("-I", 1), ("-E", 1), ("-s", 0)):
            tool.write_text(f"#!{sys.executable} {flag}\nprint('ran')\n")
            tool.chmod(0o755)
            code, text, told = self.run_words(sys.executable, "-m", "muster.compat", tool)
            self.assertEqual((code, text, told.count("\n")), (0, "ran\n", lines), told)
            self.assertEqual(f"runs with {sys.executable} {flag}, which does not have the package muster" in told, lines == 1, told)

    def test_a_script_without_a_guard_starts_one_job(self):
        script = self.folder / "train.py"
        script.write_text(textwrap.dedent(f"""
            import os
            import pathlib
            from torch.distributed.launcher import api

            def work():
                pass

            with open("starts", "a") as file:
                file.write(os.environ.get("RANK", "-") + "\\n")
            # Not a bomb, should it go off.
            assert pathlib.Path("starts").read_text().count("\\n") < 20
            config = api.LaunchConfig(1, 1, 2, run_id="bomb", rdzv_backend="c10d", rdzv_endpoint="localhost:0", max_restarts=0)
            api.elastic_launch(config, work)()
            """))
        code, _, told = self.run_words(sys.executable, script)
        self.assertEqual(code, 1, told)
        self.assertIn("current process has finished its bootstrapping phase", told)
        self.assertIn("ChildFailedError", told)
        starts = (self.folder / "starts").read_text().split()
        self.assertEqual((starts[0], len(starts) <= 3, len(set(starts))), ("-", True, len(starts)), starts)

    def test_accelerate_launch(self):
        if not importlib.util.find_spec("accelerate"):
            said = "no accelerate (scripts/setup --tests)"
            self.fail(said) if os.environ.get("CI") == "true" else self.skipTest(said)
        script = self.folder / "train.py"
        script.write_text(textwrap.dedent("""
            import os, signal
            import accelerate, torch
            state = accelerate.Accelerator(cpu=True)
            if state.process_index == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
                os.kill(os.getpid(), signal.SIGKILL)
            total = state.reduce(torch.ones(1) * (1 + state.process_index), "sum")
            print(f"rank {state.process_index} of {state.num_processes}: {total.item()}, round {os.environ['MUSTER_ROUND']}", flush=True)
            state.end_training()
            """))
        code, text, told = self.run_words(sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes=2", "--num_machines=1",
                                    f"--main_process_port={free_port()}", "--mixed_precision=no", "--dynamo_backend=no", "--max_restarts=1", script)
        self.assertEqual(code, 0, told)
        for rank in (0, 1):
            self.assertIn(f"rank {rank} of 2: 3.0, round 1", text)
        self.assertRegex(told, r"muster: .*rank 1 .*SIGKILL")


if __name__ == "__main__":
    unittest.main()
