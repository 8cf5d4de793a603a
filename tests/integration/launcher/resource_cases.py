"""The cases of resources_test.py: one bad file, directory or limit each, and what muster or musterd does about it.

A case is a cell of the table in agent/RESOURCES.md: `config.slow` is the row `config` and its column `slow`.
"""
import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import typing

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from own_processes import as_user  # noqa: E402

ROOT = os.geteuid() == 0
NOBODY = 65534
UNSHARE = ["unshare", "--mount", "--propagation", "private", *([] if ROOT else ["--user", "--map-root-user"])]
AS_NOBODY = as_user(NOBODY) if ROOT else []
# A network in which low ports need the right, which this user has not.
LOW_PORTS = [*UNSHARE, "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *AS_NOBODY] if ROOT else []
ONE = ["--standalone", "--nproc-per-node", "1"]
RUN = [*ONE, "--no-python"]
PLACE = "/mnt"  # covered in a mount namespace of the case's own


def in_namespace(script):
    """The words before a command that runs it after the shell script, in a mount namespace of its own."""
    return [*UNSHARE, "sh", "-c", f'{script} && exec "$@"', "sh"]


def small_disk(options):
    return in_namespace(f"mount -t tmpfs -o {options} none {PLACE}")


def can_mount():
    return subprocess.run([*in_namespace(f"mount -t tmpfs none {PLACE}"), "true"], capture_output=True).returncode == 0


@dataclasses.dataclass
class Case:
    name: str  # "<row>.<column>"
    words: typing.Sequence  # of the command line; "{place}" is the case's own directory, also in `before`
    code: int
    says: typing.Sequence = ()  # each of them is in stdout or stderr
    plant: typing.Callable = lambda place: None
    before: typing.Sequence = ()
    program: str = "muster"  # or a path with "{place}"
    environment: typing.Mapping = dataclasses.field(default_factory=dict)
    at_least: float = 0.0  # seconds: a deadline that is kept, and no sooner end
    within: float = 5.0  # seconds on an idle machine


def write(name, text="", mode=0o644):
    def plant(place):
        path = pathlib.Path(place, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
    return plant


def fifo(name):
    def plant(place):
        pathlib.Path(place, name).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(pathlib.Path(place, name), 0o600)
    return plant


def folder(name, mode):
    def plant(place):
        pathlib.Path(place, name).mkdir()
        pathlib.Path(place, name).chmod(mode)
    return plant


def both(*plants):
    def plant(place):
        for one in plants:
            one(place)
    return plant


def programs(folder, **files):
    """Programs in this folder, by their text; "_" in a name stands for "-"."""
    return both(*(write(f"{folder}/{name.replace('_', '-')}", text, 0o755) for name, text in files.items()))


def links(folder, *names):
    """To these programs of the host, so that a PATH has no others."""
    def plant(place):
        pathlib.Path(place, folder).mkdir()
        for name in names:
            pathlib.Path(place, folder, name).symlink_to(shutil.which(name))
    return plant


def muster_among(**files):
    """A copy of muster beside these programs, which it runs in place of its own."""
    def plant(place):
        pathlib.Path(place, "bin").mkdir()
        programs("bin", **files)(place)
        shutil.copy(pathlib.Path(os.environ["MUSTER_BIN"], "muster"), pathlib.Path(place, "bin"))
    return plant


def config_file():
    for program, words in (("muster", ["--config", "{place}/f"]), ("musterd", ["--port", "0", "--config", "{place}/f"])):
        row = "config" if program == "muster" else "daemon_config"
        yield Case(f"{row}.full", [*words[:-1], "/dev/zero"], 2, ["has more than 1048576 bytes"], program=program)
        yield Case(f"{row}.missing", words, 2, ["f: No such file or directory", "write it absolute"], program=program)
        yield Case(f"{row}.forbidden", words, 2, ["f: Permission denied", "give it the right to read it (chmod)"],
                   write("f", mode=0), AS_NOBODY, program)
        yield Case(f"{row}.slow", words, 2, ["no end within 10 s", "write the file first"], fifo("f"), program=program,
                   at_least=9.5, within=15)


def program_file():
    yield Case("program.missing", [*RUN, "{place}/none"], 127, ["No such file"])
    yield Case("program.forbidden", [*RUN, "{place}/f"], 126, ["not executable (chmod +x makes it so)"], write("f", "#!/bin/sh\n"))
    yield Case("interpreter.missing", [*ONE, "{place}/f.py"], 127, ["PYTHON_EXEC"], write("f.py"), environment={"PYTHON_EXEC": "/no/python"})
    yield Case("interpreter.forbidden", [*ONE, "{place}/f.py"], 126, ["not executable"], both(write("f.py"), write("python")),
               environment={"PYTHON_EXEC": "{place}/python"})


def log_directory():
    advice = "choose a place with room where this user may write"
    logs = ["--log-dir", f"{PLACE}/logs", "-r", "3"]
    # Inodes: the root, then one more with each step.
    yield Case("log_dir.full", [*RUN, *logs, "true"], 78, [f"make the log directory {PLACE}/logs/", "No space left on device", advice],
               before=small_disk("nr_inodes=2"))
    yield Case("log_dir.missing", [*RUN, "--log-dir", "/proc/none/logs", "true"], 78, ["make the log directory /proc/none/logs: No such file", advice])
    yield Case("log_dir.forbidden", [*RUN, "--log-dir", "{place}/d/logs", "true"], 78, ["d/logs: Permission denied", advice],
               folder("d", 0o555), AS_NOBODY)
    yield Case("attempt_dir.full", [*RUN, *logs, "--max-restarts", "3", "true"], 70,
               ["this node cannot start its workers: make the log directory", "No space left on device", advice], before=small_disk("nr_inodes=3"))
    yield Case("tmpdir.full", [*RUN, "true"], 78, ["torchelastic_", "No space left on device", advice],
               before=small_disk("nr_inodes=1"), environment={"TMPDIR": PLACE})
    yield Case("tmpdir.missing", [*RUN, "true"], 0, environment={"TMPDIR": "{place}/none"})
    yield Case("tmpdir.forbidden", [*RUN, "true"], 0, (), folder("d", 0), AS_NOBODY, environment={"TMPDIR": "{place}/d"})
    yield Case("log_file.full", [*RUN, *logs, "sh", "-c", "seq 100000"], 0,
               ["cannot write the log file", "stdout.log: No space left on device; the worker continues"], before=small_disk("size=64k"))
    yield Case("log_inode.full", [*RUN, *logs, "--max-restarts", "3", "true"], 70,
               ["this node cannot start its workers: local rank 0 not started: open ", "stdout.log: No space left on device; free space or inodes"],
               before=small_disk("nr_inodes=5"))
    # The first attempt plants the second one's file: its name begins with random letters.
    plants = ('d=$(dirname "$TORCHELASTIC_ERROR_FILE")/../../attempt_1/0; '
              'if [ "$TORCHELASTIC_RESTART_COUNT" = 0 ]; then mkdir -p "$d"; %s "$d/stdout.log"; exit 1; fi; ')
    again = ["--max-restarts", "1", "--log-dir", "{place}", "-r", "3", "sh", "-c"]
    yield Case("log_file.missing", [*RUN, *again, plants % "ln -s /none/stdout.log" + "true"], 126, ["stdout.log (a link,", "remove it"])
    yield Case("log_file.forbidden", [*RUN, *again, plants % "mkdir" + "true"], 126, ["open", "stdout.log: Is a directory"])
    # A pipe holds 64 KiB, and what nobody reads keeps the writing thread for ever, as a dead disk does.
    yield Case("log_file.slow", [*RUN, *again, plants % "mkfifo" + "timeout 2 seq 1000000; exit 3"], 3,
               ["stdout.log has not taken the last of the workers' output within 5 s"], at_least=4.5, within=15)
    without_index = plants.replace("stdout.log", ".stdout.times")
    yield Case("log_index.forbidden", [*RUN, *again, without_index % "mkdir" + "echo here"], 0)
    yield Case("log_index.slow", [*RUN, *again, without_index % "mkfifo" + "echo here"], 0)
    folder_of_logs = ["logs", "{place}/d"]
    yield Case("logs_folder.missing", ["logs", "{place}/none"], 2, ["/none' is no folder"])
    yield Case("logs_folder.forbidden", folder_of_logs, 2, ["/d: Permission denied"], folder("d", 0), AS_NOBODY)
    yield Case("logs_folder.slow", folder_of_logs, 2, ["0/stdout.log: Invalid argument"], fifo("d/0/stdout.log"))


def error_files():
    """Of a worker, and of the program that has started the launcher."""
    fails = '"$TORCHELASTIC_ERROR_FILE"; exit 3'
    yield Case("error_file.full", [*RUN, "sh", "-c", f"head -c 1100000 /dev/zero | tr '\\0' x > {fails}"], 3, ["unreadable error file: xxx"])
    yield Case("error_file.missing", [*RUN, "sh", "-c", "exit 3"], 3)
    yield Case("error_file.forbidden", [*RUN, "sh", "-c", f": > \"$TORCHELASTIC_ERROR_FILE\"; chmod 0 {fails}"], 3, ["error file"], before=AS_NOBODY)
    yield Case("error_file.slow", [*RUN, "sh", "-c", f"mkfifo {fails}"], 3, ["error file"])
    failing = [*RUN, "sh", "-c", "exit 3"]
    called = {"environment": {"TORCHELASTIC_ERROR_FILE": "{place}/e"}}
    full = [*RUN, "sh", "-c", f"head -c 70000 /dev/zero > {PLACE}/ballast; exit 3"]
    yield Case("caller_error_file.full", full, 3, [f"write the report {PLACE}/e: No space left on device"],
               before=small_disk("size=64k"), environment={"TORCHELASTIC_ERROR_FILE": f"{PLACE}/e"})
    yield Case("caller_error_file.missing", failing, 3, ["none/e: No such file"], environment={"TORCHELASTIC_ERROR_FILE": "{place}/none/e"})
    yield Case("caller_error_file.forbidden", failing, 3, ["d/e: Permission denied"], folder("d", 0o555), AS_NOBODY,
               environment={"TORCHELASTIC_ERROR_FILE": "{place}/d/e"})
    yield Case("caller_error_file.slow", failing, 3, ["e: No such device or address"], fifo("e"), **called)


def report_file():
    report = [*RUN, "--report", "{place}/r", "sh", "-c", "exit 3"]
    on_disk = [*RUN, "--report", f"{PLACE}/r", "sh", "-c", f"head -c 70000 /dev/zero > {PLACE}/ballast; exit 3"]
    yield Case("report.full", on_disk, 3, [f"write the report {PLACE}/r: No space left on device"], before=small_disk("size=64k"))
    yield Case("report.missing", [*RUN, "--report", "{place}/none/r", "true"], 2, ["--report: write the report", "No such file"])
    yield Case("report.forbidden", [*RUN, "--report", "{place}/d/r", "true"], 2, ["--report: write the report", "Permission denied"],
               folder("d", 0o555), AS_NOBODY)
    yield Case("report.slow", report, 3, ["write the report", "No such device or address"], fifo("r"))
    # The launcher itself keeps the pipe open for reading, and nobody reads.
    yield Case("report_reader.slow", report, 3, ["write the report", "timed out"], fifo("r"), at_least=4.5, within=10,
               before=["sh", "-c", 'exec 9<>"$0/r"; head -c 65536 /dev/zero >&9; exec "$@"', "{place}"])


def files_of_a_node():
    events = [*RUN, "--events"]
    yield Case("events.full", [*events, "/dev/full", "true"], 0,
               ["cannot write events to /dev/full: No space left on device; the job continues without them"])
    yield Case("events.missing", [*events, "{place}/none/e", "true"], 2, ["--events: write events to", "No such file"])
    yield Case("events.forbidden", [*events, "{place}/d/e", "true"], 2, ["--events: write events to", "Permission denied"],
               folder("d", 0o555), AS_NOBODY)
    yield Case("events.slow", [*events, "{place}/e", "true"], 2, ["--events: write events to", "No such device or address"], fifo("e"))
    yield Case("daemon_events.forbidden", ["--port", "0", "--events", "{place}/d/e"], 78,
               ["--events: create the directory of events", "Permission denied"], folder("d", 0o555), AS_NOBODY, "musterd")
    later = "this node's metrics are not updated until a write succeeds"
    job = ["sh", "-c", f'until grep -q "{later}" "{{place}}/0.err"; do sleep 0.05; done']  # its launcher's stderr
    # Inodes: the root, then the lock.
    yield Case("metrics_file.full", [*RUN, "--metrics-file", PLACE, *job], 0,
               [f"--metrics-file: write {PLACE}/muster_", f"No space left on device; {later}"], before=small_disk("nr_inodes=2"))
    yield Case("metrics_file.missing", [*RUN, "--metrics-file", "{place}/none", "true"], 78, ["none does not exist; name the directory"])
    yield Case("metrics_file.forbidden", [*RUN, "--metrics-file", "{place}/d", *job], 0, [f".prom.lock: Permission denied; {later}"],
               folder("d", 0o555), AS_NOBODY)


def files_of_the_doctor():
    limits = [*RUN, "--preflight-limits", "{place}/f", "true"]
    yield Case("limits.full", [*RUN, "--preflight-limits", "/dev/zero", "true"], 2, ["has more than 1048576 bytes"])
    yield Case("limits.missing", limits, 2, ["--preflight-limits: read ", "f: No such file"])
    yield Case("limits.forbidden", limits, 2, ["f: Permission denied"], write("f", mode=0), AS_NOBODY)
    yield Case("limits.slow", limits, 2, ["no end within 10 s"], fifo("f"), at_least=9.5, within=15)
    # Nodes of which only this one comes, so that it names the ones that are missing.
    looks = ["doctor", "--nnodes", "2", "--rdzv-endpoint", "127.0.0.1:{port}", "--wait", "3",
             "--skip", "names,network,firewall,system,pci,kernel-log,disks,gpus,settings"]
    terms = {"within": 30}
    yield Case("plot.full", [*looks, "--plot", f"{PLACE}/p"], 3, [f"write {PLACE}/p: No space left on device"], before=small_disk("nr_inodes=1"), **terms)
    yield Case("plot.missing", [*looks, "--out", "{place}/none"], 3, ["none/passing_nodes.txt: No such file"], **terms)
    yield Case("plot.forbidden", [*looks, "--out", "{place}/d"], 3, ["d/passing_nodes.txt: Permission denied"], folder("d", 0o555), AS_NOBODY, **terms)
    yield Case("plot.slow", [*looks, "--plot", "{place}/p"], 3, ["/p: No such device or address"], fifo("p"), **terms)


def helpers():
    alone = {"program": "{place}/bin/muster"}
    cores = [*RUN, "--omp=auto", "true"]
    remedy = "install muster-topology beside muster or in PATH, or remove the option"
    looked = ["sh", "-c", 'until grep -q "could not look: " "{place}/0.err"; do sleep 0.05; done']  # its launcher's stderr
    yield Case("facts.missing", [*RUN, *looked], 0, ["preflight: could not look: "], muster_among(), **alone)
    yield Case("topology.missing", cores, 2, [remedy], muster_among(), **alone)
    yield Case("topology.forbidden", cores, 2, [remedy], both(muster_among(), write("bin/muster-topology")), **alone)
    yield Case("topology.slow", cores, 2, [remedy], muster_among(muster_topology="#!/bin/sh\nexec sleep 99\n"), at_least=9.5, within=15, **alone)
    counts = [*RUN, "--nproc-per-node=auto", "true"]
    driver = {"environment": {"MUSTER_NVML_LIBRARY": "/no/nvml.so"}}
    yield Case("gpus.missing", counts, 70, ["but start muster-gpus: No such file", "or cpu for one"], muster_among(), **driver, **alone)
    yield Case("driver.missing", counts, 70, ["has an NVIDIA driver, but /no/nvml.so was not found"], **driver)
    # A task of Slurm's that is told to stop, and wants to know why.
    task = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_NODEID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "1",
            "SLURM_STEP_NODELIST": "n0", "SLURM_NNODES": "1"}
    told = [*RUN, "sh", "-c", 'kill -TERM "$(cat \'{place}/pid\')"; exec sleep 99']
    before = ["sh", "-c", 'echo $$ > "$0/pid"; exec "$@"', "{place}"]
    yield Case("scontrol.missing", told, 143, (), links("bin", "cat", "sh", "sleep"), before, environment={**task, "PATH": "{place}/bin"})
    yield Case("scontrol.slow", told, 143, (), programs("bin", scontrol="#!/bin/sh\nexec sleep 99\n"), before, at_least=11.5, within=20,
               environment={**task, "PATH": "{place}/bin:" + os.environ["PATH"]})
    # One that looks for the address of a node whose name no name service has.
    other = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", "no-such-host.invalid:1",
             "--rdzv-conf", "is_host=0,join_timeout=3", "--no-python", "true"]
    yield Case("node_address.slow", other, 75, ["no-such-host.invalid"], programs("bin", scontrol="#!/bin/sh\nexec sleep 99\n"),
               environment={**task, "PATH": "{place}/bin:" + os.environ["PATH"], "MUSTER_KEY": "the key of the test"}, at_least=8, within=25)


