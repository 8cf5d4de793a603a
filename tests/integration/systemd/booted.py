"""A systemd of the test's own: process 1 of fresh namespaces (processes, mounts, network, control groups, names), with
the units of scripts/systemd and nothing else of this host's. It goes with the object, and with the test that is killed.

Nothing outside is touched: /run, /tmp, /var/tmp, /var/lib and /var/log are its own before anything is started, systemd
looks for units in a directory of the test alone, and its control groups lie below one that the test makes.
"""
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import own_processes  # noqa: E402, F401

SKIP = 77
SOURCE = pathlib.Path(__file__).resolve().parents[3]
SYSTEMD = pathlib.Path("/lib/systemd/systemd")
# Where the inner systemd finds things; all of it lies on its own /run.
BIN, ETC, UNITS = "/run/test/bin", "/run/test/etc", "/run/test/units"
BOOT = r"""
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/test/bin /run/test/shared
mount --bind "$MUSTER_BIN" /run/test/bin
mount --bind "$FOLDER" /run/test/shared
for own in /tmp /var/tmp /var/lib /var/log; do mount -t tmpfs -o mode=1777 tmpfs $own; done
chmod 755 /var/lib /var/log
umount -R /sys/fs/cgroup 2>/dev/null || true
if [ "$LAYOUT" = hybrid ]; then
    mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
    mkdir /sys/fs/cgroup/unified /sys/fs/cgroup/systemd
    mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified
    mount -t cgroup -o none,name=systemd,xattr cgroup /sys/fs/cgroup/systemd
    # Or it would mount the controllers' hierarchies as well, and make groups at the top of them.
    grep '^#' /proc/cgroups > /run/cgroups
    mount --bind /run/cgroups /proc/cgroups
else
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
fi
cp -r /run/test/shared/etc /run/test/shared/units /run/test/
mkdir -p /run/systemd/journald.conf.d
printf '[Journal]\nReadKMsg=no\nAudit=no\nRateLimitBurst=0\n' > /run/systemd/journald.conf.d/test.conf
echo 0123456789abcdef0123456789abcdef > /run/machine-id
mount --bind /run/machine-id /etc/machine-id
ip link set lo up
mount --make-rshared /  # among its own namespaces: services' mounts come that way
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin SYSTEMD_UNIT_PATH=/run/test/units \
    SYSTEMD_GENERATOR_PATH=/run/test/none SYSTEMD_ENVIRONMENT_GENERATOR_PATH=/run/test/none \
    SYSTEMD_LOG_TARGET=console "$SYSTEMD" --system --unit=basic.target --log-level=notice --show-status=no
"""
BASE_UNITS = {
    "sysinit.target": "[Unit]\nDefaultDependencies=no\nRequires=systemd-journald.service\n"
                      "After=systemd-journald.service systemd-journald.socket\n",
    "basic.target": "[Unit]\nDefaultDependencies=no\nRequires=sysinit.target sockets.target\n"
                    "After=sysinit.target sockets.target\n",
    **{f"{name}.target": "[Unit]\nDefaultDependencies=no\n" for name in ("sockets", "network", "network-online",
                                                                          "multi-user", "shutdown", "slices", "paths",
                                                                          "timers")},
}


def missing_parts():
    """What a systemd of our own needs and is not here."""
    parts = [name for name in ("unshare", "nsenter", "ip", "journalctl", "systemctl") if not shutil.which(name)]
    parts += [] if SYSTEMD.exists() else ["systemd"]
    parts += [] if os.geteuid() == 0 else ["root"]
    return parts + ([] if unified_directory() else ["cgroup2"])


def unified_directory():
    """Where this process lies in the v2 hierarchy; None where there is none."""
    mounts = [line.split() for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()]
    mount = next((fields[4] for fields in mounts if fields[fields.index("-") + 1] == "cgroup2"), None)
    own = next((line[3:] for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines()
                if line.startswith("0::")), None)
    if not mount or own is None:
        return None
    path = pathlib.Path(mount + own)
    return path if os.access(path, os.W_OK) else None


def legacy_directory():
    """The same in systemd's own v1 hierarchy, of the hybrid layout."""
    path = pathlib.Path("/sys/fs/cgroup/systemd")
    return path if (path / "cgroup.procs").exists() else None


