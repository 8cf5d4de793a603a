"""Who may take part, where the job has a secret."""
import contextlib
import hmac
import json
import os
import pathlib
import re
import signal
import subprocess
import unittest
import urllib.request

from drain_test import drain, node_name
from job import BIN, WORKERS, Job, wait_for
from nodes_test import job_status

FAST = ("--lease", 5)  # a process of a busy machine may stand still for seconds
# An address of this host that is not loopback; empty: it has none.
OUTER = next((address for address in subprocess.run(["hostname", "-I"], capture_output=True, text=True).stdout.split()
              if ":" not in address), "")


def secret_file(job, name, content, mode=0o600):
    path = job.directory / name
    path.write_text(content)
    path.chmod(mode)
    return {"MUSTER_SECRET_FILE": str(path)}


def forms_of(secret, job):
    """The secret, and the keys of this job and of the daemon that follow from it, as text."""
    def key(name):
        extracted = hmac.digest(b"muster job", secret.encode(), "sha256")
        return hmac.digest(extracted, name.encode() + b"\x01", "sha256")
    return [secret, key(job.id).hex(), key("").hex(), hmac.digest(key(""), b"status\x01", "sha256").hex()]


def listeners(job):
    """The addresses at which processes of the job listen."""
    lines = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout.splitlines()
    tagged = {f"pid={pid}," for pid in job.processes()}
    return [line.split()[3] for line in lines if any(pid in line for pid in tagged)]


def is_loopback(address):
    return address.startswith(("127.", "[::1]"))


def named(job):
    """By its own name, the endpoint is where other hosts can reach it."""
    return ("--rdzv-endpoint", f"{os.uname().nodename}:{job.port}")


def auth_of(job):
    return json.loads(status_text(job))["auth"]


def status_text(job):
    with urllib.request.urlopen(f"http://127.0.0.1:{job.port}/status", timeout=60) as page:
        return page.read()


