"""What the daemon serves for the page: its files and its stream. Needs no browser."""
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "elastic"))
from job import BIN, Job, wait_for  # noqa: E402
from secret_test import OUTER, secret_file  # noqa: E402

UI = HERE.parents[2] / "rendezvous/page/ui"
BYTES_MAX = 60 * 1024
VIEWERS_MAX = 64
VIEWERS_OF_HOST_MAX = 32


def get(job, path, host="127.0.0.1", **headers):
    """Status, headers and body of one answer."""
    link = http.client.HTTPConnection(host, job.port, timeout=60)
    try:
        link.request("GET", path, headers=headers)
        answer = link.getresponse()
        # A stream has no end.
        return answer.status, answer.headers, b"" if answer.length is None else answer.read()
    finally:
        link.close()


def open_stream(job, target="/api/v1/stream", host="127.0.0.1", source=None, headers=""):
    """A viewer without a browser, and the first bytes that it gets."""
    link = socket.create_connection((host, job.port), timeout=60, source_address=source and (source, 0))
    link.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())
    return link, link.recv(1 << 16)


def read_until(link, text, is_enough):
    """What the stream has sent so far, and goes on to send."""
    while not is_enough(text):
        more = link.recv(1 << 16)
        assert more, f"the daemon ended the stream after {text!r}"
        text += more
    return text


def daemon_for_all(job, secret):
    """A daemon for other hosts, and for all users of this one."""
    daemon = job.spawn("musterd", "--port", job.port, "--first-start", "--bind", "0.0.0.0", "--local-users", "all", **secret)
    wait_for("listening musterd", job.answers)
    return daemon


def token_of(job, secret):
    return subprocess.run([BIN / "musterd", "--status-token"], env=job.environment(**secret), capture_output=True, text=True,
                          check=True).stdout.strip()