# Takes the right to further processes from its guardian, until a standby process has failed for it. That is started 5 s after a
# round's begin: where this comes later on a busy machine, again in the next round.
CROWDS_OUT = """
import os, pathlib, resource, sys, time
has_failed = lambda: "its standby process ended: not started" in pathlib.Path(sys.argv[1]).read_text()
if not has_failed():
    before = resource.prlimit(os.getppid(), resource.RLIMIT_NPROC)
    resource.prlimit(os.getppid(), resource.RLIMIT_NPROC, (1, before[1]))
    until = time.monotonic() + 40
    while not has_failed() and time.monotonic() < until:
        time.sleep(0.05)
    resource.prlimit(os.getppid(), resource.RLIMIT_NPROC, before)
    sys.exit(3)
"""


def standby_process():
    yield Case("standby.full", [*ONE, "--warm-workers", "1", "--warm-imports", "json", "--max-restarts", "3", "--log-level", "info", "{place}/s.py",
                                "{place}/0.err"], 0,
               ["local rank 0 starts normally: its standby process ended: not started: ", "RLIMIT_NPROC = 1 (ulimit -u)"],
               write("s.py", CROWDS_OUT), AS_NOBODY, environment={"PYTHON_EXEC": "/usr/bin/python3"}, within=15)


