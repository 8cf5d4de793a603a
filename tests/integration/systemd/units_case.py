"""What the tests of the units share: one systemd for all tests of a class, jobs, their processes and their records."""
import json
import os
import pathlib
import tempfile
import unittest

import booted

BUILD = pathlib.Path(os.environ["MUSTER_BUILD"])
STAY = """#!/bin/sh
# A worker that ends when it is told, and leaves a process in a session of its own that does not.
trap 'echo rank $RANK was told; exit 0' TERM
setsid sh -c 'trap "" TERM; while :; do sleep 1; done' &
echo rank $RANK of $WORLD_SIZE is ready
echo rank $RANK says it on stderr >&2
while :; do sleep 0.05; done
"""
AT_MUSTERD = "rdzv-backend = c10d\nrdzv-endpoint = 127.0.0.1:29400\nnproc-per-node = 2\nlog-level = info\n"
STAYING = AT_MUSTERD + "program = /run/test/shared/stay.sh\n"
ALONE = "nproc-per-node = 2\nprogram = /run/test/shared/stay.sh\n"


class Booted(unittest.TestCase):
    layout = "unified"
    groups = "/sys/fs/cgroup"

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="muster-systemd-")
        cls.addClassCleanup(folder.cleanup)
        cls.systemd = booted.Systemd(folder.name, BUILD, cls.layout)
        stay = cls.systemd.folder / "stay.sh"
        stay.write_text(STAY)
        stay.chmod(0o755)
        cls.systemd.__enter__()
        cls.addClassCleanup(cls.systemd.close)

    def setUp(self):
        self.units = []

    def tearDown(self):
        names = [*self.units, "musterd.service", "musterd.socket"]
        self.systemd.systemctl("stop", *names, check=False)
        self.systemd.run("sh", "-c", "rm -rf /run/test/units/*.d /var/lib/private/muster/*")
        self.systemd.systemctl("daemon-reload")
        self.systemd.systemctl("reset-failed")

    def drop_in(self, unit, text):
        self.systemd.write(f"{booted.UNITS}/{unit}.d/test.conf", text)
        self.systemd.systemctl("daemon-reload")

    def daemon_conf(self, text):
        """Until the test's end; before the daemon is started."""
        self.systemd.write(f"{booted.ETC}/muster/musterd.conf", text)
        self.addCleanup(self.systemd.write, f"{booted.ETC}/muster/musterd.conf", "first-start = yes\n")

    def job(self, name, conf, start=True, allow_root=True):
        conf += "allow-root = yes\n" if allow_root else ""
        self.systemd.write(f"{booted.ETC}/muster/{name}.conf", conf)
        unit = f"muster-agent@{name}.service"
        self.units.append(unit)
        if start:
            self.systemd.systemctl("start", unit)
        return unit

    def records(self, **fields):
        """What the journal has, all that was sent before included."""
        matches = [f"{name}={value}" for name, value in fields.items()]
        self.systemd.run("journalctl", "--sync")
        text = self.systemd.run("journalctl", "-q", "-o", "json", *matches, check=False).stdout
        return [json.loads(line) for line in text.splitlines()]

    def messages(self, **fields):
        return [record["MESSAGE"] for record in self.records(**fields)]

    def until_said(self, words, **fields):
        return self.systemd.until(f"'{words}'", lambda: [record for record in self.records(**fields)
                                                         if words in record["MESSAGE"]])

    def processes(self, unit):
        """pid -> control group below the unit's, of all that belongs to it."""
        group = f"{self.groups}/muster.slice/{unit}"
        text = self.systemd.run("sh", "-c", f'cd "{group}" 2>/dev/null && '
                                "find . -name cgroup.procs | while read f; do sed \"s|$| $f|\" $f; done",
                                check=False).stdout
        return {int(pid): path[2:-len("/cgroup.procs")] for pid, path in (line.split() for line in text.splitlines())}

    def until_workers(self, unit, count=2):
        """The pids of its workers' shells, each of which has a group of its own with what it started."""
        def found():
            by_group = {}
            for pid, group in self.processes(unit).items():
                if "worker-" in group:
                    by_group.setdefault(group, []).append(pid)
            whole = [pids for pids in by_group.values() if len(pids) >= 2]
            return {min(pids) for pids in whole} if len(whole) == count else None
        return self.systemd.until("workers", found)

    def main_pid(self, unit):
        return self.systemd.show(unit, "MainPID")
