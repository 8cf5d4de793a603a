"""Hosts of one cluster as network namespaces on a network of their own; inside private(), all of it ends with the caller.

Two networks. "veth": a bridge in the kernel, fast; nftables drop what is to be lost. "tap": frames pass through a thread
of this process, which holds them back for as long as it is told and loses some (the kernel here has no netem).
"""
import fcntl
import heapq
import os
import random
import selectors
import shutil
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

NETWORK = "10.77.0."
OUTSIDE = NETWORK + "254"  # the harness's own address among them


def private():
    """Runs this program again where its namespaces, mounts and processes are its own and end with it."""
    if os.environ.get("MUSTER_FAULTS_PRIVATE") == "1":
        return
    lacks = [tool for tool in ("ip", "nft", "unshare") if shutil.which(tool) is None]
    if os.geteuid() != 0 or lacks:
        print("failures: skipped:", f"{', '.join(lacks)} not installed" if lacks else "only root may make network namespaces")
        sys.exit(77)
    os.environ["MUSTER_FAULTS_PRIVATE"] = "1"
    os.execvp("unshare", ["unshare", "--net", "--mount", "--propagation", "private", "--pid", "--fork", "--mount-proc",
                          "--uts", "--kill-child=SIGKILL", sys.executable, *sys.argv])


def wrong_clock(folder, seconds):
    """The variables of processes whose wall clock is ahead by this, and the file of the 8-byte number that changes it."""
    library, shift = folder / "clock_shift.so", folder / "shift"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, Path(__file__).with_name("clock_shift.c")], check=True)
    shift.write_bytes(struct.pack("q", seconds))
    return {"LD_PRELOAD": str(library), "CLOCK_SHIFT": str(shift)}, shift


def reap():
    """Takes the ends of processes whose parent is gone: this program is the first one of its process namespace."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def ip(*words):
    done = subprocess.run(["ip", *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(map(str, words))}: {done.stderr.strip()}")


def prepare():
    """Once, inside private(): where `ip netns` keeps its names."""
    os.makedirs("/run/netns", exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", "/run/netns"], check=True)
    ip("link", "set", "lo", "up")


class Hosts:
    """`names` become namespaces with the addresses 10.77.0.1, .2, ...; a context manager."""

    def __init__(self, names, network="veth"):
        self.names, self.network = names, network
        self.switch = None

    def __enter__(self):
        if self.network == "tap":
            self.switch = Switch()
        else:
            ip("link", "add", "br0", "type", "bridge")
            ip("link", "set", "br0", "up")
            ip("addr", "add", OUTSIDE + "/24", "dev", "br0")
        for number, name in enumerate(self.names, 1):
            self.add(name, number)
        if self.switch:
            self.switch.add(None, None)
            ip("addr", "add", OUTSIDE + "/24", "dev", "outside")
            ip("link", "set", "outside", "up")
            self.switch.start()
        return self

    def add(self, name, number):
        ip("netns", "add", name)
        if self.switch:
            self.switch.add(name, f"tap{number}")
        else:
            ip("link", "add", f"v{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", f"v{number}", "master", "br0", "up")
        for device in ("lo", "eth0"):
            ip("-n", name, "link", "set", device, "up")
        ip("-n", name, "addr", "add", f"{NETWORK}{number}/24", "dev", "eth0")

    def __exit__(self, *_):
        if self.switch:
            self.switch.stop()
        for number, name in enumerate(self.names, 1):
            if not self.switch:
                ip("link", "del", f"v{number}")
            ip("netns", "del", name)
        if not self.switch:
            ip("link", "del", "br0")

    def address(self, name):
        return f"{NETWORK}{self.names.index(name) + 1}"

    def command(self, name, command):
        """What runs `command` on that host, under its name."""
        return ["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', name,
                *map(str, command)]

    # ---- faults; all are gone with the hosts ----
    def cut(self, name, inbound=True, outbound=True, but=()):
        """Drops what comes to and goes from `name` without a word, but for what it exchanges with the hosts in `but`."""
        for hook, way, field, wanted in (("input", "iifname", "saddr", inbound), ("output", "oifname", "daddr", outbound)):
            if wanted:
                kept = "".join(f" ip {field} {self.address(other)} accept;" for other in but)
                self.rules(name, hook, f"{way} lo accept;{kept} drop;")

    def rules(self, name, hook, text):
        done = subprocess.run(["ip", "netns", "exec", name, "nft", "-f", "-"], capture_output=True, text=True, input=(
            f"table inet cut_{hook} {{\nchain everything {{\ntype filter hook {hook} priority 0; {text}\n}}\n}}\n"))
        if done.returncode != 0:
            raise RuntimeError(f"nft on {name}: {done.stderr.strip()}")


class Switch(threading.Thread):
    """A learning Ethernet switch between taps: each frame waits for `delay` seconds, and the share `loss` gets lost."""

    def __init__(self):
        super().__init__(daemon=True)
        self.delay, self.loss = 0.0, 0.0
        self.ports, self.where, self.waiting = [], {}, []
        self.selector, self.running, self.count = selectors.DefaultSelector(), True, 0
        self.dice = random.Random(7)

    def add(self, name, device):
        tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        IFF_TAP_NO_PI, TUNSETIFF = 0x1002, 0x400454CA
        fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", (device or "outside").encode(), IFF_TAP_NO_PI))
        if name:
            ip("link", "set", device, "netns", name, "name", "eth0")
        self.ports.append(tap)
        self.selector.register(tap, selectors.EVENT_READ)

    def run(self):
        while self.running:
            rest = self.waiting[0][0] - time.monotonic() if self.waiting else 0.2
            for key, _ in self.selector.select(max(0.0, min(rest, 0.2))):
                self.take(key.fd)
            while self.waiting and self.waiting[0][0] <= time.monotonic():
                _, _, out, frame = heapq.heappop(self.waiting)
                for tap in out:
                    try:
                        os.write(tap, frame)
                    except OSError:
                        pass  # the device's queue is full, or it is not up yet: lost, as on a wire

    def take(self, tap):
        try:
            frame = os.read(tap, 65536)
        except OSError:
            return
        self.where[frame[6:12]] = tap
        if self.dice.random() < self.loss:
            return
        known = self.where.get(frame[0:6])
        out = [known] if known is not None else [other for other in self.ports if other != tap]
        self.count += 1
        heapq.heappush(self.waiting, (time.monotonic() + self.delay, self.count, out, frame))

    def stop(self):
        self.running = False
        self.join(5)
        for tap in self.ports:
            os.close(tap)