def own_key():
    job = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", "192.0.2.1:1", "--no-python", "true"]
    yield Case("key.full", job, 78, ["nodes need a key, and it cannot be made", f"create {PLACE}/.muster: No space left on device"],
               before=small_disk("nr_inodes=1"), environment={"HOME": PLACE})
    yield Case("key.missing", job, 78, ["nodes need a key, and it cannot be made", "none/.muster: No such file"], environment={"HOME": "{place}/none"})
    yield Case("key.forbidden", job, 78, [".muster/key may be used by others"], write(".muster/key", "x" * 40))
    yield Case("key.slow", job, 78, [".muster/key is no file"], fifo(".muster/key"))


def private_files():
    secret = {"MUSTER_SECRET_FILE": "{place}/s"}
    for program, words in (("muster", [*RUN, "true"]), ("musterd", ["--port", "0"])):
        row = "secret" if program == "muster" else "daemon_secret"
        terms = {"program": program, "environment": secret}
        yield Case(f"{row}.full", words, 78, ["MUSTER_SECRET_FILE", "more than 4096 bytes"], write("s", "x" * 5000, 0o600), **terms)
        yield Case(f"{row}.missing", words, 78, ["MUSTER_SECRET_FILE", "No such file"], **terms)
        yield Case(f"{row}.forbidden", words, 78, ["MUSTER_SECRET_FILE", "may be used by others"], write("s", "x" * 40, 0o644), **terms)
        yield Case(f"{row}.slow", words, 78, ["MUSTER_SECRET_FILE", "is no file"], fifo("s"), **terms)
    login = {"program": "musterd", "environment": {"MUSTER_ETCD_LOGIN_FILE": "{place}/s"}}
    yield Case("etcd_login.missing", ["--port", "0"], 2, ["MUSTER_ETCD_LOGIN_FILE", "No such file"], **login)
    yield Case("etcd_login.slow", ["--port", "0"], 2, ["MUSTER_ETCD_LOGIN_FILE", "is no file"], fifo("s"), **login)


