"""muster and musterd as units of a real systemd (booted.py), as an administrator would have them: the agent here, the daemon
in daemon_units.py."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import booted
from daemon_units import DaemonUnits
from units_case import ALONE, AT_MUSTERD, STAYING, Booted


class Units(DaemonUnits, Booted):
    def test_a_stop_tells_the_workers_and_leaves_no_process(self):
        self.systemd.systemctl("start", "musterd.service")
        agent = self.job("stopped", STAYING + "shutdown-timeout = 60\n")
        self.until_workers(agent)
        self.systemd.systemctl("stop", agent)
        self.assertEqual(self.processes(agent), {})
        self.assertEqual(len(self.until_said("was told", _SYSTEMD_UNIT=agent)), 2)
        self.systemd.systemctl("stop", "musterd.service", "musterd.socket")
        self.assertEqual(self.systemd.show("musterd.service", "ActiveState", "Result"), ["inactive", "success"])
        self.assertEqual(self.systemd.run("sh", "-c", "pgrep -c muster; true").stdout.strip(), "0")

    def test_a_stop_waits_as_long_as_the_job_says(self):
        self.drop_in("muster-agent@.service", "[Service]\nTimeoutStopSec=1\n")
        slow = AT_MUSTERD + "shutdown-timeout = 30\nprogram = /bin/sh\n"
        slow += "arguments = -c 'trap \"sleep 2; echo $RANK saved; exit 0\" TERM; echo ready; while :; do sleep 0.05; done'\n"
        self.systemd.systemctl("start", "musterd.service")
        agent = self.job("slow", slow)
        self.until_said("ready", _SYSTEMD_UNIT=agent, MUSTER_RANK="1")
        self.systemd.systemctl("stop", agent)
        self.assertEqual(len(self.messages(_SYSTEMD_UNIT=agent, MUSTER_STREAM="stdout", MUSTER_RANK="1")), 2)
        self.assertEqual(self.systemd.show(agent, "Result"), "success")

    def test_an_agent_starts_behind_what_its_workers_need_and_stops_before_it_goes(self):
        after = self.systemd.show(self.job("ordered", ALONE, start=False), "After").split()
        for needed in ("network-online.target", "remote-fs.target", "nss-user-lookup.target", "nvidia-persistenced.service",
                       "nvidia-fabricmanager.service"):
            self.assertIn(needed, after)

    def test_the_kill_of_an_agent_leaves_no_worker_and_it_comes_back(self):
        self.drop_in("muster-agent@.service", "[Service]\nRestartSec=100ms\n")
        self.systemd.systemctl("start", "musterd.service")
        agent = self.job("killed", STAYING)
        self.until_workers(agent)
        before = set(self.processes(agent))
        self.systemd.run("kill", "-KILL", self.main_pid(agent))
        self.systemd.until("a new agent", lambda: self.systemd.show(agent, "NRestarts") == "1")
        self.until_workers(agent)
        self.assertEqual(before & set(self.processes(agent)), set())

    def test_records_have_job_round_and_rank(self):
        self.systemd.systemctl("start", "musterd.service")
        agent = self.job("told", STAYING)
        for rank in ("0", "1"):
            said = self.until_said("is ready", MUSTER_JOB="told", MUSTER_ROUND="0", MUSTER_RANK=rank)
            self.assertEqual([record["MESSAGE"] for record in said], [f"rank {rank} of 2 is ready"])
            self.assertEqual(said[0]["_SYSTEMD_UNIT"], agent)
            self.assertEqual(said[0]["MUSTER_LOCAL_RANK"], rank)
            self.until_said("on stderr", MUSTER_RANK=rank, MUSTER_STREAM="stderr")
        self.assertTrue(self.until_said("sealed", _SYSTEMD_UNIT="musterd.service", MUSTER_JOB="told", MUSTER_ROUND="0"))
        ours = [record for record in self.records(_SYSTEMD_UNIT=agent, MUSTER_NODE_RANK="0") if "MUSTER_RANK" not in record]
        self.assertTrue(all(record["SYSLOG_IDENTIFIER"] == "muster" for record in ours))
        workers = self.until_workers(agent)
        self.systemd.run("kill", "-KILL", min(workers))
        # The report's lines are records of the job as well.
        self.until_said("SIGKILL", _SYSTEMD_UNIT=agent, MUSTER_JOB="told", PRIORITY="5")

    def test_systemd_starts_again_what_muster_says_is_worth_it(self):
        self.drop_in("muster-agent@.service", "[Service]\nRestartSec=100ms\n")
        for code, state, result in (("75", None, None), ("76", "inactive", "success"), ("77", "failed", "exit-code"),
                                    ("1", "failed", "exit-code")):
            unit = self.job(f"leaves{code}", f"program = /bin/sh\narguments = -c 'exit {code}'\n", start=False)
            self.systemd.systemctl("start", unit, check=False)
            if state is None:
                self.systemd.until("a restart", lambda unit=unit: int(self.systemd.show(unit, "NRestarts")) >= 1)
                self.systemd.systemctl("stop", unit)
                continue
            self.systemd.until(f"an end by {code}", lambda unit=unit, state=state:
                               self.systemd.show(unit, "ActiveState") == state)
            self.assertEqual(self.systemd.show(unit, "Result", "NRestarts"), [result, "0"], code)

    def test_a_unit_runs_workers_as_root_only_if_it_is_told_to(self):
        unit = self.job("root", ALONE, start=False, allow_root=False)
        self.systemd.systemctl("start", unit, check=False)
        self.assertEqual(self.systemd.show(unit, "ActiveState", "ExecMainStatus", "NRestarts"), ["failed", "78", "0"])
        said = [record["MESSAGE"] for record in self.records(_PID=self.systemd.show(unit, "ExecMainPID"), SYSLOG_IDENTIFIER="muster")]
        self.assertEqual(len(said), 1, said)
        self.assertIn("would run workers as root; set User= in a drop-in", said[0])
        # A user in a drop-in, and a root shell beside any unit, need no word.
        self.drop_in("muster-agent@.service", "[Service]\nUser=65534\n")
        self.systemd.systemctl("reset-failed", unit)
        self.systemd.systemctl("start", unit)
        self.until_workers(unit)
        self.systemd.run(f"{booted.BIN}/muster", "--no-python", "true")

    def test_a_unit_keeps_the_kernel_from_its_workers(self):
        self.job("shut", "program = /bin/sh\narguments = -c 'for f in /proc/sys/kernel/core_pattern /usr/lib/os-release; do "
                 "(: >> $f) 2>/dev/null && echo $f is open; done; (: >> /tmp/x) && echo looked; exit 0'\n")
        # By its job: where the journal reads this after the unit's end, it does not know the unit.
        said = self.until_said("looked", MUSTER_JOB="shut")
        self.assertEqual(len(said), 1)
        self.assertEqual([line for line in self.messages(MUSTER_JOB="shut") if "is open" in line], [])

    def test_two_units_of_one_job_are_one_too_many(self):
        self.systemd.systemctl("start", "musterd.service")
        self.two_units_of_one_job(STAYING, "one", "two")

    def test_two_units_of_one_job_of_one_node_are_one_too_many(self):
        self.two_units_of_one_job(ALONE, "alone", "again")

    def two_units_of_one_job(self, conf, one, other):
        first = self.job(one, conf + "rdzv-id = same\n")
        self.until_workers(first)
        second = self.job(other, conf + "rdzv-id = same\n", start=False)
        self.systemd.systemctl("start", second, check=False)
        self.assertEqual(self.systemd.show(second, "ActiveState", "ExecMainStatus"), ["failed", "78"])
        said = [record["MESSAGE"] for record in self.records(_PID=self.systemd.show(second, "ExecMainPID"), SYSLOG_IDENTIFIER="muster")]
        self.assertEqual(len(said), 1, said)
        self.assertIn(f"job 'same' runs on this host already, in process {self.main_pid(first)} of {first}", said[0])
        self.until_workers(first)

    def test_a_wrong_file_ends_the_unit_with_one_line_that_names_its_place(self):
        unit = self.job("wrong", "nnodes = 1\nnproc-per-nod = 2\nprogram = /bin/true\n", start=False)
        self.systemd.systemctl("start", unit, check=False)
        self.assertEqual(self.systemd.show(unit, "ActiveState", "ExecMainStatus", "NRestarts"), ["failed", "2", "0"])
        said = self.messages(_SYSTEMD_UNIT=unit)
        self.assertEqual(len(said), 1, said)
        self.assertIn("wrong.conf:2: unknown key 'nproc-per-nod'; the nearest known key is nproc-per-node", said[0])
        self.daemon_conf("log-level = info\nstat = memory\n")
        self.systemd.systemctl("start", "musterd.service", check=False)
        self.until_said("musterd.conf:2: unknown key 'stat'; the nearest known key is state",
                        _SYSTEMD_UNIT="musterd.service")
        self.assertEqual(self.systemd.show("musterd.service", "NRestarts"), "0")

    def test_a_low_port_without_the_right_is_one_line(self):
        for command in (f"{booted.BIN}/musterd --port 80",
                        f"{booted.BIN}/muster --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:80 --nnodes 1:2 /bin/true"):
            done = self.systemd.run("sh", "-c", f"HOME=/nonexistent exec setpriv --reuid 65534 --clear-groups {command}", check=False)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (78, 1), done.stderr)
            self.assertIn("AmbientCapabilities=CAP_NET_BIND_SERVICE", done.stderr)


class Hybrid(Booted):
    """The layout of control groups that has systemd's own v1 hierarchy beside v2."""
    layout = "hybrid"
    groups = "/sys/fs/cgroup/unified"

    def test_each_worker_has_a_group_and_a_stop_leaves_no_process(self):
        self.systemd.systemctl("start", "musterd.service")
        agent = self.job("hybrid", STAYING)
        self.until_workers(agent)
        self.systemd.systemctl("stop", agent)
        self.assertEqual(self.processes(agent), {})


if __name__ == "__main__":
    missing = booted.missing_parts()
    if missing:
        booted.skip_or_fail(f"a systemd of its own needs {', '.join(missing)}")
    unittest.main(verbosity=2)
