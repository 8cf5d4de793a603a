"""A real etcd for a test: plain or with TLS, with or without users; and what is kept in it."""
import base64
import contextlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import time
import unittest
import urllib.error
import urllib.request

from job import free_port, wait_for

needs_etcd = unittest.skipUnless(shutil.which("etcd") or os.environ.get("CI"), "etcd is missing (apt-get install etcd-server)")


def b64(text):
    return base64.b64encode(text.encode()).decode()


class Certificates:
    """A CA and what it signs, in `directory`; by openssl. Without common names: with these etcd's gateway takes no users."""

    def __init__(self, directory):
        self.directory = directory
        directory.mkdir(exist_ok=True)
        self.ca = self.authority("ca")

    def openssl(self, *words):
        done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True, cwd=self.directory)
        assert done.returncode == 0, f"openssl {words}: {done.stderr}"

    def authority(self, name):
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 2,
                     "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")
        return self.directory / f"{name}.pem"

    def signed(self, name, alternative="IP:127.0.0.1,DNS:localhost", days=2, by="ca"):
        """(certificate, key) for server and client; `days` below 0: it has expired."""
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/O={name}",
                     "-keyout", f"{name}.key", "-out", f"{name}.csr")
        (self.directory / f"{name}.ext").write_text(
            f"subjectAltName={alternative}\nextendedKeyUsage=serverAuth,clientAuth\n")
        # With a range in the past, which `openssl x509 -days` of older versions does not take.
        (self.directory / "ca.cnf").write_text(
            f"[ca]\ndefault_ca=one\n[one]\nnew_certs_dir=.\ndatabase=index.txt\nserial=serial\ndefault_md=sha256\n"
            f"policy=any\nunique_subject=no\nrand_serial=yes\n[any]\norganizationName=supplied\n")
        (self.directory / "index.txt").touch()
        now = time.time()

        def date(offset):
            return time.strftime("%Y%m%d%H%M%SZ", time.gmtime(now + offset * 86400))
        self.openssl("ca", "-batch", "-notext", "-config", "ca.cnf", "-cert", f"{by}.pem", "-keyfile", f"{by}.key",
                     "-in", f"{name}.csr", "-out", f"{name}.pem", "-extfile", f"{name}.ext",
                     "-startdate", date(-10), "-enddate", date(days))
        return self.directory / f"{name}.pem", self.directory / f"{name}.key"


class Etcd:
    """One member. `server`: (certificate, key) for TLS; `client_ca`: who vouches for clients, which then must show one."""

    def __init__(self, job, server=None, ca=None, client_ca=None, client=None, options=()):
        self.job = job
        self.port, peer = free_port(), free_port()
        self.scheme = "https" if server else "http"
        self.url = f"{self.scheme}://127.0.0.1:{self.port}"
        self.tls = None
        words = []
        if server:
            words += ["--cert-file", server[0], "--key-file", server[1]]
            self.tls = ssl.create_default_context(cafile=ca)
            if client_ca:
                words += ["--client-cert-auth", "--trusted-ca-file", client_ca]
                self.tls.load_cert_chain(*client)
        number = sum("etcd" in str(process.args[0]) for process in job.launchers)
        err = job.directory / f"etcd{number}.log"
        with open(err, "wb") as log:
            self.process = subprocess.Popen(
                ["etcd", "--data-dir", str(job.directory / f"etcd{number}"), "--listen-client-urls", self.url,
                 "--advertise-client-urls", self.url, "--listen-peer-urls", f"http://127.0.0.1:{peer}",
                 "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}", "--initial-cluster",
                 f"default=http://127.0.0.1:{peer}", *map(str, words), *options], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, env=job.environment(), start_new_session=True)
        self.process.err = err
        job.launchers.append(self.process)
        self.token = None

    def wait_until_healthy(self):
        wait_for("healthy etcd", self.healthy)
        return self

    def healthy(self):
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(f"{self.url}/health", timeout=5, context=self.tls) as answer:
                return b'"true"' in answer.read()
        return False

    def ask(self, path, **body):
        request = urllib.request.Request(f"{self.url}/v3/{path}", data=json.dumps(body).encode())
        if self.token:
            request.add_header("Authorization", self.token)
        with urllib.request.urlopen(request, timeout=30, context=self.tls) as answer:
            return json.load(answer)

    def kept(self, prefix="muster/"):
        """{key: value} below the prefix."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        found = self.ask("kv/range", key=b64(prefix), range_end=b64(end)).get("kvs", [])
        return {base64.b64decode(one["key"]).decode(): base64.b64decode(one.get("value", "")) for one in found}

    def leader(self, prefix):
        """Where the leader of this prefix is found; empty: nobody leads."""
        return self.kept(prefix).get(prefix + "leader", b"").decode().split(" ")[0]

    def enable_users(self, user, password, prefix="muster/"):
        """root, and one who may use what is below the prefix."""
        self.ask("auth/user/add", name="root", password="root's")
        self.ask("auth/role/add", name="root")
        self.ask("auth/user/grant", user="root", role="root")
        self.ask("auth/user/add", name=user, password=password)
        self.ask("auth/role/add", name="daemons")
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        self.ask("auth/role/grant", name="daemons",
                 perm={"permType": "READWRITE", "key": b64(prefix), "range_end": b64(end)})
        self.ask("auth/user/grant", user=user, role="daemons")
        self.ask("auth/enable")
        self.token = self.ask("auth/authenticate", name="root", password="root's")["token"]

    def fill(self):
        """Writes until its quota (--quota-backend-bytes) is used up, which raises its alarm NOSPACE."""
        with contextlib.suppress(urllib.error.HTTPError):
            while True:
                self.ask("kv/put", key=b64("filler"), value=b64("x" * 200_000))

    def make_room(self):
        """What an administrator does: compact, defrag, alarm disarm."""
        revision = self.ask("kv/range", key=b64("filler"))["header"]["revision"]
        self.ask("kv/compaction", revision=revision, physical=True)
        self.ask("maintenance/defragment")
        for alarm in self.ask("maintenance/alarm", action="GET")["alarms"]:
            self.ask("maintenance/alarm", action="DEACTIVATE", **alarm)

    def send_signal(self, which):
        self.process.send_signal(which)

    def stop(self):
        self.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.send_signal(signal.SIGCONT)
