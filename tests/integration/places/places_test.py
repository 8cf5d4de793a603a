"""muster under Open MPI's mpirun and MPICH's, in pods of Kubernetes' indexed jobs, and by ssh: what stands in scripts/ for
them, on hosts that are namespaces. mpirun and sshd are the real ones; of Kubernetes the test plays the kubelet, from
job.yaml.
"""
import contextlib
import json
import os
import pathlib
import re
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import hosts  # noqa: E402
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import own_tmpdir  # noqa: E402, F401
from command_lines import CommandLines  # noqa: E402
from line_times import without_times  # noqa: E402

MUSTER = pathlib.Path(os.environ["MUSTER_BIN"]) / "muster"
SCRIPTS = pathlib.Path(__file__).resolve().parents[3] / "scripts"
SAY = "echo rank $RANK of $WORLD_SIZE on $(hostname)"
STAY = "echo rank $RANK of $WORLD_SIZE on $(hostname); exec sleep 600"


class Places(unittest.TestCase):
    names = ("n1", "n2", "n3")

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="muster-places-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.key = secrets.token_hex(32)  # no host finds one at home that the others have
        self.hosts = self.enterContext(hosts.Hosts(folder.name, self.names))
        for name in self.names:
            self.hosts.know(name)

    def enterContext(self, context):  # Python 3.11 has it
        entered = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return entered

    def begin(self, name, *words, **variables):
        process = self.hosts.begin(name, *words, **variables)
        self.addCleanup(process.stdout.close)
        self.addCleanup(lambda: (process.poll() is None and process.kill(), process.wait()))
        return process

    def ended(self, process, code=0, limit=150):
        text = process.communicate(timeout=limit)[0]
        self.assertEqual(process.returncode, code, text)
        return text

    def lines_until(self, process, pattern, count):
        lines = []
        while count > 0:
            lines.append(process.stdout.readline())
            self.assertTrue(lines[-1], "".join(lines))
            count -= bool(re.search(pattern, lines[-1]))
        return "".join(lines)

    @contextlib.contextmanager
    def no_key_in_command_lines(self, *programs):
        """Meanwhile these programs ran, and no process had the key among its words. Gives the words by which a worker waits until all
        have been looked at."""
        with CommandLines(self.key, programs=programs, told=self.folder / f"seen-{secrets.token_hex(4)}") as lines:
            yield f"; {lines.wait}"
        self.assertEqual((lines.found, lines.unseen), (set(), set()))

    def assert_ranks(self, text, expected):
        self.assertEqual(sorted(re.findall(r"rank \d of \d on [\w-]+", text)), expected, text)