class Systemd:
    """Use as a context manager. `layout`: of the control groups, "unified" or "hybrid"."""

    def __init__(self, folder, build, layout="unified"):
        self.folder = pathlib.Path(folder)
        self.build = pathlib.Path(build)
        self.layout = layout
        self.groups = []
        self.outer = None
        for name in ("etc/muster", "units"):
            (self.folder / name).mkdir(parents=True)
        self.folder.chmod(0o755)
        self.write_units()

    def write_units(self):
        for name, text in BASE_UNITS.items():
            self.unit(name, text)
        for name in ("systemd-journald.service", "systemd-journald.socket", "systemd-journald-dev-log.socket"):
            shutil.copy(f"/lib/systemd/system/{name}", self.folder / "units" / name)
        places = {"@CMAKE_INSTALL_FULL_BINDIR@": BIN, "@CMAKE_INSTALL_FULL_SYSCONFDIR@": ETC}
        for template in (SOURCE / "scripts/systemd").glob("*.in"):
            text = template.read_text()
            for place, path in places.items():
                text = text.replace(place, path)
            self.unit(template.name[:-len(".in")], text)
        # Nothing can have run before: no lease is waited for.
        text = (SOURCE / "scripts/systemd/musterd.conf").read_text()
        (self.folder / "etc/muster/musterd.conf").write_text(text + "first-start = yes\n")

    def unit(self, name, text):
        path = self.folder / "units" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def __enter__(self):
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            self.boot()
            self.until("systemd", self.is_up)
            undo.pop_all()
        return self

    def __exit__(self, *_):
        self.close()

    def boot(self):
        parents = [unified_directory()] + ([legacy_directory()] if self.layout == "hybrid" else [])
        self.groups = [parent / f"muster-test-{os.getpid()}" for parent in parents]
        for group in self.groups:
            # What a test that was killed has left; process numbers come again.
            for left in group.parent.glob("muster-test-*"):
                if not pathlib.Path("/proc", left.name.rsplit("-", 1)[1]).exists() or left == group:
                    self.remove(left)
            group.mkdir()

        def begin():
            for group in self.groups:
                (group / "cgroup.procs").write_text("0")

        environment = {**os.environ, "MUSTER_BIN": str(self.build / "bin"), "FOLDER": str(self.folder),
                       "SYSTEMD": str(SYSTEMD), "LAYOUT": self.layout}
        with open(self.folder / "console", "wb") as console:
            self.outer = subprocess.Popen(
                ["unshare", "--fork", "--pid", "--mount", "--mount-proc", "--uts", "--ipc", "--net", "--cgroup",
                 "--kill-child=SIGKILL", "sh", "-c", BOOT],
                env=environment, stdin=subprocess.DEVNULL, stdout=console, stderr=console, preexec_fn=begin,
                start_new_session=True)

    def close(self):
        if self.outer:
            self.outer.kill()
            self.outer.wait()
        for group in self.groups:
            self.until("end of all processes", lambda group=group: self.remove(group))

    def remove(self, group):
        """True when it is gone, with all groups below it."""
        for path, *_ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(path)
        return not group.exists()

    def first_process(self):
        """The inner process 1, as it is numbered here."""
        children = pathlib.Path(f"/proc/{self.outer.pid}/task/{self.outer.pid}/children").read_text().split()
        return children[0] if children else None

    def is_up(self):
        if self.outer.poll() is not None:
            raise AssertionError(f"systemd ended with {self.outer.returncode}\n{self.logs()}")
        return self.run("systemctl", "is-active", "basic.target", check=False).stdout.strip() == "active"

    def inside(self, *words):
        return ["nsenter", "-t", self.first_process() or "0", "-a", *map(str, words)]

    def run(self, *words, timeout=180, check=True, stdin=None):
        """A command inside, to its end: a CompletedProcess with text."""
        done = subprocess.run(self.inside(*words), input=stdin, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=timeout)
        if check and done.returncode != 0:
            raise AssertionError(f"{words}: {done.returncode}\n{done.stdout}{done.stderr}\n{self.logs()}")
        return done

    def systemctl(self, *words, **more):
        return self.run("systemctl", *words, **more)

    def show(self, unit, *properties):
        """The values of `properties`, as text; of one, without a list around it."""
        done = self.run("systemctl", "show", unit, *(f"--property={name}" for name in properties))
        values = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
        found = [values.get(name, "") for name in properties]
        return found[0] if len(found) == 1 else found

    def write(self, path, text):
        """A file inside."""
        self.run("sh", "-c", 'mkdir -p "$(dirname "$0")" && cat > "$0"', path, stdin=text)

    def until(self, what, reached, limit=90):
        end = time.monotonic() + limit
        while True:
            value = reached()
            if value:
                return value
            if time.monotonic() > end:
                raise AssertionError(f"no {what} within {limit} s\n{self.logs()}")
            time.sleep(0.02)

    def logs(self):
        text = (self.folder / "console").read_text(errors="replace") if (self.folder / "console").exists() else ""
        with contextlib.suppress(Exception):
            text += subprocess.run(self.inside("journalctl", "--no-pager", "-q", "-n", "40"), text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=10).stdout
        return text


def skip_or_fail(what):
    print(f"skipped: {what}")
    sys.exit(1 if os.environ.get("CI") == "true" else SKIP)