class Served(unittest.TestCase):
    def test_the_page_can_be_switched_off(self):
        with Job() as job:
            job.daemon("--no-web")
            for path in ("/", "/page/app.js", "/api/v1/stream", "/api/v1/stream?job=x"):
                status, _, body = get(job, path)
                self.assertEqual(status, 404, path)
                self.assertEqual(body, b"The page is switched off (--no-web). Use muster status.\n", path)
            for path in ("/healthz", "/status", "/metrics"):
                self.assertEqual(get(job, path)[0], 200, path)

    def test_so_can_that_of_a_launcher_s_own_daemon(self):
        with Job() as job:
            job.spawn("muster", "--nnodes", 1, "--nproc-per-node", 1, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{job.port}",
                      "--rdzv-id", job.id, "--no-web", "--no-python", "sleep", "600")
            wait_for("listening daemon", job.answers)
            self.assertEqual(get(job, "/")[0], 404)
            self.assertEqual(get(job, "/status")[0], 200)

    def test_the_files_are_small_and_served_as_they_are_with_a_strict_policy(self):
        files = sorted(UI.iterdir())
        self.assertLessEqual(sum(file.stat().st_size for file in files), BYTES_MAX)
        with Job() as job:
            job.daemon()
            for file in files:
                with self.subTest(file.name):
                    status, headers, body = get(job, "/" if file.name == "index.html" else f"/page/{file.name}")
                    self.assertEqual((status, body), (200, file.read_bytes()))
                    policy = headers["Content-Security-Policy"]
                    self.assertTrue(policy.startswith("default-src 'none'; script-src 'self'; "), policy)
                    self.assertNotIn("unsafe", policy)
                    self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
                    self.assertNotIn("Set-Cookie", headers)
            for path in ("/", "/page/app.js", "/api/v1/stream"):
                self.assertEqual(get(job, path, Host="evil.example")[0], 421)
            for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
                self.assertEqual(get(job, "/api/v1/stream", **{"Sec-Fetch-Site": site})[0], status, site)
            self.assertEqual(get(job, "/", **{"Sec-Fetch-Site": "cross-site"})[0], 200)
            for path in ("/page/", "/page/nothing.js", "/page/../status", "/index.html"):
                self.assertEqual(get(job, path)[0], 404)

    def test_text_and_marks_stand_out_in_light_and_dark(self):
        style = (UI / "style.css").read_text()

        def luminance(colour):
            parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
            return sum(share * (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4)
                       for share, part in zip((0.2126, 0.7152, 0.0722), parts))

        def contrast(one, other):  # WCAG 2
            darker, lighter = sorted((luminance(one), luminance(other)))
            return (lighter + 0.05) / (darker + 0.05)
        texts = set(re.findall(r"[{;\s]color: var\(--([\w-]+)\)", style)) - {"on-mark"}
        marks = set(re.findall(r"\.mark \{ fill: var\(--([\w-]+)\)", style))
        self.assertLessEqual({"ink", "quiet", "link", "bad"}, texts)
        self.assertEqual(marks, {"bad", "care", "calm"})
        light, dark = (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in re.findall(r":root \{(.*?)\}", style, re.S))
        for colours in (light, dark):
            for names, grounds, least in ((texts, ("ground", "raised"), 4.5), (("good", "calm", "care", "bad"), ("on-mark",), 4.5),
                                          (marks, ("raised",), 3)):
                for name in names:
                    for ground in grounds:
                        self.assertGreaterEqual(contrast(colours[name], colours[ground]), least, (name, ground, colours[name]))

    def test_a_viewer_too_many_is_told_so_and_a_place_becomes_free(self):
        with Job() as job:
            job.daemon()
            links = []
            try:
                for _ in range(VIEWERS_MAX):
                    link, first = open_stream(job)
                    links.append(link)
                    self.assertIn(b"text/event-stream", first)
                status, _, body = get(job, "/api/v1/stream")
                self.assertEqual(status, 503)
                self.assertIn(b"The page has 64 viewers, which is the limit.", body)
                links.pop().close()

                def is_free():
                    link, first = open_stream(job)
                    links.append(link)
                    return first.startswith(b"HTTP/1.1 200 ")
                wait_for("free place", is_free)
            finally:
                for link in links:
                    link.close()

    def test_users_of_its_host_and_other_hosts_have_a_part_of_the_places_each(self):
        with Job() as job:
            secret = secret_file(job, "key", "a secret of a page's test\n")
            daemon_for_all(job, secret)
            links = []
            try:
                for number in range(VIEWERS_OF_HOST_MAX):
                    link, first = open_stream(job, source=f"127.0.0.{1 + number % 4}")
                    links.append(link)
                    self.assertIn(b"text/event-stream", first)
                link, first = open_stream(job, source="127.0.0.9")
                links.append(link)
                self.assertIn(b" 503 ", first)
                if OUTER:
                    headers = f"Authorization: Bearer {token_of(job, secret)}\r\n"
                    for _ in range(16):
                        link, first = open_stream(job, host=OUTER, source=OUTER, headers=headers)
                        links.append(link)
                        self.assertIn(b"text/event-stream", first)
                    link, first = open_stream(job, host=OUTER, source=OUTER, headers=headers)
                    links.append(link)
                    self.assertIn(b" 503 ", first)
                    self.assertIn(f"The page has 16 viewers from {OUTER}, which is the limit.".encode(),
                                  read_until(link, first, lambda text: text.endswith(b"status.\n")))
            finally:
                for link in links:
                    link.close()

    @unittest.skipUnless(OUTER, "this host has no address but loopback")
    def test_a_token_of_a_secret_that_was_replaced_views_no_more(self):
        with Job() as job:
            secret = secret_file(job, "key", "the old secret of it\n")
            daemon = daemon_for_all(job, secret)
            headers = f"Authorization: Bearer {token_of(job, secret)}\r\n"
            link, text = open_stream(job, host=OUTER, headers=headers)
            with link:
                read_until(link, text, lambda text: b"event: jobs" in text)
                secret_file(job, "key", "the new secret of it\n")
                daemon.send_signal(signal.SIGHUP)
                wait_for("end of the stream", lambda: not link.recv(1 << 16))
            wait_for("line about the viewer", lambda: "with a secret that is no longer the daemon's" in daemon.err.read_text())
            self.assertEqual(get(job, "/api/v1/stream", host=OUTER, Authorization=headers.split(": ")[1].strip())[0], 401)

    def test_a_viewer_gets_what_changed_and_can_go_on_after_an_event(self):
        with Job() as job:
            job.daemon()
            node = job.node("--lease", 10, nnodes="1", nproc=1)
            job.round(0, 1)

            def messages(target, events_min):
                link, text = open_stream(job, target)
                with link:
                    text = read_until(link, text, lambda text: text.count(b"event: happened") >= events_min and text.endswith(b"\n\n"))
                parts = [part.split(b"\ndata: ") for part in text.split(b"\r\n\r\n", 1)[1].split(b"\n\n") if b"\ndata: " in part]
                return [(kind.removeprefix(b"event: ").decode(), json.loads(data)) for kind, data in parts]
            news = messages(f"/api/v1/stream?job={job.id}", 2)
            self.assertEqual([kind for kind, _ in news][:5], ["clock", "daemon", "jobs", "job", "nodes"])
            of = dict(news)
            self.assertEqual(of["jobs"]["rows"][job.id]["nodes"], {"running": 1})
            self.assertEqual([row["host"] for row in of["nodes"]["rows"].values()], [os.uname().nodename])
            events = [event for kind, event in news if kind == "happened"]
            self.assertEqual(events[0]["type"], "muster.job.started.v1")
            later = messages(f"/api/v1/stream?job={job.id}&after={events[0]['id']}", 1)
            self.assertEqual([event["id"] for kind, event in later if kind == "happened"][0], events[1]["id"])
            job.finish()
            job.expect_exit(node, 0)

    def test_the_daemon_inside_a_launcher_has_the_page_too(self):
        with Job() as job:
            node = job.node("--lease", 10, nnodes="1", nproc=1)
            job.round(0, 1)
            self.assertEqual(get(job, "/")[2], (UI / "index.html").read_bytes())
            link, text = open_stream(job)
            with link:
                text = read_until(link, text, lambda text: b"event: jobs" in text)
            self.assertIn(b'"embedded":true', text)
            job.finish()
            job.expect_exit(node, 0)


if __name__ == "__main__":
    unittest.main()