class Mpi(Places):
    def mpirun(self, *words, where="n1", **variables):
        """The real mpirun; what takes ssh's place enters the other host's namespaces, with no variable of this one's."""
        mpirun = f"mpirun --allow-run-as-root --mca plm_rsh_agent {self.agent('agent')}"
        return self.begin(where, *words, MPIRUN=mpirun, MUSTER=str(MUSTER), WORKERS="1", **variables)

    def agent(self, name):
        """In ssh's place: `agent [-OPTION...] HOST WORD...`"""
        agent = self.folder / name
        agent.write_text('#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nhost=$1\nshift\n'
                         f'exec nsenter -t "$(cat {self.folder}/"$host".pid)" --net --uts --mount '
                         f'env -i PATH="$PATH" HOME="{self.folder}/$host.home" sh -c "$*"\n')
        agent.chmod(0o755)
        return agent

    def hydra(self, *words):
        """MPICH's mpiexec, which passes on all variables."""
        return self.begin("n1", "mpiexec.hydra", "-launcher", "ssh", "-launcher-exec", self.agent("ssh"), "-hosts", "n1,n2,n3",
                          "-ppn", "1", "-n", "3", *words, MUSTER_KEY=self.key)

    def hydra_job(self, *words, then=""):
        return self.hydra(MUSTER, "--nproc-per-node=1", *words, "--no-python", "sh", "-c", SAY + then)

    def test_mpich_tells_the_places_and_no_more(self):
        with self.no_key_in_command_lines("mpiexec.hydra", "hydra_pmi_proxy", "muster") as wait:
            text = self.ended(self.hydra_job("--rdzv-endpoint=n1:29400", "--rdzv-id=mine", then=wait))
        self.assert_ranks(text, [f"rank {i} of 3 on n{i + 1}" for i in range(3)])
        text = self.ended(self.hydra_job("--rdzv-endpoint=n1:29400"), code=2)
        self.assertIn("muster: --rdzv-id is missing: this mpirun reports no job id", text)

    def assert_tested_links(self, text):
        """Of muster doctor on three hosts, without looks at the hosts themselves."""
        self.assertEqual(sorted(re.findall(r"^(n\d): \d+ checks in \d+ ms: 1 info$", text, re.MULTILINE)), ["n1", "n2", "n3"], text)
        self.assertEqual(len(re.findall(r"^info: links: \d pairs: ", text, re.MULTILINE)), 3, text)

    def test_doctor_between_the_hosts_of_mpirun(self):
        # On a busy host a link passes for lossy, and three nodes together for slow.
        (self.folder / "limits").write_text("lost-permille = 1000\nlink-slow-percent = 0\n")
        doctor = f"{MUSTER} doctor --level 2 --limits {self.folder}/limits --skip names,network,firewall,system,pci,kernel-log,disks,gpus,settings"
        text = self.ended(self.mpirun("sh", "-c", f"exec $MPIRUN --host n1,n2,n3 -np 3 -x MUSTER_KEY {doctor}", MUSTER_KEY=self.key))
        self.assert_tested_links(text)
        text = self.ended(self.hydra(*doctor.split(), "--", "--rdzv-endpoint=n1:29400"))
        self.assert_tested_links(text)

    def test_one_process_on_each_host(self):
        for variables in ({}, {"MUSTER_KEY": self.key}):  # the script's key, and the user's
            with self.subTest(**variables), self.no_key_in_command_lines("mpirun", "orted", "muster") as wait:
                text = self.ended(self.mpirun(SCRIPTS / "mpi/run.sh", "n1,n2,n3", "--no-python", "sh", "-c", SAY + wait, **variables))
            self.assert_ranks(text, [f"rank {i} of 3 on n{i + 1}" for i in range(3)])
            self.assertNotIn("bound muster", text)

    def test_mpirun_elsewhere_is_one_line_and_an_endpoint_helps(self):
        text = self.ended(self.mpirun(SCRIPTS / "mpi/run.sh", "n2,n3", "--no-python", "sh", "-c", SAY), code=2)
        self.assertIn("--rdzv-endpoint is missing: mpirun runs on 10.77.0.1 and its first process on another host", text)
        text = self.ended(self.mpirun(SCRIPTS / "mpi/run.sh", "n2,n3", "--rdzv-endpoint=n2:29400", "--no-python", "sh", "-c",
                                      SAY))
        self.assert_ranks(text, ["rank 0 of 2 on n2", "rank 1 of 2 on n3"])

    def test_several_processes_on_a_host_and_cpus_that_are_taken_away(self):
        command = (f'exec $MPIRUN --host n1:2,n2:2 --oversubscribe -np 4 -x MUSTER_KEY {MUSTER} --no-python sh -c "{SAY}"')
        text = self.ended(self.mpirun("sh", "-c", command.replace("$RANK", r"\$RANK").replace("$WORLD", r"\$WORLD")
                                      .replace("$(", r"\$("), MUSTER_KEY=self.key))
        self.assert_ranks(text, ["rank 0 of 2 on n1", "rank 1 of 2 on n2"])
        self.assertEqual(text.count("mpirun started another muster on this host"), 2, text)