def certificates():
    words = ["--port", "0", "--state", "etcd://127.0.0.1:1", "--etcd-protocol", "https", "--etcd-cacert", "{place}/c"]
    yield Case("certificate.missing", words, 2, ["the CA certificate", "No such file"], program="musterd")
    yield Case("certificate.forbidden", words, 2, ["the CA certificate", "c: Permission denied"], write("c", mode=0), AS_NOBODY, "musterd")
    yield Case("certificate.slow", words, 2, ["the CA certificate", "not a regular file"], fifo("c"), program="musterd")


def state_file():
    words = ["--port", "0", "--state"]
    terms = {"program": "musterd"}
    yield Case("state.missing", [*words, "sqlite:{place}/none/s"], 78, ["--state", "none/s"], **terms)
    yield Case("state.forbidden", [*words, "sqlite:{place}/d/s"], 78, ["--state", "d/s"], folder("d", 0o555), AS_NOBODY, **terms)
    yield Case("state.slow", [*words, "sqlite:{place}/s"], 2, ["--state: the state file", "is not a regular file"], fifo("s"), **terms)


def flight_records():
    words = ["flight", "{place}/d"]
    yield Case("flight.full", ["flight", "/dev/zero"], 2, ["/dev/zero: cannot be read"])
    yield Case("flight.missing", words, 2, ["d: cannot be read: it is missing"])
    yield Case("flight.forbidden", words, 2, ["d/x.ring: cannot be read"], write("d/x.ring", "x", 0), AS_NOBODY)
    yield Case("flight.slow", words, 2, ["d/x.ring: cannot be read"], fifo("d/x.ring"))


