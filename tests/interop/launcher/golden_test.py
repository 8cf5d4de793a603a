"""Runs each command line of golden_cases.py under the real torchrun and under muster, and compares what the workers see.

torch.distributed.run is imported once; every run of it is a fork, so that a case costs a second and not three.
usage: golden_test.py [--warm] MUSTER [NAME...]
--warm: muster's first workers are standby processes (--warm-workers), and must not differ either. CTest runs the lines
that differ most; all of them: golden_test.py --warm build/release/bin/muster (2026-11-28, torch 2.13.0: none of the 59 differs)
MUSTER_TEST_PYTHON names the Python that has PyTorch, else this one. Without PyTorch: exit 77, in CI 1.
"""
import concurrent.futures
import ipaddress
import json
import multiprocessing
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from golden_cases import CASES, DIFFERENCES, NEVER_WARM, REFUSED, REFUSED_ENVIRONMENT

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "support"))
import own_processes  # noqa: E402, F401
from line_times import without_times  # noqa: E402
from ports import free_port  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
RUN_SECONDS_MAX = 300
kept = []
# A number, and not `auto`: that starts none where memory is short.
WARM = {"MUSTER_WARM_WORKERS": "8", "MUSTER_WARM_JOIN": "1", "MUSTER_WARM_IMPORTS": "json"}
warm = {}
UUID = re.compile(r"^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")


def base_environment(folder):
    keep = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH") if name in os.environ}
    return {**keep, "PYTHON_EXEC": sys.executable, "TMPDIR": os.path.join(folder, "tmp"),
            "GOLDEN_OUT": os.path.join(folder, "out"), "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C.UTF-8"}


