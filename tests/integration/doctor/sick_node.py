"""A node of its own: a host name, interfaces, /etc/hosts and /sys in namespaces, in which a fault can be planted."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import own_processes  # noqa: E402, F401

BIN = pathlib.Path(os.environ["MUSTER_BIN"])
UNSHARE = ["unshare", "--mount", "--propagation", "private", "--uts", "--net",
           *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
NAME, ADDRESS = "gpu07", "10.9.0.7"
# A sysfs that is mounted here shows the interfaces of this network namespace.
SET_UP = f"""set -e
hostname {NAME}
mount -t sysfs none /sys
ip link set lo up
ip link add eth0 type veth peer name far
ip link set far up
ip link set eth0 up
ip addr add {ADDRESS}/24 dev eth0
mount --bind "$FOLDER/hosts" /etc/hosts
mount --bind "$FOLDER/resolv.conf" /etc/resolv.conf
mount --bind "$FOLDER/pci" /sys/bus/pci/devices
mount -t tmpfs -o size=2G none /dev/shm
echo 4096 > /proc/sys/net/core/somaxconn
"""
# Mounts a file system at $1 that answers nothing, and runs the rest of its words.
SILENT_DISK = """
import ctypes, os, sys
fuse = os.open("/dev/fuse", os.O_RDWR)
os.set_inheritable(fuse, True)
options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0".encode()
if ctypes.CDLL(None, use_errno=True).mount(b"silent", sys.argv[1].encode(), b"fuse", 0, options) != 0:
    sys.exit(os.strerror(ctypes.get_errno()))
os.execvp(sys.argv[2], sys.argv[2:])
"""


# A look's own limit is for hosts that work; one that is busy with other tests may stand still for longer. Given to every run
# that has no limits of its own, apart from the looks of `hangs`.
ROOMY = {**{f"{look}-timeout-ms": 30000 for look in ("names", "network", "firewall", "system", "pci", "kernel-log", "disks", "gpus")},
         "lookup-ms": 30000, "disk-write-ms": 30000}


def roomy(*hangs):
    """Lines of a file of limits."""
    return "".join(f"{name} = {value}\n" for name, value in ROOMY.items() if name.removesuffix("-timeout-ms") not in hangs)


class Answer:
    """What one run of muster doctor printed."""

    def __init__(self, done, took):
        self.code, self.text, self.error, self.took = done.returncode, done.stdout, done.stderr, took

    @property
    def json(self):
        return json.loads(self.text)

    def named(self):
        """(level, check) of the findings above information."""
        return [(one["level"], one["check"]) for one in self.json["findings"] if one["level"] != "info"]

    def finding(self):
        return next(one for one in self.json["findings"] if one["level"] != "info")


class Node:
    """Use it as a context manager. `doctor` runs muster doctor there."""

    def __enter__(self):
        self.holder = tempfile.TemporaryDirectory(prefix="doctor ")
        self.folder = pathlib.Path(self.holder.name)
        (self.folder / "pci").mkdir()
        (self.folder / "resolv.conf").write_text("")
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost\n{ADDRESS} {NAME}\n")
        return self

    def __exit__(self, *_):
        self.holder.cleanup()

    def gpu(self, address, **files):
        """A GPU on the PCI bus."""
        folder = self.folder / "pci" / address
        folder.mkdir()
        for name, text in {"class": "0x030200", "vendor": "0x10de", "current_link_width": "16", "max_link_width": "16", **files}.items():
            (folder / name).write_text(text + "\n")

    def doctor(self, *words, plant="", before=(), json_output=True, hangs=(), **environment):
        if "--limits" not in words and "explain" not in words and "--help" not in words:
            (self.folder / "roomy").write_text(roomy(*hangs))
            words = (*words, "--limits", self.folder / "roomy")
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("MUSTER_", "NCCL_", "GLOO_", "OMP_", "TORCH_", "CUDA_", "FAKE_"))}
        start = time.monotonic()
        done = subprocess.run(
            [*UNSHARE, "sh", "-c", SET_UP + plant + '\nexec "$@"', "sh", *before, BIN / "muster", "doctor",
             *(["--json"] if json_output else []), *words],
            env={**kept, "FOLDER": str(self.folder), "TMPDIR": "/tmp", **environment}, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=600, cwd="/")
        return Answer(done, time.monotonic() - start)


def silent_disk(place):
    """Words that go before a command that shall find a hanging file system at `place`."""
    return [sys.executable, "-c", SILENT_DISK, place]


def works():
    """Whether such nodes can be made here."""
    with Node() as node:
        return node.doctor("--help").code == 0