def worker_runtime():
    """A worker that links it."""
    worker = [*RUN, str(pathlib.Path(os.environ["MUSTER_WORKERS"], "context"))]
    yield Case("flight_dir.full", worker, 1, [f"for the flight record in MUSTER_FLIGHT_DIR, {PLACE}: No space left on device"], before=small_disk("size=64k"),
               environment={"MUSTER_FLIGHT_DIR": PLACE})
    yield Case("flight_dir.missing", worker, 1, ["write the flight record (MUSTER_FLIGHT_DIR)", "No such file"],
               environment={"MUSTER_FLIGHT_DIR": "{place}/none"})
    yield Case("flight_dir.forbidden", worker, 1, ["write the flight record (MUSTER_FLIGHT_DIR)", "Permission denied"], folder("d", 0o555), AS_NOBODY,
               environment={"MUSTER_FLIGHT_DIR": "{place}/d"})
    yield Case("channel.missing", [*RUN, "sh", "-c", f"MUSTER_AGENT_SOCKET=@muster/nobody exec {worker[-1]}"], 0, ["rank=0 world=1"])


def low_ports():
    yield Case("metrics_port.forbidden", [*RUN, "--metrics-listen", "80", "true"], 78, ["--metrics-listen", "Permission denied"], before=LOW_PORTS)
    yield Case("daemon_port.forbidden", ["--bind", "127.0.0.1", "--port", "80"], 78, ["port 80", "Permission denied"], before=LOW_PORTS, program="musterd")