class Kubernetes(Places):
    names = ("train-0", "train-1", "train-2", "other")

    def setUp(self):
        super().setUp()
        text = (SCRIPTS / "kubernetes/job.yaml").read_text()
        found = lambda pattern: re.search(pattern, text).group(1)
        self.assertEqual(int(found(r"completions: (\d+)")), int(found(r'value: "(\d+)"')))
        self.domain = f"{found('subdomain: (.*?) ')}.default.svc.cluster.local"
        self.nodes = found(r'name: MUSTER_NNODES .*\n +value: "(\d+)"')
        self.command = [MUSTER, *json.loads(found("command: (.*)"))[1:]]

    def know(self, name, pods, at=None):
        """As the kubelet writes it, and as the cluster's DNS would answer. `at`: where pods are that have no host of their
        name."""
        lines = ["# Kubernetes-managed hosts file.", "127.0.0.1\tlocalhost"]
        lines += [f"{self.hosts.addresses[(at or {}).get(pod, pod)]}\t{pod}.{self.domain}\t{pod}" for pod in pods]
        hosts.rewrite(self.folder / f"{name}.hosts", lines)

    def pod(self, index, *words, at=None, name=None):
        """muster is its process number 1. `name`: its host name, where it is not the pod's."""
        name = name or f"train-{index}"
        return self.begin(at or f"train-{index}", "unshare", "--pid", "--fork", "--mount-proc", "--kill-child=SIGKILL",
                          *self.command, "--nproc-per-node=1", *words, HOSTNAME=name, JOB_COMPLETION_INDEX=str(index),
                          MUSTER_NNODES=self.nodes, KUBERNETES_SERVICE_HOST="10.96.0.1", MARK=str(self.folder),
                          MUSTER_KEY=self.key)

    def test_pods_meet_when_their_names_can_be_looked_up(self):
        pods_names = self.names[:3]
        for name in pods_names:
            self.know(name, [name])
        pods = [self.pod(index, "--no-python", "sh", "-c", STAY) for index in (2, 1)]
        for pod in pods:  # the name of pod 0 is not there yet, nor is pod 0
            self.lines_until(pod, "train-0.*did not answer .*(Name or service|name resolution)", 1)
        pods.append(self.pod(0, "--no-python", "sh", "-c", STAY))
        for name in pods_names:
            self.know(name, [name] + [other for other in pods_names if other != name])
        text = "".join(self.lines_until(pod, "rank . of 3", 1) for pod in pods)
        self.assert_ranks(text, [f"rank {i} of 3 on train-{i}" for i in range(3)])
        # A pod that is deleted gets SIGTERM in its first process, and leaves nothing.
        for pod in pods:
            inner = pathlib.Path(f"/proc/{pod.pid}/task/{pod.pid}/children").read_text().split()[0]
            os.kill(int(inner), signal.SIGTERM)
        for pod in pods:
            self.assertIn("stopped by SIGTERM", pod.communicate(timeout=120)[0])
        hosts.wait_for("end of all processes", lambda: not hosts.processes_with(f"MARK={self.folder}"))

    def test_pod_0_comes_back_elsewhere(self):
        """With another address under its old name, as after the loss of its node; the others wait for it."""
        pods_names = self.names[:3]
        for name in pods_names:
            self.know(name, [name] + [other for other in pods_names if other != name])
        pods = [self.pod(index, "--no-python", "sh", "-c", STAY) for index in range(3)]
        for pod in pods:
            self.lines_until(pod, "rank . of 3", 1)
        pods[0].kill()
        for name in (*pods_names[1:], "other"):
            self.know(name, pods_names, at={"train-0": "other"})
        pods[0] = self.pod(0, "--no-python", "sh", "-c", STAY, at="other")
        text = "".join(self.lines_until(pod, "rank . of 3", 1) for pod in pods)
        self.assert_ranks(text, ["rank 0 of 3 on other", "rank 1 of 3 on train-1", "rank 2 of 3 on train-2"])

    def test_pods_on_their_hosts_networks_take_their_places_from_their_numbers(self):
        """hostNetwork: the host's name in the place of the pod's, so that the meeting place has to be said."""
        there = ("--rdzv-endpoint=10.77.0.1:29400", "--rdzv-id=mine")
        pods = [self.pod(index, *there, "--no-python", "sh", "-c", SAY, name=f"node{index}") for index in (2, 1, 0)]
        self.assert_ranks("".join(map(self.ended, pods)), [f"rank {i} of 3 on train-{i}" for i in range(3)])
        text = self.ended(self.pod(1, "--no-python", "true", name="node1"), code=2)
        self.assertRegex(without_times(text), r"\Amuster: HOSTNAME: got 'node1', but pod 1 of an indexed job .*write --rdzv-endpoint.*\n\Z")

    def test_a_pod_without_a_name_for_the_others_is_one_line(self):
        (self.folder / "train-1.hosts").write_text("127.0.0.1 localhost\n10.77.0.2 train-1\n")
        text = self.ended(self.pod(1, "--no-python", "true"), code=2)
        self.assertRegex(without_times(text), r"\Amuster: --rdzv-endpoint is missing: pod 1 of train has no name.*set subdomain.*\n\Z")


