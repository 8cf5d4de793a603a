"""etcd with TLS and users: who gets in, and one sentence each for who does not."""
import base64
import contextlib
import json
import os
import signal
import unittest
import urllib.request

from etcd_server import Certificates, Etcd, b64, needs_etcd
from job import WORKERS, Job, free_port, wait_for


def leads(port):
    with contextlib.suppress(OSError, ValueError):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=60) as answer:
            told = json.load(answer)
            return "jobs" in told and not told.get("standby")
    return False


class Access:
    """An etcd with TLS that wants to see certificates, and with a user of its own."""

    def __init__(self, job, expired=False, client_auth=True, **etcd):
        self.job = job
        self.certificates = Certificates(job.directory / "certificates")
        server = self.certificates.signed("etcd", days=-1 if expired else 2)
        self.client = self.certificates.signed("muster")
        self.ca = self.certificates.ca
        self.etcd = Etcd(job, server=server, ca=self.ca, client_ca=self.ca if client_auth else None, client=self.client, **etcd)
        if not expired:
            self.etcd.wait_until_healthy()

    def login(self, text):
        path = self.job.directory / f"login {len(self.job.launchers)}"
        path.write_text(text + "\n")
        path.chmod(0o600)
        return str(path)

    def daemon(self, *more, **options):
        """musterd with the given --etcd-... options and `more`; `login`: what its login file holds."""
        chosen = {"protocol": "https", "cacert": self.ca, "cert": self.client[0], "key": self.client[1], **options}
        login = chosen.pop("login", None)
        environment = {"MUSTER_ETCD_LOGIN_FILE": self.login(login)} if login else {}
        port = free_port()
        words = [*more, *(word for name, value in chosen.items() if value for word in (f"--etcd-{name}", value))]
        daemon = self.job.spawn("musterd", "--port", port, "--state", f"etcd://127.0.0.1:{self.etcd.port}/of/test", *words,
                                **environment)
        daemon.port = port
        daemon.again = lambda: self.daemon(*more, **options)
        return daemon

    def says(self, daemon, sentence, code=None):
        """`code`: it ends by itself, with this one."""
        for _ in range(3):
            try:
                wait_for(f"'{sentence}'", lambda: sentence in daemon.err.read_text() or daemon.poll() is not None, 30)
                break
            except AssertionError:  # Of what keeps it from etcd it tells the first reason: on a busy machine that there was no answer in a second.
                daemon.terminate()
                daemon = daemon.again()
        said = daemon.err.read_text()
        assert sentence in said, f"'{sentence}' is not in:\n{said}"
        assert said.count(sentence) == 1, said
        if code is None and daemon.poll() is None:
            daemon.terminate()
        assert daemon.wait(60) == code or code is None, said


@needs_etcd
class Tls(unittest.TestCase):
    def test_a_job_runs_over_etcd_with_tls_and_a_user_whose_token_is_forgotten(self):
        for _ in range(5):
            if self.keeps_its_lead():
                return
        self.fail("the lead was lost over a token")

    def keeps_its_lead(self):
        """A daemon that stands still for more than a second loses it too: then that says nothing."""
        with Job() as job:
            access = Access(job, options=("--auth-token", "simple"))
            access.etcd.enable_users("daemons", "a pass:word")
            prefix = f"muster/jobs/{job.id}/"
            conf = (f"last_call_timeout=1,protocol=https,cacert={access.ca},cert={access.client[0]},"
                    f"key={access.client[1]}")
            login = access.login("daemons:a pass:word")
            nodes = [job.spawn("muster", "--nnodes", 2, "--nproc-per-node", 1, "--rdzv-backend", "etcd", "--rdzv-endpoint",
                               f"127.0.0.1:{access.etcd.port}", "--rdzv-id", job.id, "--rdzv-conf", conf, "--max-restarts", 3,
                               "--no-python", WORKERS / "elastic", "--until", "done", MUSTER_ETCD_LOGIN_FILE=login) for _ in range(2)]
            first = job.round(0, 2)
            # A changed password makes etcd forget the user's tokens, as their age does.
            leader = access.etcd.leader(prefix)
            access.etcd.ask("auth/user/changepw", name="daemons", password="a pass:word")
            os.kill(first[0]["pid"], signal.SIGKILL)
            job.round(1, 2)
            kept = access.etcd.leader(prefix) == leader
            job.finish()
            for node in nodes:
                job.expect_exit(node, 0)
                self.assertNotIn("a pass:word", node.err.read_text())
            wait_for("empty etcd", lambda: access.etcd.kept() == {})
            return kept

    def test_who_does_not_get_in_is_told_why(self):
        with Job() as job:
            access = Access(job)
            folder = job.directory / "events"
            folder.mkdir()

            def notes():
                file = folder / "events.jsonl"
                whole = file.read_text().split("\n")[:-1] if file.exists() else []  # not a line that is being written
                events = [json.loads(line) for line in whole]
                return [event["data"]["text"] for event in events if event["type"] in ("muster.daemon.leader.v1", "muster.daemon.note.v1")]
            good = access.daemon("--events", folder)
            wait_for("leader", lambda: leads(good.port))
            wait_for("event of the leader", lambda: any(text.startswith("this daemon is the leader") for text in notes()))
            good.terminate()
            good.wait(60)
            others = access.certificates.authority("others")
            stranger = access.daemon("--events", folder, cacert=others)
            said = f"the server's certificate is not signed by a CA in {others}"
            wait_for("event of what etcd does not answer", lambda: any(said in text for text in notes()))
            access.says(stranger, said)
            access.says(access.daemon(cacert=None), "the server's certificate is not signed by a CA that this host trusts")
            stale = access.certificates.signed("stale", days=-1)
            access.says(access.daemon(cert=stale[0], key=stale[1]), f"the client certificate {stale[0]} has expired", code=2)
            foreign = access.certificates.signed("foreign", by="others")
            access.says(access.daemon(cert=foreign[0], key=foreign[1]), "the server does not accept the client certificate (cert and key)")
            access.says(access.daemon(key=stale[1]), f"the key of the client certificate {stale[1]}: ")
            access.says(access.daemon(protocol="http", cacert=None, cert=None, key=None), "if the server uses TLS, set protocol https")
            access.says(access.daemon(key=None), "cert and key go together")
            access.says(access.daemon(protocol="http"), "have no effect with protocol http; use https")
            access.etcd.enable_users("daemons", "right", prefix="muster/")
            access.says(access.daemon(login="daemons:wrong"),
                        "etcd answered with HTTP status 400: etcdserver: authentication failed, invalid user ID or password")
            access.says(access.daemon(), "permission denied; grant access without a user permission to read and write the keys below of/test/")
            access.says(access.daemon(login="daemons:right"), "permission denied; grant the user daemons permission to read and write the keys below of/test/")

    def test_a_server_s_certificate_that_has_expired_or_is_another_s_is_said_so(self):
        with Job() as job:
            access = Access(job, expired=True, client_auth=False)
            access.says(access.daemon(cert=None, key=None), "server's certificate has expired")
        with Job() as job:
            certificates = Certificates(job.directory / "certificates")
            server = certificates.signed("etcd", alternative="DNS:elsewhere")
            access = Access.__new__(Access)
            access.job, access.ca, access.client = job, certificates.ca, (None, None)
            access.etcd = Etcd(job, server=server, ca=certificates.ca)
            access.says(access.daemon(), "the server's certificate is not valid for the name 127.0.0.1")

    def test_where_etcd_speaks_no_tls_or_has_no_users_it_is_said_so(self):
        with Job() as job:
            access = Access.__new__(Access)
            access.job, access.ca, access.client = job, None, (None, None)
            access.etcd = Etcd(job).wait_until_healthy()
            access.says(access.daemon(), "the server closed the connection during the TLS handshake")
            daemon = access.daemon(protocol="http", login="daemons:right")
            wait_for("leader", lambda: leads(daemon.port))
            wait_for("line about the user", lambda: "etcd has authentication disabled; the user daemons is ignored" in daemon.err.read_text())