class Secret(unittest.TestCase):
    def test_a_job_of_one_node_listens_on_loopback_alone(self):
        with Job() as job:
            node = job.node(*named(job), "--report", job.directory / "report", nnodes="1", nproc=1)
            worker = job.round(0, 1)[0]
            found = listeners(job)
            self.assertGreaterEqual(len(found), 2, "its daemon and its store")
            self.assertEqual([address for address in found if not is_loopback(address)], [])
            self.assertEqual(auth_of(job), "local users")
            environment = pathlib.Path(f"/proc/{worker['pid']}/environ").read_bytes().split(b"\0")
            self.assertIn(b"MASTER_ADDR=127.0.0.1", environment)
            job.finish()
            job.expect_exit(node, 0)
            self.assertEqual(json.loads((job.directory / "report").read_text())["auth"], "local users")
            self.assertFalse((job.directory / ".muster").exists())
        with Job() as job:
            node = job.spawn("muster", "--nnodes=1", "--master-addr", os.uname().nodename, "--master-port", job.port, "--no-python",
                             WORKERS / "elastic", "--until", "done")
            job.round(0, 1)
            self.assertEqual([address for address in listeners(job) if not is_loopback(address)], [])
            job.finish()
            job.expect_exit(node, 0)

    def test_nodes_with_one_home_directory_get_a_key_by_themselves(self):
        with Job() as job:
            nodes = [job.node(*named(job), "--report", job.directory / f"report{i}", nproc=1) for i in range(2)]
            job.round(0, 2)
            self.assertEqual(auth_of(job), "key")
            self.assertTrue([address for address in listeners(job) if not is_loopback(address)])
            key = (job.directory / ".muster/key").read_text().strip()
            for pid in job.processes():
                with contextlib.suppress(OSError):  # one that has ended meanwhile
                    self.assertNotIn(key.encode(), pathlib.Path(f"/proc/{pid}/cmdline").read_bytes())
            for worker in job.starts():
                self.assertNotIn(key.encode(), pathlib.Path(f"/proc/{worker['pid']}/environ").read_bytes())
            advice = "muster key show | ssh NODE muster key set"
            wait_for("the advice", lambda: any(advice in node.err.read_text() for node in nodes))
            told = [node for node in nodes if advice in node.err.read_text()]
            self.assertEqual(len(told), 1)
            job.finish()
            for i, node in enumerate(nodes):
                job.expect_exit(node, 0)
                report = (job.directory / f"report{i}").read_text()
                self.assertEqual(json.loads(report)["auth"], "key")
                for text in (report, node.err.read_text(), node.out.read_text()):
                    self.assertNotIn(key, text)

    def test_nodes_with_keys_of_their_own_are_told_how_to_copy_one(self):
        with Job() as job:
            first = job.node(*named(job), nproc=1)
            wait_for("the host's daemon", job.answers)
            (job.directory / "elsewhere").mkdir()
            other = {"HOME": str(job.directory / "elsewhere")}
            second = job.node(*named(job), nproc=1, **other)
            job.expect_exit(second, 78)
            self.assertIn(f"muster key show | ssh {os.uname().nodename} muster key set", second.err.read_text())
            with open(job.directory / "pipe", "w+") as pipe:  # as that line does
                subprocess.run([BIN / "muster", "key", "show"], env=job.environment(), stdout=pipe, check=True)
                pipe.seek(0)
                done = subprocess.run([BIN / "muster", "key", "set"], env=job.environment(**other), stdin=pipe, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("the one before is kept as", done.stdout)
            nodes = [first, job.node(*named(job), nproc=1, **other)]
            job.round(0, 2)
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)

    def test_insecure_serves_everyone_and_says_so(self):
        with Job() as job:
            nodes = [job.node(*named(job), *words, "--report", job.directory / f"report{i}", nproc=1, **extra)
                     for i, (words, extra) in enumerate(((["--insecure"], {}), ([], {"MUSTER_INSECURE": "1"})))]
            job.round(0, 2)
            self.assertEqual(auth_of(job), "none")
            job.finish()
            for i, node in enumerate(nodes):
                job.expect_exit(node, 0)
                self.assertEqual(node.err.read_text().count("every host that reaches this node's ports can join the job"), 1)
                self.assertEqual(json.loads((job.directory / f"report{i}").read_text())["auth"], "none")
            self.assertFalse((job.directory / ".muster").exists())
        with Job() as job:  # no home directory to make a key in
            node = job.node(*named(job), nproc=1, HOME="/proc/none")
            job.expect_exit(node, 78)
            for word in ("its nodes need a key", "MUSTER_KEY", "--insecure"):
                self.assertIn(word, node.err.read_text())

    def test_a_daemon_without_a_secret_serves_other_hosts_only_if_it_is_told_to(self):
        with Job() as job:
            words = ("--bind", "", "--port", job.port, "--first-start")
            refused = job.spawn("musterd", *words)
            job.expect_exit(refused, 78)
            for word in ("muster key", "MUSTER_SECRET_FILE", "LoadCredential=muster.key:PATH", "--insecure", "--bind 127.0.0.1"):
                self.assertIn(word, refused.err.read_text())
            open_to_all = job.spawn("musterd", *words, MUSTER_INSECURE="1")
            wait_for("listening musterd", job.answers)
            self.assertEqual(auth_of(job), "none")
            open_to_all.terminate()
            job.expect_exit(open_to_all, 0)
            self.assertEqual(open_to_all.err.read_text().count("every host that reaches this port can join"), 1)
            keyed = job.spawn("musterd", *words, MUSTER_KEY="sixteen bytes 16")
            wait_for("listening musterd", job.answers)
            self.assertEqual(auth_of(job), "key")
            self.assertIsNone(keyed.poll())

    def test_agents_with_the_secret_join_and_their_guardians_are_believed(self):
        with Job() as job:
            secret = secret_file(job, "secret", "a long and random text\n")
            daemon = job.spawn("musterd", "--port", job.port, "--first-start", **secret)
            wait_for("listening musterd", job.answers)
            survivor = job.node("--lease", 15, nnodes="1:2", nproc=1, **secret)
            victim = job.node("--lease", 15, nnodes="1:2", nproc=1, **secret)
            job.round(0, 2)
            victim.kill()
            job.round(1, 1)
            # By its guardian's proof, not by a lease.
            wait_for("line about the agent's end", lambda: "its agent died" in daemon.err.read_text())
            job.finish()
            job.expect_exit(survivor, 0)
            job.expect_gone(but=[daemon])

    def test_the_key_of_the_home_directory_is_made_by_a_command_and_used_by_itself(self):
        with Job() as job:
            made = job.spawn("muster", "key")
            job.expect_exit(made, 0)
            path = job.directory / ".muster" / "key"
            self.assertIn(f"the secret of your jobs is {path}, made now", made.out.read_text())
            again = job.spawn("muster", "key")
            job.expect_exit(again, 0)
            self.assertNotIn("made now", again.out.read_text())
            shown = job.spawn("muster", "key", "show")
            job.expect_exit(shown, 0)
            self.assertEqual(shown.out.read_text(), path.read_text())
            daemon = job.spawn("musterd", "--port", job.port, "--first-start")
            wait_for("listening musterd", job.answers)
            elsewhere = {"HOME": "/nonexistent"}
            stranger = job.node(nnodes="2", nproc=1, **elsewhere)
            job.expect_exit(stranger, 78)
            self.assertIn("has no secret, and this rendezvous has one", stranger.err.read_text())
            nodes = [job.node(nnodes="2", nproc=1),
                     job.node(nnodes="2", nproc=1, **elsewhere, MUSTER_KEY=path.read_text().strip())]
            job.round(0, 2)
            for worker in job.starts():
                self.assertNotIn(b"MUSTER_KEY", pathlib.Path(f"/proc/{worker['pid']}/environ").read_bytes())
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)
            self.assertNotIn(path.read_text().strip(), daemon.err.read_text() + "".join(node.err.read_text() for node in nodes))

    def test_a_node_is_drained_from_anywhere_with_the_secret_and_not_without(self):
        with Job() as job:
            secret = secret_file(job, "secret", "a long and random text\n")
            wrong = secret_file(job, "other", "another long text\n")
            daemon = job.spawn("musterd", "--port", job.port, "--first-start", **secret)
            wait_for("listening musterd", job.answers)
            stays = job.node(*FAST, nnodes="1:2", nproc=1, **secret)
            leaves = job.node(*FAST, nnodes="1:2", nproc=1, **secret)
            job.round(0, 2)
            words = (node_name(job, leaves), "--rdzv-endpoint", f"127.0.0.1:{job.port}", "--job")
            refused = drain(job, *words, job.id, **wrong)
            self.assertEqual(refused.returncode, 1)
            self.assertIn("has another secret than this rendezvous", refused.stderr)
            self.assertEqual(drain(job, *words, job.id).returncode, 2)
            nowhere = drain(job, *words, "nosuchjob", **secret)
            self.assertEqual(nowhere.returncode, 1)
            self.assertIn("this daemon has no job 'nosuchjob'; GET /status lists its jobs", nowhere.stderr)
            self.assertNotIn(job.id, nowhere.stderr)  # who has the key of one job need not know the others
            done = drain(job, *words, job.id, **secret)
            self.assertEqual(done.returncode, 0, done.stderr)
            job.expect_exit(leaves, 76)
            job.round(1, 1)
            job.finish()
            job.expect_exit(stays, 0)
            job.expect_gone(but=[daemon])

    def test_workers_get_neither_the_secret_nor_its_path_nor_can_they_read_who_holds_it(self):
        with Job(65534 if os.geteuid() == 0 else None) as job:
            secret = secret_file(job, "secret", "a long and random text\n")
            if job.user is not None:
                os.chown(secret["MUSTER_SECRET_FILE"], job.user, job.user)
            daemon = job.spawn("musterd", "--port", job.port, "--first-start", **secret)
            wait_for("listening musterd", job.answers)
            node = job.node(*FAST, nnodes="1:1", nproc=1, **secret)
            worker = job.round(0, 1)[0]
            guardian = int(open(f"/proc/{worker['pid']}/stat").read().rsplit(")", 1)[1].split()[1])

            def environment(pid):
                return subprocess.run([*job.as_user(), "cat", f"/proc/{pid}/environ"], capture_output=True)
            for holder in (daemon.pid, node.pid, guardian):  # the test runs as nobody in root's place, who may read all
                self.assertIn(b"Permission denied", environment(holder).stderr, holder)
            own = environment(worker["pid"])
            self.assertEqual(own.returncode, 0, own.stderr)  # its stacks can be captured, too
            self.assertIn(b"LOCAL_RANK=0", own.stdout)
            self.assertNotIn(b"MUSTER_SECRET_FILE", own.stdout)
            job.finish()
            job.expect_exit(node, 0)

    def test_an_embedded_daemon_asks_for_the_secret_too(self):
        with Job() as job:
            secret = secret_file(job, "secret", "a long and random text\n")
            nodes = [job.node(*FAST, nproc=1, **secret)]
            wait_for("the host's daemon", job.answers)
            nodes.append(job.node(*FAST, nproc=1, **secret))
            job.round(0, 2)
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)

    def test_agents_without_it_or_with_another_one_cannot_join_and_are_told_why(self):
        with Job() as job:
            daemon = job.spawn("musterd", "--port", job.port, "--first-start", **secret_file(job, "secret", "the right secret of it\n"))
            wait_for("listening musterd", job.answers)
            without = job.node(*FAST, "--report", job.directory / "report0", nproc=1)
            job.expect_exit(without, 78)
            self.assertIn(f"has no secret, and this rendezvous has one; copy it from the host of the rendezvous (muster key show | ssh {os.uname().nodename} muster key set)", without.err.read_text())
            wrong = job.node(*FAST, "--report", job.directory / "report1", nproc=1, **secret_file(job, "other", "a wrong secret of it\n"))
            job.expect_exit(wrong, 78)
            self.assertIn(b"musterd", seen := pathlib.Path(f"/proc/{daemon.pid}/cmdline").read_bytes())
            self.assertIn("has another secret than this rendezvous", wrong.err.read_text())
            wait_for("a line for each", lambda: len(re.findall(r"refused from \S*127\.0\.0\.1", daemon.err.read_text())) == 2)
            self.assertNotIn(job.id, job_status(job))
            told = seen.decode() + "".join(process.out.read_text() + process.err.read_text() for process in (daemon, without, wrong))
            told += "".join((job.directory / f"report{i}").read_text() for i in range(2))
            for secret in ("the right secret of it", "a wrong secret of it"):
                for form in forms_of(secret, job):
                    self.assertNotIn(form, told)

    def test_the_key_of_a_job_joins_this_job_only(self):
        with Job() as job:
            secret = secret_file(job, "secret", "a long and random text\n")
            job.spawn("musterd", "--port", job.port, "--first-start", **secret)
            wait_for("listening musterd", job.answers)
            printed = job.spawn("muster", "key", "--job", job.id, **secret)
            job.expect_exit(printed, 0)
            key = printed.out.read_text().strip()
            self.assertRegex(key, r"^muster-job-key:[0-9a-f]{64}$")
            nodes = [job.node(*FAST, nproc=1, **secret), job.node(*FAST, nproc=1, MUSTER_KEY=key)]
            job.round(0, 2)
            # The last --rdzv-id counts.
            elsewhere = job.node(*FAST, "--rdzv-id", "another", nnodes="1", nproc=1, MUSTER_KEY=key)
            job.expect_exit(elsewhere, 78)
            self.assertIn("or a key of another job than 'another'", elsewhere.err.read_text())
            self.assertEqual(drain(job, "nowhere", "--job", "another", "--rdzv-endpoint", f"127.0.0.1:{job.port}", MUSTER_KEY=key).returncode, 1)
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)
            other = job.spawn("muster", "key", "--job=another", MUSTER_KEY=key)
            job.expect_exit(other, 1)
            self.assertIn("MUSTER_KEY is the key of one job already", other.err.read_text())

    def test_a_secret_is_changed_under_running_jobs(self):
        with Job() as job:
            old = secret_file(job, "old", "the old secret of it\n")
            path = job.directory / "secret"
            path.write_text("the old secret of it\n")
            path.chmod(0o600)
            daemon = job.spawn("musterd", "--port", job.port, "--first-start", MUSTER_SECRET_FILE=str(path))
            wait_for("listening musterd", job.answers)
            first = job.node(*FAST, nnodes="1:3", nproc=1, **old)
            path.rename(f"{path}.old")
            path.write_text("the new secret of it\n")
            path.chmod(0o600)
            daemon.send_signal(signal.SIGHUP)
            wait_for("line of the reload", lambda: f"read again from MUSTER_SECRET_FILE; accepted too: {path}.old" in daemon.err.read_text())
            nodes = [first, job.node(*FAST, nnodes="1:3", nproc=1, MUSTER_SECRET_FILE=str(path)), job.node(*FAST, nnodes="1:3", nproc=1, **old)]
            wait_for("round of three", lambda: job.starts(world=3) and len(job.starts(world=3)) >= 3)
            pathlib.Path(f"{path}.old").unlink()
            path.chmod(0o644)
            daemon.send_signal(signal.SIGHUP)
            wait_for("line about the mode", lambda: "the secret is not changed: MUSTER_SECRET_FILE" in daemon.err.read_text())
            path.chmod(0o600)
            daemon.send_signal(signal.SIGHUP)
            wait_for("second reload", lambda: re.search("read again from MUSTER_SECRET_FILE$", daemon.err.read_text(), re.M))
            late = job.node(*FAST, nnodes="1:3", nproc=1, **old)
            job.expect_exit(late, 78)
            self.assertIn("has another secret than this rendezvous", late.err.read_text())
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)

    @unittest.skipUnless(OUTER, "this host has no address but loopback, so no TLS and no token")
    def test_commands_and_viewers_use_either_key_of_a_change(self):
        old, new = "the old secret of it", "the new secret of it"
        both = {"MUSTER_KEY": new, "MUSTER_KEY_OLD": old}
        with Job() as job:
            path = job.directory / "secret"
            secret_file(job, "secret", old + "\n")
            daemon = job.spawn("musterd", "--bind", OUTER, "--port", job.port, "--first-start", MUSTER_SECRET_FILE=str(path))
            wait_for("listening musterd", lambda: job.answers(OUTER))
            place = ("--rdzv-endpoint", f"{OUTER}:{job.port}")

            def start(**keys):
                return job.node(*FAST, *place, "--log-dir", job.directory / "logs", "-r", 3, nnodes="1:2", nproc=1, conf="last_call_timeout=1", **keys)

            def view(*words, **keys):
                """Asked again where an answer of a busy machine was late."""
                def asked():
                    done = subprocess.run([BIN / "muster", *words, *place], capture_output=True, text=True, timeout=120, env=job.environment(**keys))
                    return None if re.search("the deadline passed|no answer|does not answer within", done.stderr) else done
                return wait_for("answer of the daemon and the nodes", asked)

            def check(*works, logs):
                for keys in works:
                    shown = view("status", job.id, **keys)
                    self.assertEqual((shown.returncode, shown.stderr), (0, ""), keys)
                    told = drain(job, "nowhere", "--job", job.id, *place, **keys)
                    self.assertIn("nowhere", told.stderr, keys)
                    self.assertNotIn("secret", told.stderr, keys)
                for keys in logs:
                    lines = view("logs", job.id, "--all", **keys)
                    self.assertEqual((lines.returncode, lines.stderr), (0, ""), keys)

            nodes = [start(MUSTER_KEY=old)]
            job.round(0, 1)
            check({"MUSTER_KEY": old}, both, logs=({"MUSTER_KEY": old}, both))  # the viewer is changed first
            self.assertIn("it has another secret than this node", view("status", job.id, MUSTER_KEY=new).stderr)
            path.rename(f"{path}.old")
            secret_file(job, "secret", new + "\n")
            daemon.send_signal(signal.SIGHUP)
            wait_for("line of the reload", lambda: "read again from MUSTER_SECRET_FILE; accepted too" in daemon.err.read_text())
            # The node knows the old key alone.
            check({"MUSTER_KEY": old}, {"MUSTER_KEY": new}, both, logs=({"MUSTER_KEY": old}, both))
            self.assertIn("it has another key of the job", view("logs", job.id, "--all", MUSTER_KEY=new).stderr)
            nodes.append(start(**both))
            wait_for("round of two", lambda: len(job.starts(world=2)) >= 2)
            check(both, logs=({"MUSTER_KEY": old}, both))
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)

    def test_the_key_of_the_environment_is_changed_without_musterd(self):
        with Job() as job:
            old, new = "the old secret of it", "the new secret of it"
            nodes = [job.node(*FAST, nproc=1, MUSTER_KEY=new, MUSTER_KEY_OLD=old)]
            wait_for("the host's daemon", job.answers)
            nodes.append(job.node(*FAST, nproc=1, MUSTER_KEY=old))
            for worker in job.round(0, 2).values():
                self.assertNotIn(b"the old secret", pathlib.Path(f"/proc/{worker['pid']}/environ").read_bytes())
            late = job.node(*FAST, nproc=1, MUSTER_KEY="neither secret of it")
            job.expect_exit(late, 78)
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)

    def test_a_node_with_both_keys_joins_a_job_that_began_with_the_old_one(self):
        old, new = "the old secret of it", "the new secret of it"

        def meet(job, address, refusal):
            endpoint = ("--rdzv-endpoint", f"{address}:{job.port}")
            nodes = [job.node(*FAST, *endpoint, nproc=1, MUSTER_KEY=old)]
            wait_for("a daemon", lambda: job.answers(address))
            nodes.append(job.node(*FAST, *endpoint, nproc=1, MUSTER_KEY=new, MUSTER_KEY_OLD=old))
            job.round(0, 2)
            late = job.node(*FAST, *endpoint, nproc=1, MUSTER_KEY=new)
            job.expect_exit(late, 78)
            self.assertIn(refusal, late.err.read_text())
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)
        with Job() as job:  # proofs in clear text
            meet(job, "127.0.0.1", "has another secret than this rendezvous")
        if not OUTER:
            self.skipTest("this host has no address but loopback, so no TLS")
        with Job() as job:
            job.spawn("musterd", "--bind", OUTER, "--port", job.port, "--first-start", MUSTER_KEY=old)
            wait_for("listening musterd", lambda: job.answers(OUTER))
            meet(job, OUTER, "the rendezvous has another secret than this node")

    def test_a_pipe_in_the_place_of_the_secret_does_not_stop_a_daemon(self):
        with Job() as job:
            secret = secret_file(job, "secret", "the right secret of it\n")
            path = pathlib.Path(secret["MUSTER_SECRET_FILE"])
            daemon = job.spawn("musterd", "--port", job.port, "--first-start", **secret)
            wait_for("listening musterd", job.answers)
            path.rename(job.directory / "aside")
            os.mkfifo(path, 0o600)
            daemon.send_signal(signal.SIGHUP)
            wait_for("line about the pipe", lambda: "is no file" in daemon.err.read_text())
            path.unlink()
            (job.directory / "aside").rename(path)
            node = job.node(*FAST, nnodes="1", nproc=1, **secret)
            job.round(0, 1)
            job.finish()
            job.expect_exit(node, 0)
            daemon.terminate()
            job.expect_exit(daemon, 0)

    @unittest.skipUnless(OUTER, "this host has no address but loopback")
    def test_a_daemon_at_one_address_of_this_host_is_joined_with_a_key(self):
        with Job() as job:
            secret = secret_file(job, "secret", "the right secret of it\n")
            job.spawn("musterd", "--bind", OUTER, "--port", job.port, "--first-start", **secret)
            wait_for("listening musterd", lambda: job.answers(OUTER))
            nodes = [job.node(*FAST, "--rdzv-endpoint", f"{OUTER}:{job.port}", nnodes=number, nproc=1, **secret) for number in ("2", "2")]
            job.round(0, 2)
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)
                self.assertNotIn("not muster", node.err.read_text())

    @unittest.skipUnless(OUTER, "this host has no address but loopback")
    def test_a_job_of_one_node_at_a_daemon_that_serves_everyone_says_so(self):
        with Job() as job:
            job.spawn("musterd", "--bind", OUTER, "--port", job.port, "--first-start", "--insecure")
            wait_for("listening musterd", lambda: job.answers(OUTER))
            node = job.node("--rdzv-endpoint", f"{OUTER}:{job.port}", "--report", job.directory / "report", nnodes="1", nproc=1,
                            conf="is_host=0")
            job.round(0, 1)
            job.finish()
            job.expect_exit(node, 0)
            self.assertEqual(json.loads((job.directory / "report").read_text())["auth"], "none")

    def test_a_daemon_without_the_secret_is_not_trusted(self):
        with Job() as job:
            job.daemon()
            node = job.node(*FAST, nproc=1, **secret_file(job, "secret", "the right secret of it\n"))
            job.expect_exit(node, 78)
            self.assertIn("this rendezvous has no secret, and", node.err.read_text())

    def test_a_file_that_others_may_read_or_that_can_be_guessed_is_refused_at_once(self):
        with Job() as job:
            for extra, says in ((secret_file(job, "open", "x\n", 0o644), "chmod 600"),
                                (secret_file(job, "empty", "\n"), "is empty"),
                                (secret_file(job, "short", "15 bytes, short\n"), "holds 15 bytes; a secret has at least 16"),
                                ({"MUSTER_SECRET_FILE": str(job.directory / "none")}, "No such file")):
                node = job.node(*FAST, **extra)
                job.expect_exit(node, 78)
                self.assertIn("MUSTER_SECRET_FILE", node.err.read_text())
                self.assertIn(says, node.err.read_text())
                daemon = job.spawn("musterd", "--port", "0", **extra)
                job.expect_exit(daemon, 78)
                self.assertIn(says, daemon.err.read_text())


if __name__ == "__main__":
    unittest.main(verbosity=2)
