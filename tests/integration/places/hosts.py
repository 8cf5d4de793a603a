"""Several hosts on this one: network, host name, /etc/hosts, /run and home directory of their own, on one switch. Root only.

They share the process numbers and the other files of this host. All of it goes with the object, and with the test.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import own_processes  # noqa: E402, F401


class Hosts:
    """Use as a context manager. `names` get 10.77.0.1, 10.77.0.2 ..."""

    def __init__(self, folder, names):
        self.folder = pathlib.Path(folder)
        self.names = list(names)
        self.addresses = {name: f"10.77.0.{number}" for number, name in enumerate(self.names, 1)}
        self.holders = {}

    def __enter__(self):
        try:
            self.hold("switch")
            self.inside("switch", "ip", "link", "add", "br0", "up", "type", "bridge")
            for name in self.names:
                self.hold(name)
                self.plug(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for holder in self.holders.values():
            holder.kill()
        for holder in self.holders.values():
            holder.wait()

    def hold(self, name):
        """A process that keeps the host's namespaces alive."""
        hosts, resolver = self.folder / f"{name}.hosts", self.folder / "resolv.conf"
        hosts.write_text("127.0.0.1 localhost\n")
        resolver.write_text("")
        self.home(name).mkdir()
        set_up = ('hostname "$0" && mount --bind "$1" /etc/hosts && mount --bind "$2" /etc/resolv.conf && '
                  "mount -t tmpfs tmpfs /run && ip link set lo up && echo up && exec sleep 3600")
        self.holders[name] = subprocess.Popen(
            ["unshare", "--net", "--uts", "--mount", "sh", "-c", set_up, name, hosts, resolver],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert self.holders[name].stdout.readline() == b"up\n", f"host {name} cannot be made"
        self.holders[name].stdout.close()
        (self.folder / f"{name}.pid").write_text(str(self.holders[name].pid))

    def home(self, name):
        return self.folder / f"{name}.home"

    def plug(self, name):
        host, switch = self.holders[name].pid, self.holders["switch"].pid
        subprocess.run(["ip", "link", "add", f"v{host}", "netns", str(switch), "type", "veth", "peer", "name", "eth0",
                        "netns", str(host)], check=True)
        self.inside("switch", "ip", "link", "set", f"v{host}", "master", "br0", "up")
        self.inside(name, "sh", "-c", f"ip addr add {self.addresses[name]}/24 dev eth0 && ip link set eth0 up")

    def know(self, name, others=None):
        """`name` can look up `others` (all)."""
        lines = ["127.0.0.1 localhost"] + [f"{self.addresses[other]} {other}" for other in others or self.names]
        rewrite(self.folder / f"{name}.hosts", lines)

    def command(self, name, *words):
        return ["nsenter", "-t", str(self.holders[name].pid), "--net", "--uts", "--mount", *map(str, words)]

    def inside(self, name, *words):
        subprocess.run(self.command(name, *words), check=True, stdin=subprocess.DEVNULL)

    def begin(self, name, *words, **variables):
        """In the background; what it says can be read from its stdout."""
        kept = {key: value for key, value in os.environ.items()
                if not key.startswith(("MUSTER_", "PET_", "SLURM_", "OMPI_", "PMI"))}
        return subprocess.Popen(self.command(name, *words), env={**kept, "HOME": str(self.home(name)), **variables}, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def rewrite(path, lines):
    """In place, because the file is mounted, and in one piece: who looks meanwhile must not find it empty."""
    with open(path, "r+b", buffering=0) as file:
        file.write("".join(f"{line}\n" for line in lines).encode())
        file.truncate()


def missing(*programs):
    """What these tests need and is not here."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    parts = [name for name in ("unshare", "nsenter", "ip", *programs) if not shutil.which(name, path=path)]
    return parts + ([] if os.geteuid() == 0 else ["root"])


def wait_for(what, reached, limit=60):
    end = time.monotonic() + limit
    while not reached():
        assert time.monotonic() < end, f"no {what} within {limit} s"
        time.sleep(0.02)


def processes_with(mark):
    """The pids of processes that have `mark` in their environment."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):  # below one that is just going, glob() raises
        try:
            if mark.encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
        except OSError:
            pass  # it has gone meanwhile
    return found
