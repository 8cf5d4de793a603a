"""A Slurm cluster of several nodes on this host: munged, slurmctld and one slurmd for each node, on ports and in a
directory of their own. It lives in a mount namespace, so that its nodes have names, and goes with the object.

Within the cluster, "n1", "n2" ... are this host; they have CPUs and two GPUs each in Slurm's books only. Jobs of the
partition "urgent" take nodes from those of "all".
"""
import contextlib
import ctypes
import os
import pathlib
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time

SKIP = 77


def end_with_the_test():
    """A test that is killed leaves no daemon behind."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


def missing_parts():
    """What a cluster needs and is not here."""
    parts = [name for name in ("munged", "slurmctld", "slurmd", "srun") if not program(name)]
    return parts + ([] if os.geteuid() == 0 else ["root"])


def program(name):
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def free_ports(count):
    """Ports that nobody had a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


CONF = """\
ClusterName=muster
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld}
AuthType=auth/munge
AuthInfo=socket={dir}/munge.socket
CryptoType=crypto/munge
SlurmUser=root
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool.%n
SlurmdPidFile={dir}/slurmd.%n.pid
SlurmctldPidFile={dir}/slurmctld.pid
SlurmctldLogFile={dir}/slurmctld.log
SlurmdLogFile={dir}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SlurmdTimeout={slurmd_timeout}
KillWait=5
InactiveLimit=0
MinJobAge=300
SchedulerParameters=sched_interval=1,bf_interval=1
RequeueExit=75,76
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
{more}
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=urgent Nodes=ALL PriorityTier=10 MaxTime=INFINITE State=UP
"""


class Cluster:
    """`nodes` nodes of `cpus` CPUs each. Use as a context manager."""

    def __init__(self, folder, nodes=2, cpus=8, more="", slurmd_timeout=30):
        self.folder = pathlib.Path(folder)
        self.nodes = [f"n{i + 1}" for i in range(nodes)]
        self.daemons = {}
        ctld, *ports = free_ports(1 + nodes)
        host = socket.gethostname()
        lines = [f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} Gres=gpu:2 State=UNKNOWN"
                 for name, port in zip(self.nodes, ports)]
        self.conf = self.folder / "slurm.conf"
        self.conf.write_text(CONF.format(host=host, ctld=ctld, dir=self.folder, nodes="\n".join(lines), more=more,
                                         slurmd_timeout=slurmd_timeout))
        for name in self.nodes:
            (self.folder / f"spool.{name}").mkdir()
        (self.folder / "state").mkdir()
        # Slurm looks at no more of a GPU than that it is a device.
        for number in range(2):
            os.mknod(self.folder / f"gpu{number}", 0o600 | stat.S_IFCHR, os.makedev(195, number))
        (self.folder / "gres.conf").write_text(f"Name=gpu File={self.folder}/gpu[0-1]\n")
        self.hosts = self.folder / "hosts"
        self.hosts.write_text(pathlib.Path("/etc/hosts").read_text() +
                              f"\n127.0.0.1 {' '.join(self.nodes)} {host}\n")
        self.environment = {**os.environ, "SLURM_CONF": str(self.conf),
                            "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
        for name in list(self.environment):
            if name.startswith(("SLURM_", "MUSTER_", "PET_", "TORCHELASTIC_")) and name != "SLURM_CONF":
                del self.environment[name]

    def __enter__(self):
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            self.start_munge()
            self.daemon("slurmctld", "slurmctld", "-D", "-f", self.conf)
            for name in self.nodes:
                self.start_node(name)
            self.until("idle nodes", self.idle, 60)
            undo.pop_all()
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Jobs, then daemons."""
        if "slurmctld" in self.daemons:
            with contextlib.suppress(subprocess.SubprocessError):
                self.run("scancel", "--user=root", timeout=20)
                self.until("end of all jobs", lambda: self.run("squeue", "-h").stdout == "", 20)
        for name in reversed(list(self.daemons)):
            self.stop(name)

    def in_namespace(self, *command):
        """Runs it where the nodes have names."""
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c",
                'mount --bind "$0" /etc/hosts && exec "$@"', str(self.hosts), *map(str, command)]

    def start_munge(self):
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self.folder.chmod(0o755)
        self.daemon("munged", "munged", "--foreground", "--force", f"--key-file={key}",
                    f"--socket={self.folder / 'munge.socket'}", f"--pid-file={self.folder / 'munge.pid'}",
                    f"--log-file={self.folder / 'munge.log'}", f"--seed-file={self.folder / 'munge.seed'}")
        self.until("munge's socket", (self.folder / "munge.socket").exists, 20)

    def daemon(self, name, *command):
        log = open(self.folder / f"{name}.out", "wb")
        path = program(str(command[0]))
        self.daemons[name] = subprocess.Popen(self.in_namespace(path, *command[1:]), env=self.environment,
                                              stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                                              preexec_fn=end_with_the_test)
        log.close()

    def start_node(self, name):
        self.daemon(name, "slurmd", "-D", "-f", self.conf, "-N", name)

    def stop(self, name, how=signal.SIGTERM):
        """Ends a daemon; of a node also what it was running (its children are in its session)."""
        daemon = self.daemons.pop(name)
        daemon.send_signal(how)
        try:
            daemon.wait(20)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    def command(self, *words):
        return self.in_namespace(*words)

    def run(self, *words, timeout=60, **more):
        """One of Slurm's commands, to its end: a CompletedProcess with text."""
        return subprocess.run(self.command(*words), env=self.environment, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout, **more)

    def states(self):
        done = self.run("sinfo", "-h", "-N", "-o", "%N %t")
        return dict(line.split()[:2] for line in done.stdout.splitlines())

    def idle(self, apart=None):
        states = self.states()
        return all(states.get(name) == "idle" for name in self.nodes if name != apart)

    def until(self, what, reached, limit):
        end = time.monotonic() + limit
        while not reached():
            if time.monotonic() > end:
                raise AssertionError(f"no {what} within {limit} s\n{self.logs()}")
            time.sleep(0.1)

    def logs(self):
        parts = []
        for path in sorted(self.folder.glob("*.log")) + sorted(self.folder.glob("*.out")):
            text = path.read_text(errors="replace").splitlines()[-15:]
            parts.append(f"-- {path.name}\n" + "\n".join(text))
        return "\n".join(parts)


def skip_or_fail(what):
    print(f"skipped: {what}")
    sys.exit(1 if os.environ.get("CI") == "true" else SKIP)
