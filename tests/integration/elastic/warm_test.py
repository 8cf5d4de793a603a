"""Warm workers: what a standby process has become equals a worker that was started normally, and one that fails delays
nothing."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import unittest

from job import BIN, Job, wait_for

# Writes what a script can see of its process, waits, and ends as WARM_END says in the last round. Rank 0 alone raises: two
# ranks' tracebacks would be mixed.
FACTS = """
import json, multiprocessing, os, pickle, re, sys, threading, time
class Thing: pass
def memory_policies():
    try:
        return sorted({line.split()[1] for line in open("/proc/self/numa_maps")})
    except OSError:  # a kernel without NUMA
        return []
def facts():
    main = sys.modules["__main__"]
    status = [line for line in open("/proc/self/status") if line.startswith(("SigBlk", "SigIgn", "SigCgt", "Threads"))]
    return {
        "argv": sys.argv, "path": sys.path, "flags": str(sys.flags), "orig_argv": getattr(sys, "orig_argv", None),
        "main": {name: "" if name in ("__builtins__", "__loader__") else repr(value).split(" at 0x")[0]
                 for name, value in vars(main).items() if name.startswith("__")},
        "names": sorted(vars(main)), "loader": type(vars(main)["__loader__"]).__name__,
        "environ": dict(os.environ), "cwd": os.getcwd(), "leads": os.getpgrp() == os.getsid(0) == os.getpid(),
        "pid": os.getpid(), "ppid": os.getppid(), "policy": os.sched_getscheduler(0), "cpus": sorted(os.sched_getaffinity(0)),
        "memory": memory_policies(), "groups": re.sub(r"worker-\\d+(-normal)?", "worker-N", open("/proc/self/cgroup").read()),
        "descriptors": sorted(os.listdir("/proc/self/fd")), "status": status,
        "streams": [[s.name, s.encoding, s.errors, s.line_buffering, s.write_through, s.isatty(), type(s.buffer).__name__]
                    for s in (sys.stdin, sys.stdout, sys.stderr)],
        "kinds": [os.readlink(f"/proc/self/fd/{number}").split(":")[0] for number in (0, 1, 2)],
        "hook": sys.excepthook is sys.__excepthook__, "threads": [t.name for t in threading.enumerate()],
        "modules": sorted(set(sys.modules) - {"_socket", "warm_import"}), "warnings": sys.warnoptions, "x": sys._xoptions,
        "pickled": type(pickle.loads(pickle.dumps(Thing()))) is Thing,
    }
def child(pipe):
    pipe.send(pickle.dumps(Thing()).hex())
if __name__ == "__main__":
    found = facts()
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=child, args=(theirs,))
    process.start()
    found["spawned"] = ours.recv()
    process.join()
    path = f"facts.{os.environ['RANK']}.{os.environ['MUSTER_ROUND']}"
    open(path + ".new", "w").write(json.dumps(found))
    os.rename(path + ".new", path)
    print("out", os.environ["RANK"])
    while os.environ["MUSTER_ROUND"] == "0" or os.environ["WARM_END"] in ("wait", "raise" + os.environ["RANK"]):
        time.sleep(0.05)
    if os.environ["WARM_END"] == "exit":
        sys.exit(7)
    def inner():
        raise ValueError("planned")
    inner()