class NameService(Places):
    def test_who_is_told_to_be_the_host_serves_before_its_name_is_looked_up(self):
        silent = "import socket, time; s = socket.socket(2, 2); s.bind(('10.77.0.2', 53)); print('up', flush=True); time.sleep(600)"
        self.lines_until(self.begin("n2", sys.executable, "-c", silent), "up", 1)
        (self.folder / "resolv.conf").write_text("nameserver 10.77.0.2\n")

        def time_until_it_serves(port):
            began = time.monotonic()
            self.begin("n1", MUSTER, "--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=alias:{port}", "--rdzv-conf=is_host=1",
                       "--rdzv-id=mine", "--no-python", "true")
            hosts.wait_for("port that serves", lambda: subprocess.run(
                self.hosts.command("n1", "sh", "-c", f"ss -Htln sport = :{port} | grep -q ."), check=False).returncode == 0)
            return time.monotonic() - began
        # The C library gives up after ten seconds, and a node that was not told waits for that each time.
        self.assertTrue(any(time_until_it_serves(port) < 9 for port in range(29400, 29405)))


class Ssh(Places):
    def setUp(self):
        super().setUp()
        key = self.folder / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        (self.folder / "sshd.conf").write_text(
            f"HostKey {key}\nAuthorizedKeysFile {key}.pub\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nPidFile none\n"
            "AcceptEnv MARK\n")
        self.keys = self.folder / "keys"  # where a host's mktemp makes the file of the key
        self.keys.mkdir()
        self.mark = f"MARK={self.folder}"
        self.variables = {"SSH": f"ssh -i {key} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR "
                                 "-o SendEnv=MARK -F none", "MUSTER": str(MUSTER), "WORKERS": "1", "MARK": str(self.folder)}
        for name in self.names:
            self.begin(name, "sh", "-c", f"mkdir -p /run/sshd && exec /usr/sbin/sshd -D -e -f {self.folder}/sshd.conf "
                       f"-o 'SetEnv=HOME={self.hosts.home(name)} TMPDIR={self.keys}'")
            hosts.wait_for("sshd", lambda: subprocess.run(
                self.hosts.command(name, "sh", "-c", "ss -Htln sport = :22 | grep -q ."), check=False).returncode == 0)

    def run_script(self, *words, hosts="n1 n2 n3", **variables):
        return self.begin("n1", SCRIPTS / "ssh/run.sh", hosts, *words, **self.variables, **variables)

    def kill_ssh(self, *names):
        """Those of this script that lead to these hosts."""
        for pid in hosts.processes_with(self.mark):
            with contextlib.suppress(OSError):  # of the script's other processes one may end meanwhile
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
                if words[0] == "ssh" and set(words) & set(names):
                    os.kill(pid, signal.SIGKILL)

    def test_a_loop_over_hosts_is_one_job(self):
        for variables in ({}, {"MUSTER_KEY": self.key}):  # the script's key, and the user's
            with self.subTest(**variables), self.no_key_in_command_lines("ssh", "muster") as wait:
                text = self.ended(self.run_script("--no-python", "sh", "-c", SAY + " and \"a  b\"" + wait, **variables))
            self.assert_ranks(text, [f"rank {i} of 3 on n{i + 1}" for i in range(3)])
            self.assertIn("on n1 and a  b", text)
            self.assertEqual(list(self.keys.iterdir()), [])
        text = self.ended(self.run_script("--no-python", "sh", "-c", "exit $((RANK == 1 ? 7 : 0))"), code=7)
        self.assertNotIn("still run", text)

    def test_a_host_that_fails_ends_the_others(self):
        script = self.run_script("--no-python", "sh", "-c", STAY, hosts="n1 nowhere n3", PATIENCE="1")
        text = self.ended(script, code=255)  # ssh's own; the others would wait for it for ten minutes
        self.assertIn("run.sh: nowhere has ended with 255", text)
        self.assertIn("2 of 3 hosts still run; they are ended, because nowhere has ended with 255", text)
        hosts.wait_for("end of all processes", lambda: not hosts.processes_with(self.mark))
        script = self.run_script("--nnodes=1:3", "--no-python", "sh", "-c", STAY, PATIENCE="1")
        self.lines_until(script, "rank . of 3", 3)
        self.kill_ssh("n1")
        self.assertIn("run.sh: n1 has ended with 137", self.ended(script, code=128 + signal.SIGKILL))
        hosts.wait_for("end of all processes", lambda: not hosts.processes_with(self.mark))

    def test_hosts_whose_ssh_hangs_hold_up_no_other_and_no_key_stays(self):
        """n3 before it has the key, n2 with the key and before its muster starts."""
        ssh = self.folder / "ssh"
        ssh.write_text('#!/bin/sh\ncase " $* " in *" n3 "* | *" -tt n2 "*) exec sleep 600 ;; esac\n' f'exec {self.variables["SSH"]} "$@"\n')
        ssh.chmod(0o755)
        self.variables["SSH"] = str(ssh)
        script = self.run_script("--no-python", "sh", "-c", STAY)
        self.lines_until(script, "1 of 3 nodes", 1)
        hosts.wait_for("key of n2 alone", lambda: len(list(self.keys.glob("tmp.*"))) == 1)
        script.terminate()
        self.ended(script, code=128 + signal.SIGTERM)
        hosts.wait_for("end of all processes", lambda: not hosts.processes_with(self.mark))
        self.assertEqual(list(self.keys.iterdir()), [])

    def test_the_end_of_the_script_is_the_end_of_the_job(self):
        for how in (signal.SIGTERM, signal.SIGKILL):
            with self.subTest(how=how.name):
                script = self.run_script("--no-python", "sh", "-c", STAY)
                self.lines_until(script, "rank . of 3", 3)
                script.send_signal(how)
                if how == signal.SIGKILL:  # whoever ends it so ends its session's ssh too, as a closed terminal does
                    self.kill_ssh(*self.names)
                hosts.wait_for("end of all processes", lambda: not hosts.processes_with(self.mark))


