"""What `muster` tells of a kernel's deeds, on a kernel of our own: user-mode Linux as a guest, a process like any other.

Out-of-memory kills in control groups of version 2 (build machines often have the memory controller in version 1), and core dumps
(core_pattern is the whole machine's)."""
import json
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import own_processes  # noqa: E402, F401
import guest  # noqa: E402

BIN = os.environ["MUSTER_BIN"]
# Rank 1 writes into more memory than its group may have.
WORKER = """import os, time
if os.environ["RANK"] == "1":
    open(os.environ["TMPDIR"] + "/ready", "w").close()
    if "HOLD" not in os.environ:
        held = b"x" * (200 << 20)
time.sleep(200)
"""
# Each of the first jobs in a group of its own, below one that limits it.
JOB = r"""
groups=/sys/fs/cgroup
echo +memory > $groups/cgroup.subtree_control
run() {  # NAME OPTION...: in the group $groups/NAME/in
    name=$1
    shift
    mkdir -p $groups/$name/in
    echo +memory > $groups/$name/cgroup.subtree_control
    echo 100M > $groups/$name/memory.max
    sh -c 'echo 0 > '$groups/$name'/in/cgroup.procs && exec "$@"' sh \
        BIN/muster --standalone --nproc-per-node 2 --shutdown-timeout 1 --report /mnt/$name.json "$@" \
        --no-python python3 /mnt/worker.py > /mnt/$name.out 2> /mnt/$name.err
    cat $groups/$name/in/memory.events > /mnt/$name.events
}
run logged
rm /dev/kmsg
run counted
rm -f $TMPDIR/ready
# Again where the agent does not know of the worker yet, until the job is over.
(until [ -e $TMPDIR/ready ] && BIN/muster fault oom rank 1 >> /mnt/fault.out 2>&1 || [ -e /mnt/injected.json ]; do sleep 0.2; done) &
HOLD=1 run injected --allow-faults
wait
ulimit -c unlimited
dump() {  # NAME PATTERN ADDS_PID: in the folder /run/NAME
    mkdir $TMPDIR/$1 /mnt/$1
    cd $TMPDIR/$1
    echo "$2" > /proc/sys/kernel/core_pattern
    echo $3 > /proc/sys/kernel/core_uses_pid
    BIN/muster --standalone --nproc-per-node 2 --shutdown-timeout 1 --report /mnt/$1.json \
        --no-python sh -c '[ $$RANK = 0 ] && exec sleep 200; kill -SEGV $$$$' > /mnt/$1.out 2> /mnt/$1.err
    cp core* /mnt/$1
}
dump plain core 1
dump named $TMPDIR/named/core.%e.%s.%p 0
"""


@unittest.skipUnless(guest.KERNEL or os.environ.get("CI"), "user-mode-linux is not installed")
class MemoryOfVersion2(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="muster-guest-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        (cls.folder / "worker.py").write_text(WORKER)
        cls.said = guest.run(cls.folder, JOB.replace("BIN/", f"{BIN}/"), os.environ["MUSTER_GUEST_REGISTERS"], memory="400M", timeout=550)

    def first(self, name):
        """The first failure of that job's report, and its group's counter."""
        for ending in ("json", "events", "err"):
            if not (self.folder / f"{name}.{ending}").exists():
                self.fail(f"no {name}.{ending}; the guest said:\n{self.said}")
        report = json.loads((self.folder / f"{name}.json").read_text())
        return report["first"], dict(line.split() for line in (self.folder / f"{name}.events").read_text().splitlines())

    def check(self, failure, text):
        self.assertEqual((failure["rank"], failure["cause"]["kind"]), (1, "out_of_memory"))
        self.assertRegex(failure["cause"]["text"], text)
        self.assertIn("SIGKILL", failure["end"]["text"])

    def test_the_kernel_log_tells_what_it_held_and_the_group_its_limit(self):
        failure, events = self.first("logged")
        self.assertEqual(events["oom_kill"], "1")
        self.check(failure, r"^the kernel killed it because memory ran out \(it held \d\d MiB\); the limit is 100 MiB "
                            r"\(/sys/fs/cgroup/logged/memory.max\), peak usage (100|99) MiB: raise it")

    def test_without_the_log_the_counter_of_memory_events_tells_it(self):
        failure, _ = self.first("counted")
        self.check(failure, r"the counter of /sys/fs/cgroup/counted/in; the limit is 100 MiB \(/sys/fs/cgroup/counted/memory.max\)")

    def test_memory_runs_out_on_order(self):
        failure, events = self.first("injected")
        self.check(failure, r"in its own cgroup, and the kernel killed it; its limit was 64 MiB \(/sys/fs/cgroup/injected/muster-fault-\d+/memory.max\), "
                            r"peak usage 6\d MiB; injected by muster fault oom rank 1")
        self.assertEqual(events["oom_kill"], "0")

    def test_a_core_dump_is_named_with_its_path(self):
        for name, pattern in (("plain", r"/run/plain/core\.{pid}"), ("named", r"/run/named/core\.sh\.11\.{pid}")):
            with self.subTest(name=name):
                if not (self.folder / f"{name}.json").exists():
                    self.fail(f"no {name}.json; the guest said:\n{self.said}")
                failure = json.loads((self.folder / f"{name}.json").read_text())["first"]
                self.assertEqual((failure["rank"], failure["end"]["core_dumped"]), (1, True), failure)
                path = failure["cause"]["core_file"]
                self.assertRegex(path, "^" + pattern.format(pid=failure["pid"]) + "$")
                self.assertIn(f"core dump: {path} on guest\n", (self.folder / f"{name}.err").read_text())
                core = (self.folder / name / pathlib.Path(path).name).read_bytes()
                self.assertEqual((core[:4], core[16]), (b"\x7fELF", 4))  # ET_CORE


if __name__ == "__main__":
    unittest.main(verbosity=2)
