"""A Slurm cluster of several nodes on this host: munged, slurmctld and one slurmd for each node, each in network, mount
and host name namespaces of its own (places/hosts.py), in a directory of its own. It goes with the object.

"n1", "n2" ... have 10.77.0.1, 10.77.0.2 ..., and CPUs and two GPUs each in Slurm's books only; "login" has slurmctld and
Slurm's commands. Jobs of the partition "urgent" take nodes from those of "all".
"""
import contextlib
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "places"))
import hosts  # noqa: E402

SKIP = 77


def missing_parts():
    """What a cluster needs and is not here."""
    return hosts.missing("munged", "slurmctld", "slurmd", "srun", "mpiexec.hydra")


def program(name):
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


CONF = """\
ClusterName=muster
SlurmctldHost=login({login})
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
KillWait=30
InactiveLimit=0
MinJobAge=300
SchedulerParameters=sched_interval=1,bf_interval=1
RequeueExit={requeue_exit}
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=urgent Nodes=ALL PriorityTier=10 MaxTime=INFINITE State=UP
"""


class Cluster:
    """`nodes` nodes of `cpus` CPUs each; those of `nameless` have their names in Slurm alone. Use as a context manager."""

    def __init__(self, folder, nodes=2, cpus=8, slurmd_timeout=30, nameless=(), requeue_exit="75,76"):
        self.folder = pathlib.Path(folder)
        self.nodes = [f"n{i + 1}" for i in range(nodes)]
        self.nameless = nameless
        self.daemons = {}
        self.hosts = hosts.Hosts(folder, [*self.nodes, "login"])
        lines = [f"NodeName={name} NodeAddr={self.hosts.addresses[name]} CPUs={cpus} Gres=gpu:2 State=UNKNOWN"
                 for name in self.nodes]
        self.conf = self.folder / "slurm.conf"
        self.conf.write_text(CONF.format(login=self.hosts.addresses["login"], dir=self.folder, nodes="\n".join(lines),
                                         slurmd_timeout=slurmd_timeout, requeue_exit=requeue_exit))
        for name in self.nodes:
            (self.folder / f"spool.{name}").mkdir()
        (self.folder / "state").mkdir()
        # Slurm looks at no more of a GPU than that it is a device.
        for number in range(2):
            os.mknod(self.folder / f"gpu{number}", 0o600 | stat.S_IFCHR, os.makedev(195, number))
        (self.folder / "gres.conf").write_text(f"Name=gpu File={self.folder}/gpu[0-1]\n")
        # Jobs have their submitter's TMPDIR, and one that is killed leaves what it had there.
        self.environment = {**os.environ, "SLURM_CONF": str(self.conf), "TMPDIR": str(self.folder), "HOME": str(self.folder),
                            "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
        for name in list(self.environment):
            if name.startswith(("SLURM_", "MUSTER_", "PET_", "TORCHELASTIC_")) and name != "SLURM_CONF":
                del self.environment[name]

    def __enter__(self):
        with contextlib.ExitStack() as undo:
            self.hosts.__enter__()
            undo.callback(self.close)
            for name in self.hosts.names:
                self.hosts.know(name, [other for other in self.hosts.names if other not in self.nameless])
            self.start_munge()
            self.daemon("slurmctld", "login", "slurmctld", "-D", "-f", self.conf)
            for name in self.nodes:
                self.start_node(name)
            self.until("idle nodes", self.idle, 150)
            undo.pop_all()
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Jobs, then daemons."""
        if "slurmctld" in self.daemons:
            with contextlib.suppress(subprocess.SubprocessError):
                self.run("scancel", "--user=root", timeout=60)
                self.until("end of all jobs", lambda: self.run("squeue", "-h").stdout == "", 90)  # KillWait is 30 s
        for name in reversed(list(self.daemons)):
            self.stop(name)
        self.hosts.__exit__()

    def start_munge(self):
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self.folder.chmod(0o755)
        self.daemon("munged", "login", "munged", "--foreground", "--force", f"--key-file={key}",
                    f"--socket={self.folder / 'munge.socket'}", f"--pid-file={self.folder / 'munge.pid'}",
                    f"--log-file={self.folder / 'munge.log'}", f"--seed-file={self.folder / 'munge.seed'}")
        self.until("munge's socket", (self.folder / "munge.socket").exists, 60)
        for name in self.nodes:
            self.link_munge(name)

    def link_munge(self, name):
        """munge and unmunge find munged on this node. /run is the node's own."""
        self.hosts.inside(name, "sh", "-c", 'mkdir -p /run/munge && ln -sf "$0" /run/munge/munge.socket.2', self.folder / "munge.socket")

    def unlink_munge(self, name):
        """As where munged is stopped, for all but Slurm's own daemons."""
        self.hosts.inside(name, "rm", "/run/munge/munge.socket.2")

    def daemon(self, name, host, *command):
        log = open(self.folder / f"{name}.out", "wb")
        path = program(str(command[0]))
        self.daemons[name] = subprocess.Popen(self.hosts.command(host, path, *command[1:]), env=self.environment,
                                              stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        log.close()

    def start_node(self, name):
        self.daemon(name, name, "slurmd", "-D", "-f", self.conf, "-N", name)

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
        return self.hosts.command("login", *words)

    def run(self, *words, timeout=150, **more):
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