"""
# A module that a library in C stands behind, and what a script shows of it and of its process.
SEES = """
import ctypes, os
get = ctypes.CDLL(None).getenv
get.restype = ctypes.c_char_p
SEEN = f"{get(b'OMP_NUM_THREADS')} {get(b'MKL_NUM_THREADS')}"
"""
HAS_A_CHILD = """
import os
os.posix_spawn("/bin/sleep", ["sleep", "600"], {"ELASTIC_TAG": os.environ["ELASTIC_TAG"]})
"""
# One write, as python -u has it: print would write the line in pieces, between those of the other worker.
SHOW = """
os.write(1, f"seen {warm_import.SEEN} {'warm' if b'stand_by' in open('/proc/self/cmdline', 'rb').read() else 'normal'}\\n".encode())
"""
# Names that a round sets anew, whose values differ between two rounds as between two normal starts.
PASSING = {"MASTER_PORT", "MUSTER_AGENT_SOCKET", "MUSTER_AGENT_TOKEN", "MUSTER_ROUND", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_RESTART_COUNT"}


def start(job, *entry, end="wait", imports="json", restarts=1, warm=("--warm-workers", "auto"), **extra):
    (job.directory / "facts.py").write_text(FACTS)
    (job.directory / "sub").mkdir(exist_ok=True)
    return job.spawn("muster", "--nproc-per-node", 2, "--max-restarts", restarts, "--log-level", "info", *warm,
                     "--warm-imports", imports, *(entry or ("facts.py", "a", "b c")), WARM_END=end,
                     PYTHON_EXEC=sys.executable, PYTHONDONTWRITEBYTECODE="1", **extra)


def err(launcher):
    return launcher.err.read_text()


def facts(job, rank, number):
    path = job.directory / f"facts.{rank}.{number}"
    return json.loads(wait_for(f"{path.name}", lambda: path.exists() and path.read_text()))


def worker_pids(job, rank):
    """Those that carry RANK; a standby process does not."""
    leaders = set(guardians(job))
    return [pid for pid in job.processes() if f"RANK={rank}".encode() in environment(pid) and parent_of(job, pid) in leaders]


def parent_of(job, pid):
    try:
        return job.parent(pid)
    except OSError:  # it has gone meanwhile
        return 0


def environment(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def name_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def guardians(job):
    return [pid for pid in job.processes() if name_of(pid) == "muster-guardian"]


def control_groups(pid):
    """The directory of the group that muster made for this process; none where it may make none."""
    if not (own := re.search(r"^0::(/.*muster-.*)$", pathlib.Path(f"/proc/{pid}/cgroup").read_text(), re.M)):
        return []
    mounted = [line.split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines() if " - cgroup2 " in line]
    return [found for place in mounted if (found := pathlib.Path(place + own[1])).exists()]


def standbys(launcher):
    """Their pids; those of a lower local rank first, whichever was ready first."""
    ready = re.findall(r"local rank (\d+) \(pid (\d+)\) is ready; it has", err(launcher))
    return [int(pid) for _, pid in sorted(ready, key=lambda one: int(one[0]))]


def wait_ready(job, launcher, count):
    try:
        wait_for(f"{count} standby processes", lambda: len(standbys(launcher)) >= count)
    except AssertionError as failure:
        raise AssertionError(f"{failure}\n{job.story()}") from None
    return standbys(launcher)


def differences(before, after):
    found = {key: (before[key], after[key]) for key in before if before[key] != after[key] and key not in ("environ", "pid")}
    for name in before["environ"].keys() | after["environ"].keys():
        values = before["environ"].get(name), after["environ"].get(name)
        if values[0] != values[1] and name not in PASSING:
            found[name] = values
    return found


def was_late(launcher):
    """Whether a standby process did not take over within half a second, which a busy machine may keep it from: a normal start
    replaces it, and says nothing of warm ones."""
    return "its standby process did not take over" in err(launcher)


class WarmWorkers(unittest.TestCase):
    def restart(self, job, launcher):
        """Kills a worker when the standby processes are ready; the pids of these."""
        for rank in (0, 1):
            facts(job, rank, 0)
        ready = wait_ready(job, launcher, 2)
        os.kill(wait_for("rank 0", lambda: worker_pids(job, 0))[0], signal.SIGKILL)
        return ready

    def test_a_warm_worker_sees_what_a_normal_one_sees(self):
        for entry in (("./facts.py", "a", "b c"), ("sub/../facts.py",), ("-m", "facts", "a")):
            with self.subTest(entry=entry):
                self.assertTrue(any(self.sees_the_same(*entry) for _ in range(5)), "no standby process answered in time")

    def test_a_warm_worker_has_the_cores_and_the_memory_of_its_binding(self):
        binding = ("--numa-binding", "exclusive")
        with Job() as job:
            tried = job.spawn("muster", "--nproc-per-node", 2, *binding, "--no-python", "true")
            if job.exit_code(tried) != 0:
                self.skipTest(err(tried))
        self.assertTrue(any(self.sees_the_same(*binding, "facts.py", bound=True) for _ in range(5)), "no standby process answered in time")

    def sees_the_same(self, *entry, bound=False):
        """False: a standby process was late."""
        with Job() as job:
            launcher = start(job, *entry)
            ready = self.restart(job, launcher)
            for rank in (0, 1):
                self.assertEqual(differences(facts(job, rank, 0), facts(job, rank, 1)), {}, job.story())
            self.assertEqual(facts(job, 0, 1)["cpus"] != facts(job, 1, 1)["cpus"], bound)
            late = not set(ready) <= set(job.processes())
            if late:
                wait_for("word of a process that was late", lambda: was_late(launcher))
            else:
                self.assertNotIn("starts normally", err(launcher))
            launcher.terminate()
            job.expect_exit(launcher, 143)
            job.expect_gone()
            return not late

    def test_tracebacks_and_exit_codes_are_those_of_a_normal_worker(self):
        texts = []
        for warm in (("--warm-workers", "2"), ()):
            with Job() as job:
                launcher = start(job, "facts.py", end="raise1", warm=warm)
                if warm:
                    self.restart(job, launcher)
                else:
                    facts(job, 0, 0)
                    facts(job, 1, 0)
                    os.kill(wait_for("rank 0", lambda: worker_pids(job, 0))[0], signal.SIGKILL)
                job.expect_exit(launcher, 1)
                text = err(launcher).replace(str(job.directory), "DIR")
                texts.append(text[text.index("Traceback"):text.index("ValueError: planned")].splitlines()[:7])
                job.expect_gone()
        self.assertEqual(texts[0][:4], texts[1][:4])
        with Job() as job:
            launcher = start(job, end="exit")
            self.restart(job, launcher)
            job.expect_exit(launcher, 7)
            job.expect_gone()

    def test_what_imports_print_comes_out_of_the_worker(self):
        self.assertTrue(any(self.prints() for _ in range(5)), "no standby process answered in time")

    def prints(self):
        """False: a standby process was late."""
        with Job() as job:
            (job.directory / "warm_import.py").write_text("import sys\nprint('imported')\nprint('noisy', file=sys.stderr)\n")
            launcher = start(job, "--log-dir", "logs", "-r", "3", "facts.py", imports="warm_import", end="exit")
            self.restart(job, launcher)
            job.expect_exit(launcher, 7)
            if was_late(launcher):
                return False
            for rank in (0, 1):
                for name, first in (("stdout.log", "imported"), ("stderr.log", "noisy")):
                    text = next((job.directory / "logs").rglob(f"attempt_1/{rank}/{name}")).read_text()
                    self.assertIn(first, text.splitlines())
            return True

    def test_a_standby_process_that_fails_delays_nothing_and_is_reported(self):
        with self.subTest("stopped"), Job() as job:
            (job.directory / "warm_import.py").write_text(HAS_A_CHILD)
            launcher = start(job, imports="warm_import")
            for rank in (0, 1):
                facts(job, rank, 0)
            ready = wait_ready(job, launcher, 2)
            children = [pid for pid in job.processes() if name_of(pid) == "sleep"] if control_groups(ready[0]) else []
            os.kill(ready[0], signal.SIGSTOP)
            os.kill(ready[1], signal.SIGKILL)
            wait_for("report of the end", lambda: "its standby process ended: signal 9" in err(launcher))
            os.kill(worker_pids(job, 0)[0], signal.SIGKILL)
            for rank in (0, 1):
                self.assertEqual(differences(facts(job, rank, 0), facts(job, rank, 1)), {})
            wait_for("word of the normal start", lambda: "local rank 1 starts normally: its standby process ended: signal 9" in err(launcher))
            wait_for("line", lambda: "local rank 0 was started normally: its standby process did not take over" in err(launcher))
            wait_for("end of what it had started", lambda: not set(children) & set(job.processes()))
            launcher.terminate()
            job.expect_exit(launcher, 143)
            job.expect_gone()
        with self.subTest("no such module"), Job() as job:
            launcher = start(job, imports="no_such_module")
            for rank in (0, 1):
                facts(job, rank, 0)
            wait_for("two ends", lambda: err(launcher).count("its standby process ended: exit code 1") >= 2)
            os.kill(worker_pids(job, 0)[0], signal.SIGKILL)
            facts(job, 0, 1)
            line = "local rank 0, 1 starts normally: its standby process ended: exit code 1 (ModuleNotFoundError"
            wait_for("word of the normal start", lambda: line in err(launcher))
            self.assertEqual(err(launcher).count(line), 1, err(launcher))
            launcher.terminate()
            job.expect_exit(launcher, 143)

    def test_nothing_is_left_when_the_launcher_or_the_guardian_dies(self):
        for victim in ("launcher", "guardian"):
            with self.subTest(victim=victim), Job() as job:
                launcher = start(job)
                guardian = facts(job, 0, 0)["ppid"]
                ready = wait_ready(job, launcher, 2)
                groups = [group for pid in ready for group in control_groups(pid)]
                pid = launcher.pid if victim == "launcher" else guardian
                os.kill(pid, signal.SIGKILL)
                wait_for("end of the standby processes", lambda: not set(ready) & set(job.processes()))
                if victim == "guardian":
                    facts(job, 0, 1)
                    launcher.terminate()
                    job.expect_exit(launcher, 143)
                job.expect_gone()
                self.assertEqual([group for group in groups if group.exists()], [])

    def test_their_memory_is_in_status_and_report(self):
        with Job() as job:
            launcher = start(job, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{job.port}", "--rdzv-id", job.id,
                             "--report", "report.json", "facts.py")
            facts(job, 0, 0)
            wait_ready(job, launcher, 2)

            def shown():
                page = subprocess.run([BIN / "muster", "status", "--rdzv-endpoint", f"127.0.0.1:{job.port}"], capture_output=True,
                                      text=True, timeout=60, env=job.environment())
                return re.search(r"standby processes: 2 on 1 node, (\d+) MiB of memory", page.stdout)
            mib = int(wait_for("the line of muster status", shown)[1])
            memory = [int(re.search(r"\nPss: +(\d+)", pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text())[1]) >> 10
                      for pid in standbys(launcher)]
            # Others may share less or more of it by now.
            self.assertTrue(sum(memory) // 4 <= mib <= sum(memory) * 4, (mib, memory))
            launcher.terminate()
            job.expect_exit(launcher, 143)
            report = json.loads((job.directory / "report.json").read_text())
            self.assertEqual(report["standbys"]["count"], 2)
            self.assertGreaterEqual(report["standbys"]["memory_bytes"] >> 20, mib)

    def first_are_warm(self):
        """False: a standby process was late."""
        with Job() as job:
            launcher = start(job, warm=("--warm-workers", "auto", "--warm-join"))
            late = not {facts(job, rank, 0)["pid"] for rank in (0, 1)} <= set(standbys(launcher))
            if late:
                wait_for("word of a process that was late", lambda: was_late(launcher))
            launcher.terminate()
            job.expect_exit(launcher, 143)
            job.expect_gone()
            return not late

    def test_with_warm_join_the_first_workers_are_warm(self):
        self.assertTrue(any(self.first_are_warm() for _ in range(5)), "no standby process answered in time")
        with self.subTest("no such module"), Job() as job:
            launcher = start(job, imports="no_such_module", warm=("--warm-workers", "auto", "--warm-join"))
            for rank in (0, 1):
                facts(job, rank, 0)
            wait_for("word of the normal start",
                     lambda: "local rank 0, 1 starts normally: its standby process ended: exit code 1" in err(launcher))
            launcher.terminate()
            job.expect_exit(launcher, 143)
        with self.subTest("stopped meanwhile"), Job() as job:
            (job.directory / "warm_import.py").write_text(
                "import os, time\nwith open('importing', 'w') as file:\n    print(os.sched_getscheduler(0), file=file)\ntime.sleep(1000)\n")
            launcher = start(job, imports="warm_import", warm=("--warm-workers", "auto", "--warm-join"))
            importing = job.directory / "importing"
            wait_for("import", lambda: importing.exists() and importing.read_text())
            self.assertEqual(int(importing.read_text()), os.SCHED_OTHER)  # the node waits for it
            launcher.terminate()
            job.expect_exit(launcher, 143)
            job.expect_gone()
            self.assertEqual(list(job.directory.glob("facts.*.*")), [])

    def start_again_alone(self, job, launcher, rank):
        """Kills this rank when the one standby process is ready. Its facts before and after, and that process's pid."""
        before = [facts(job, one, 0) for one in (0, 1)][rank]
        ready = wait_ready(job, launcher, 1)
        (job.directory / f"facts.{rank}.0").unlink()
        os.kill(worker_pids(job, rank)[0], signal.SIGKILL)
        after = facts(job, rank, 0)
        self.assertEqual(after["environ"].pop("MUSTER_STARTED_AGAIN"), "1")
        before["environ"].pop("MUSTER_STARTED_AGAIN", None)
        return before, after, ready[0]

    def test_one_standby_process_serves_whichever_worker_has_died(self):
        self.assertTrue(any(self.serves_another_local_rank() for _ in range(5)), "no standby process answered in time")

    def serves_another_local_rank(self):
        """False: the standby process was late."""
        with Job() as job:
            # As tqdm does, which torch may import: it looks for names of its own.
            (job.directory / "warm_import.py").write_text("import os\nfound = [name for name, value in os.environ.items()]\n")
            launcher = start(job, imports="warm_import", warm=("--warm-workers", "1", "--on-worker-failure", "keep"))
            before, after, ready = self.start_again_alone(job, launcher, 1)
            self.assertEqual(differences(before, after), {}, job.story())
            late = after["pid"] != ready
            if late:
                wait_for("word of a process that was late", lambda: was_late(launcher))
            launcher.terminate()
            job.expect_exit(launcher, 143)
            job.expect_gone()
            return not late

    def test_a_standby_process_whose_imports_have_read_its_local_rank_serves_no_other(self):
        with Job() as job:
            (job.directory / "warm_import.py").write_text("import os\nknown = os.environ['LOCAL_RANK']\n")
            launcher = start(job, imports="warm_import", warm=("--warm-workers", "1", "--on-worker-failure", "keep"))
            before, after, ready = self.start_again_alone(job, launcher, 1)
            self.assertEqual(differences(before, after), {}, job.story())
            self.assertNotEqual(after["pid"], ready, job.story())
            wait_for("line", lambda: "of local rank 0 serves no other one: its imports have read LOCAL_RANK" in err(launcher))
            os.kill(ready, 0)  # it still waits for its own local rank
            launcher.terminate()
            job.expect_exit(launcher, 143)
            job.expect_gone()

    def sees(self, body, warm_import=SEES, imports="warm_import"):
        """What a script sees that does this and then imports `warm_import`, and what the launcher prints; of one local rank of two."""
        with Job() as job:
            (job.directory / "warm_import.py").write_text(warm_import)
            (job.directory / "torch.py").write_text("")
            (job.directory / "inner.py").write_text("import torch, warm_import\n")
            (job.directory / "old.py").write_text("import warnings\nwarnings.warn('planned', DeprecationWarning, stacklevel=2)\n")
            (job.directory / "head.py").write_text(f"import os\n{body}\nimport warm_import\n{SHOW}")
            launcher = start(job, "head.py", imports=imports, warm=("--warm-workers", "2", "--warm-join"), OMP_NUM_THREADS="3")
            job.expect_exit(launcher, 0)
            shown = [line for line in launcher.out.read_text().splitlines() if "seen" in line]
            self.assertEqual(len(shown), 2, job.story())
            return re.sub(".*seen", "seen", min(shown)), err(launcher)

    def on_time(self, *arguments):
        """The same of standby processes that were not late."""
        for _ in range(5):
            shown, text = self.sees(*arguments)
            if "did not take over" not in text:
                return shown, text
        self.fail("no standby process answered in time")

    def test_a_variable_that_the_script_changes_before_the_import_is_seen_by_it(self):
        for body, name, seen in (
                ("os.environ['OMP_NUM_THREADS'] = '4'", "OMP_NUM_THREADS", "b'4' None"),
                ("for name in ['OMP_NUM_THREADS']: os.environ[name] = '4'", "OMP_NUM_THREADS", "b'4' None"),
                ("os.chdir('/')\nos.environ.setdefault('MKL_NUM_THREADS', '4')", "MKL_NUM_THREADS", "b'3' b'4'"),
                ("os.environ.update(MKL_NUM_THREADS='4')", "MKL_NUM_THREADS", "b'3' b'4'"),
                ("new = os.environ\nnew |= {'MKL_NUM_THREADS': '4'}", "MKL_NUM_THREADS", "b'3' b'4'"),
                ("os.putenv('OMP_NUM_THREADS', '4')", "OMP_NUM_THREADS", "b'4' None"),
                ("del os.environ['OMP_NUM_THREADS']", "OMP_NUM_THREADS", "None None"),
                ("os.environ['CUDA_VISIBLE_DEVICES'] = '7'", "CUDA_VISIBLE_DEVICES", "b'3' None"),
                ("def later():\n    import warm_import\nos.environ['OMP_NUM_THREADS'] = '4'", "OMP_NUM_THREADS", "b'4' None")):
            with self.subTest(body):
                shown, text = self.on_time(body)
                self.assertEqual(shown, f"seen {seen} normal")
                self.assertEqual(text.count(f"muster: {name} is changed before warm_import is imported"), 2, text)
                self.assertEqual(text.count("this worker starts anew"), 2, text)

    def test_equal_values_other_variables_and_what_is_set_after_the_import_keep_a_worker_warm(self):
        for body in ("os.environ['OMP_NUM_THREADS'] = '3'\nos.environ.setdefault('OMP_NUM_THREADS', '4')",
                     "os.environ.update(TOKENIZERS_PARALLELISM='0', TORCH_NCCL_BLOCKING_WAIT='1', PATH='/bin')",
                     "import warm_import\nos.environ['OMP_NUM_THREADS'] = '4'",
                     "import importlib\nimportlib.import_module('warm_import')\nos.environ['OMP_NUM_THREADS'] = '4'",
                     "import inner\nos.environ['OMP_NUM_THREADS'] = '4'",
                     "if os.fork() == 0:\n    os.environ['OMP_NUM_THREADS'] = '4'\n    os._exit(0)\nos.wait()"):
            with self.subTest(body):
                shown, text = self.on_time(body)
                self.assertEqual(shown, "seen b'3' None warm", text)
                self.assertNotIn("starts anew", text)

    def test_the_import_of_a_package_that_imports_torch_counts_as_that_of_torch(self):
        for package, ends in (("inner", "warm"), ("warm_import", "normal")):
            with self.subTest(package):
                shown, text = self.on_time(f"import {package}\nos.environ['OMP_NUM_THREADS'] = '4'", SEES, f"torch,{package}")
                self.assertEqual(shown, f"seen b'3' None {ends}", text)
                self.assertEqual(text.count("OMP_NUM_THREADS is changed before torch is imported"), 2 if ends == "normal" else 0, text)

    def test_the_warning_of_a_module_names_the_line_that_imports_it(self):
        _, text = self.on_time("import old", SEES)
        self.assertEqual(text.count("head.py:2: DeprecationWarning: planned"), 2, text)

    def test_a_worker_that_starts_anew_sees_what_a_normal_one_sees(self):
        with Job() as job:
            (job.directory / "changed.py").write_text("import os\nos.environ['OMP_NUM_THREADS'] = '4'\n" + FACTS)
            launcher = start(job, "changed.py", "a")
            self.restart(job, launcher)
            for rank in (0, 1):
                self.assertEqual(differences(facts(job, rank, 0), facts(job, rank, 1)), {}, job.story())
            wait_for("word of the change", lambda: "OMP_NUM_THREADS is changed before json is imported" in err(launcher) or was_late(launcher))
            launcher.terminate()
            job.expect_exit(launcher, 143)
            job.expect_gone()

    def test_an_import_that_reads_what_a_round_sets_is_refused(self):
        shown, text = self.sees("", SEES + "os.getenv('RANK')\n")
        self.assertEqual(shown, "seen b'3' None normal")
        self.assertIn("its imports have read RANK, which each round sets anew", text)

    def test_one_that_failed_is_followed_by_another_when_any_worker_starts_again(self):
        with Job() as job:
            (job.directory / "warm_import.py").write_text("import pathlib\npathlib.Path(__file__).with_name('mended').read_text()\n")
            launcher = start(job, imports="warm_import", warm=("--warm-workers", "1", "--on-worker-failure", "keep"))
            for rank in (0, 1):
                facts(job, rank, 0)
            wait_for("failure", lambda: "local rank 0: its standby process ended: exit code 1" in err(launcher))
            (job.directory / "mended").touch()
            os.kill(worker_pids(job, 1)[0], signal.SIGKILL)
            wait_ready(job, launcher, 1)
            launcher.terminate()
            job.expect_exit(launcher, 143)
            job.expect_gone()

    def test_a_program_that_is_not_python_has_none(self):
        with Job() as job:
            launcher = job.spawn("muster", "--warm-workers", "auto", "--no-python", "true")
            job.expect_exit(launcher, 0)
            self.assertIn("--warm-workers has no effect", err(launcher))


if __name__ == "__main__":
    unittest.main(verbosity=2)