def checkpoints():
    words = ["checkpoint", "{place}/d"]
    step = "d/step_00000007/manifest.json"
    yield Case("manifest.full", words, 1, ["step 7", "incomplete: manifest: does not begin with its checksum"], write(step, "x" * 100))
    yield Case("manifest.missing", words, 1, ["incomplete", "No such file"], write("d/step_00000007/x"))
    yield Case("manifest.forbidden", words, 1, ["incomplete", "Permission denied"], write(step, mode=0), AS_NOBODY)
    yield Case("manifest.slow", words, 1, ["incomplete", "is no regular file"], fifo(step))
    yield Case("checkpoint_dir.missing", [*RUN, "--checkpoint-dir", "{place}/f/x", "true"], 78, ["--checkpoint-dir", "is not one"], write("f"))


def kernel():
    hidden = in_namespace("mount -t proc -o hidepid=2 proc /proc") if ROOT else []
    yield Case("proc.missing", [*RUN, "true"], 70, ["/proc/self/task", "this container or chroot has no /proc: mount it"],
               before=in_namespace("mount -t tmpfs none /proc"))
    if ROOT:
        yield Case("proc.forbidden", [*RUN, "true"], 0, before=[*hidden, *AS_NOBODY])
    timer = {"TORCHELASTIC_ENABLE_FILE_TIMER": "1"}
    yield Case("timer_fifo.missing", [*RUN, "true"], 78, ["TORCHELASTIC_TIMER_FILE", "No such file"],
               environment={**timer, "TORCHELASTIC_TIMER_FILE": "{place}/none/f"})
    yield Case("timer_fifo.forbidden", [*RUN, "true"], 78, ["TORCHELASTIC_TIMER_FILE", "Permission denied"], folder("d", 0o555), AS_NOBODY,
               environment={**timer, "TORCHELASTIC_TIMER_FILE": "{place}/d/f"})
    yield Case("files.full", [*RUN, "true"], 70, ["ulimit -n"], before=["prlimit", "--nofile=24:24"])
    yield Case("stderr.full", [*RUN, "sh", "-c", "echo out; echo err >&2; exit 3"], 3, before=["sh", "-c", 'exec "$@" 2>/dev/full', "sh"])
    yield Case("stdout.full", ["--help"], 70, ["cannot write to stdout: No space left on device"], before=["sh", "-c", 'exec "$@" >/dev/full', "sh"])
    yield Case("daemon_stdout.full", ["--help"], 70, ["cannot write to stdout: No space left on device"],
               before=["sh", "-c", 'exec "$@" >/dev/full', "sh"], program="musterd")
    yield Case("daemon_streams.missing", ["--help"], 0, before=["sh", "-c", 'exec "$@" >&- 2>&-', "sh"], program="musterd")


def all_cases():
    for group in (config_file, program_file, log_directory, error_files, report_file, files_of_a_node, files_of_the_doctor, helpers, standby_process,
                  own_key, private_files, certificates, state_file, flight_records, worker_runtime, low_ports, checkpoints, kernel):
        yield from group()