class Scripts(unittest.TestCase):
    """What they do before anything is started: in the place of srun stands a program that shows its environment."""

    def run_script(self, script, *words, **variables):
        with tempfile.TemporaryDirectory(prefix="muster-places-") as folder:
            srun = pathlib.Path(folder) / "srun"
            srun.write_text("#!/bin/sh\nenv\n")
            srun.chmod(0o755)
            kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "SRUN_"))}
            return subprocess.run(["bash", str(SCRIPTS / script), *words], text=True, capture_output=True, timeout=60,
                                  env={**kept, "PATH": f"{folder}:{os.environ['PATH']}", **variables})

    def test_slurms_hand_over_cpus_for_each_task_where_some_were_asked_for(self):
        for name in ("fixed", "elastic", "requeue"):
            # srun takes no empty number.
            self.assertNotIn("SRUN_CPUS_PER_TASK", self.run_script(f"slurm/{name}.sh", "x").stdout)
            self.assertIn("SRUN_CPUS_PER_TASK=64\n", self.run_script(f"slurm/{name}.sh", "x", SLURM_CPUS_PER_TASK="64").stdout)

    def test_hosts_as_ssh_takes_them_have_one_meeting_place(self):
        """In the place of ssh stands a program that shows what it is to run on the host."""
        for host, place, between in (("n1", "n1", "\n"), ("me@n1", "n1", " "), ("fd00::1", "[fd00::1]", "\t"),
                                     ("me@fd00::1", "[fd00::1]", "  ")):
            with self.subTest(host=host), tempfile.TemporaryDirectory(prefix="muster-places-") as folder:
                ssh = pathlib.Path(folder) / "ssh"
                ssh.write_text('#!/bin/sh\ncase $1 in -tt) echo "$2 $3" ;; *) echo file ;; esac\n')
                ssh.chmod(0o755)
                done = self.run_script("ssh/run.sh", f"{host}{between}me@n2", "x", SSH=str(ssh), PORT="29400")
                self.assertEqual(done.returncode, 0, done.stderr)
                commands = {words[0]: words for words in map(shlex.split, done.stdout.splitlines())}
                self.assertEqual(sorted(commands), sorted([host, "me@n2"]), done.stdout)
                for words in commands.values():
                    self.assertIn(f"--rdzv-endpoint={place}:29400", words)

    def test_those_without_a_scheduler_tell_what_they_want(self):
        for script, *words in (("mpi/run.sh",), ("mpi/run.sh", "n1"), ("ssh/run.sh",), ("ssh/run.sh", "n1"),
                               ("ssh/run.sh", "", "x"), ("ssh/run.sh", " \n", "x")):
            with self.subTest(script, words=words):
                done = self.run_script(script, *words)
                self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
                self.assertIn("PROGRAM [ARGUMENTS]", done.stderr)


if __name__ == "__main__":
    if missing := hosts.missing("mpirun", "mpiexec.hydra", "sshd", "ssh-keygen", "ss"):
        print(f"skipped: needs {', '.join(missing)}")
        sys.exit(1 if os.environ.get("CI") == "true" else 77)
    unittest.main(verbosity=2)