@needs_etcd
class Records(unittest.TestCase):
    def test_a_record_that_somebody_without_the_secret_wrote_is_refused_and_the_others_outlive_a_change_of_secrets(self):
        with Job() as job:
            etcd = Etcd(job)
            etcd.wait_until_healthy()
            old, new = "the old secret of it", "the new secret of it"

            def daemon(port=job.port, **secrets):
                started = job.spawn("musterd", "--port", port, "--state", f"etcd://127.0.0.1:{etcd.port}/of/test", **secrets)
                wait_for("leading musterd", lambda: leads(port))
                return started

            def records():
                return {key: value for key, value in etcd.kept("of/test/").items() if "/state/" in key}
            first = daemon(MUSTER_KEY=old)
            node = job.node(nnodes="1", nproc=1, conf="is_host=0", MUSTER_KEY=old)
            job.round(0, 1)
            own = next(key for key in records() if key.endswith(f"/state/job/{job.id}"))
            for value in records().values():
                self.assertTrue(value.startswith(b"hmac-sha256:"), value)
            first.terminate()
            job.expect_exit(first, 0)
            before = records()
            for key in (own.replace(job.id, "forged"), own.replace("job/", "job/moved-")):
                value = records()[own] if "moved" in key else records()[own].split(b"hmac-sha256:")[1][32:]
                etcd.ask("kv/put", key=b64(key), value=base64.b64encode(value).decode())
            second = daemon(MUSTER_KEY=new, MUSTER_KEY_OLD=old)
            wait_for("word of the lead", lambda: "this daemon is the leader" in second.err.read_text())
            said = second.err.read_text()
            self.assertRegex(said, r"2 of \d+ records below of/test/ in etcd are refused: they were not written with .*; moved to of/test/aside/")
            self.assertIn("this daemon is the leader; 1 job resumed", said)
            wait_for("records set aside", lambda: sum("/aside/" in key for key in etcd.kept("of/test/")) == 2)
            wait_for("end of the others", lambda: not [key for key in records() if "forged" in key or "moved" in key])
            # The second daemon has written all records anew, so the old secret may go.
            wait_for("new records", lambda: all(records().get(key) != value for key, value in before.items()))
            second.terminate()
            job.expect_exit(second, 0)
            third = daemon(port=free_port(), MUSTER_KEY=new)  # where the node, which has the old one, does not come
            wait_for("word of the lead", lambda: "this daemon is the leader" in third.err.read_text())
            self.assertIn("this daemon is the leader; 1 job resumed", third.err.read_text())
            self.assertNotIn("refused", third.err.read_text())
            third.terminate()
            job.expect_exit(third, 0)
            daemon(MUSTER_KEY=old)
            job.finish()
            job.expect_exit(node, 0)
            self.assertEqual(len(job.starts()), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