def fork_torchrun(words, environment, folder, index):
    """torchrun's main in a child of this process; its streams go to files."""
    import torch.distributed.run as torchrun

    child = os.fork()
    if child:
        return child
    code = 1
    try:
        for number, name in ((1, "stdout"), (2, "stderr")):
            file = os.open(f"{folder}/{name}.{index}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(file, number)
        os.setsid()
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        tempfile.tempdir = None
        torchrun.main(words)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else (0 if end.code is None else 1)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def start_muster(muster, words, environment, folder, index):
    environment = {**environment, **warm}
    with open(f"{folder}/stdout.{index}", "w") as out, open(f"{folder}/stderr.{index}", "w") as err:
        process = subprocess.Popen([muster, *words], env=environment, cwd=folder, stdout=out, stderr=err,
                                   stdin=subprocess.DEVNULL, start_new_session=True)
    kept.append(process)  # else its destructor would wait for it
    return process.pid


def wait_for(pids):
    """Exit codes, or 'too slow' for what had to be killed."""
    codes = {}
    until = time.monotonic() + RUN_SECONDS_MAX
    while len(codes) < len(pids):
        for pid in pids:
            if pid in codes:
                continue
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                codes[pid] = os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            for pid in pids:
                if pid not in codes:
                    os.killpg(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                    codes[pid] = "too slow"
        time.sleep(0.005)
    return [codes[pid] for pid in pids]


def prepare(root, launcher, one):
    """A folder with the case's files; everything in it has the same path length under both launchers."""
    folder = os.path.join(root, launcher)
    port = str(free_port())
    os.makedirs(os.path.join(folder, "out"))
    os.makedirs(os.path.join(folder, "tmp"))
    shutil.copy(os.path.join(HERE, "record.py"), folder)
    for name, content in one["files"].items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(content)
        os.chmod(path, 0o755)
    fill = lambda text: text.format(dir=folder, port=port)
    environment = {**base_environment(folder), **{key: fill(value) for key, value in one["env"].items()}}
    return folder, environment, [[fill(word) for word in words] for words in one["nodes"]], port


def run_case(launcher, start, root, one):
    folder, environment, nodes, port = prepare(root, launcher, one)
    codes = wait_for([start(words, environment, folder, index) for index, words in enumerate(nodes)])
    seen = {}
    for name in sorted(os.listdir(os.path.join(folder, "out"))):
        with open(os.path.join(folder, "out", name)) as file:
            seen[name] = json.load(file)
    return {"folder": folder, "port": port, "codes": codes, "seen": seen,
            "text": [open(f"{folder}/{stream}.{index}").read() for index in range(len(nodes))
                     for stream in ("stdout", "stderr")]}


# ---- the rules of DIFFERENCES: (torchrun's value, muster's value, the case) -> equal enough ----

def addresses_of_this_host():
    names = {socket.gethostname(), socket.getfqdn(), "localhost"}
    found = {"127.0.0.1", "::1"}
    for name in list(names):
        try:
            found |= {entry[4][0] for entry in socket.getaddrinfo(name, None)}
        except OSError:
            pass
    return names, found


def same_host(theirs, ours):
    if theirs == ours:
        return True
    names, addresses = addresses_of_this_host()
    return theirs in names | addresses and ours is not None and str(ipaddress.ip_address(ours)) in addresses


def both_ports(theirs, ours):
    return theirs is not None and ours is not None and 0 < int(theirs) < 65536 and 0 < int(ours) < 65536


def equal_or_both_random(theirs, ours):
    return theirs == ours or (bool(UUID.match(theirs)) and bool(UUID.match(ours or "")))


def without_random(path):
    path = re.sub(r"/torchelastic_[^/]*", "/torchelastic_*", path)
    path = re.sub(r"/[0-9a-f]{8}-[0-9a-f-]{27}_[^/]*/attempt_", "/UUID_*/attempt_", path)
    return re.sub(r"_[a-z0-9_]{8}/attempt_", "_*/attempt_", path)


def same_layout(theirs, ours):
    return theirs is not None and ours is not None and without_random(theirs) == without_random(ours)


def only_ours(theirs, ours):
    return theirs is None


RULES = {rule.__name__: rule for rule in (same_host, both_ports, equal_or_both_random, same_layout, only_ours)}


def neutral(value, run):
    """Without what the two runs must not share: their folders and ports."""
    if isinstance(value, str):
        return value.replace(run["folder"], "DIR").replace(run["port"], "PORT")
    if isinstance(value, list):
        return [neutral(item, run) for item in value]
    return {key: neutral(item, run) for key, item in value.items()} if isinstance(value, dict) else value


def compare_environments(name, theirs, ours):
    for variable in sorted(set(theirs) | set(ours)):
        a, b = theirs.get(variable), ours.get(variable)
        if a == b:
            continue
        rule = DIFFERENCES.get(variable)
        if rule is None or not RULES[rule[0]](a, b):
            yield f"{name}: {variable}: torchrun {a!r}, muster {b!r}"


def layout_of(run):
    found = {}
    logs = os.path.join(run["folder"], "logs")
    for directory, _, names in os.walk(logs):
        for name in names:
            path = os.path.join(directory, name)
            if name in (".stdout.times", ".stderr.times"):
                continue  # muster's index of a file's times
            with open(path) as file:
                # muster's only addition to a file: it says which round the lines are of.
                lines = [line for line in without_times(file.read()).splitlines() if not line.startswith("--- round ")]
            found[without_random(neutral(path, run))] = sorted(neutral(lines, run))
    return found


def console_of(run):
    wanted = re.compile(r"(out|err) of rank")
    return sorted(line for text in run["text"] for line in text.splitlines() if wanted.search(line))


def spawned_by_torch(facts):
    """--run-path: torchrun's worker is a process of multiprocessing, so its own command line says nothing."""
    return "--multiprocessing-fork" in facts["argv"]


def was_late(ours):
    """Whether a busy machine kept a standby process from taking over within half a second: a normal start replaces it."""
    return any("its standby process did not take over" in text for text in ours["text"])


def differences(one, theirs, ours):
    expected = [0] * len(one["nodes"])
    if one["fails"]:
        expected = [7] * len(one["nodes"])
        if theirs["codes"] != [1] * len(one["nodes"]):
            yield f"torchrun ended with {theirs['codes']}, which a failure does not explain"
    elif theirs["codes"] != expected:
        yield f"torchrun ended with {theirs['codes']}: {theirs['text'][-1][-1500:]}"
    if ours["codes"] != expected:
        yield f"muster ended with {ours['codes']}, expected {expected}: {ours['text'][-1][-1500:]}"
    if sorted(theirs["seen"]) != sorted(ours["seen"]):
        yield f"workers of torchrun {sorted(theirs['seen'])}, of muster {sorted(ours['seen'])}"
    for name in sorted(set(theirs["seen"]) & set(ours["seen"])):
        a, b = neutral(theirs["seen"][name], theirs), neutral(ours["seen"][name], ours)
        yield from compare_environments(name, a["environment"], b["environment"])
        keys = ["seen_argv", "directory"] if spawned_by_torch(a) else ["argv", "seen_argv", "directory", "unbuffered", "module"]
        yield from (f"{name}: {key}: torchrun {a[key]!r}, muster {b[key]!r}" for key in keys if a[key] != b[key])
    # A restart follows too soon for the next standby process.
    expects_warm = bool(warm) and one["name"] not in NEVER_WARM
    others = [name for name, facts in ours["seen"].items() if facts["is_warm"] != expects_warm and name.endswith(".0.json")]
    if others and not (expects_warm and was_late(ours)):
        yield f"{'started normally' if expects_warm else 'warm'}: {others}: {ours['text'][-1][-1500:]}"
    if one["layout"] and layout_of(theirs) != layout_of(ours):
        yield f"log files: torchrun {layout_of(theirs)}\n      muster {layout_of(ours)}"
    if one["console"] and console_of(theirs) != console_of(ours):
        yield f"console: torchrun {console_of(theirs)}\n      muster {console_of(ours)}"


def refusals(root, muster):
    lines = [(words, {}, part) for words, part in REFUSED]
    lines += [(["{dir}/record.py"], environment, part) for environment, part in REFUSED_ENVIRONMENT]
    for number, (words, environment, part) in enumerate(lines):
        one = {"name": str(words), "nodes": [words], "env": environment, "files": {}}
        home = os.path.join(root, f"refused{number}")
        theirs = run_case("torchr", fork_torchrun, home, one)
        ours = run_case("muster", lambda *rest: start_muster(muster, *rest), home, one)
        label = f"{words} {environment}"
        if theirs["codes"][0] not in (1, 2):
            yield f"{label}: torchrun accepts it ({theirs['codes']})"
        said = ours["text"][1]
        if ours["codes"] != [2] or said.count("\n") != 1 or part not in said:
            yield f"{label}: muster ended with {ours['codes']} and said {said!r}"


def run_both(root, muster, one):
    home = os.path.join(root, re.sub(r"\W", "_", one["name"]))
    theirs = run_case("torchr", fork_torchrun, home, one)
    ours = run_case("muster", lambda *rest: start_muster(muster, *rest), home, one)
    if was_late(ours):
        shutil.rmtree(ours["folder"])
        ours = run_case("muster", lambda *rest: start_muster(muster, *rest), home, one)
    return list(differences(one, theirs, ours))


def skip(why):
    print(f"skipped: {why} (scripts/setup --tests installs it)")
    sys.exit(1 if os.environ.get("CI") == "true" else 77)


def main():
    chosen_python = os.environ.pop("MUSTER_TEST_PYTHON", "")
    if chosen_python and not os.access(chosen_python, os.X_OK):
        skip(f"there is no Python with PyTorch at {chosen_python}")
    if chosen_python and os.path.abspath(chosen_python) != sys.executable:
        os.execv(chosen_python, [chosen_python, *sys.argv])
    words = sys.argv[1:]
    if words[0] == "--warm":
        warm.update(WARM)
        words.pop(0)
    muster, names = os.path.abspath(words[0]), words[1:]
    try:
        import torch
        import torch.distributed.run  # noqa: F401
    except ImportError as error:
        skip(f"{sys.executable} has no PyTorch: {error}")
    failed = 0
    chosen = [one for one in CASES if not names or one["name"] in names]
    with tempfile.TemporaryDirectory(prefix="golden-") as root:
        # The launchers mostly wait, so several cases run at once; in processes, because a fork must have one thread.
        context = multiprocessing.get_context("fork")
        with concurrent.futures.ProcessPoolExecutor(4, mp_context=context) as pool:
            results = [pool.submit(run_both, root, muster, one) for one in chosen]
            for one, result in zip(chosen, results):
                found = result.result()
                print(f"{'FAILED' if found else 'ok'}: {one['name']}", *(f"\n    {line}" for line in found), flush=True)
                failed += bool(found)
        if not names:
            found = list(refusals(root, muster))
            print(f"{'FAILED' if found else 'ok'}: refused command lines", *(f"\n    {line}" for line in found))
            failed += bool(found)
    print(f"{len(chosen)} command lines compared with torch {torch.__version__}, {failed} differ")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
