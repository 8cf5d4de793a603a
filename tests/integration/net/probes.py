"""What a stranger may say to a port, and whether the answer is a refusal. As a program, on the stranger's host:

    probes.py JOB ADDRESS PORT...      prints "PORT PROBE ANSWER" for each, the answer in hexadecimal, "" for none

JOB is a guess of the job's name, which is no secret. IDENTITY, a variable, is the name of the job's key, which is on the wire in clear text."""
import hmac
import os
import pathlib
import re
import socket
import ssl
import sys
import time

RENDEZVOUS = pathlib.Path(__file__).resolve().parents[3] / "rendezvous"
PROTOCOL = RENDEZVOUS / "PROTOCOL.md"
# PyTorch's client: VALIDATE with its magic number, then PING or SET of a key.
VALIDATE = b"\x00\xCE\xF7\x85\x3C"
PING, PONG = b"\x0d\x01\x02\x03\x04", b"\x01\x02\x03\x04"
ANSWER_MAX = 1 << 20  # more is an answer, and no refusal
CHALLENGE, REFUSED, NOT_LEADER = 0x1A, 0x19, 0x1D


def frame(name):
    """The example of this message in PROTOCOL.md."""
    block = PROTOCOL.read_text().split(f"### {name}\n")[1].split("\n### ")[0]
    return bytes.fromhex("".join(re.findall(r"^    ([0-9a-f ]+)$", block, re.M)))


def text(words):
    return len(words).to_bytes(4, "little") + words.encode()


def framed(kind, payload):
    return b"\xb5" + bytes([kind]) + len(payload).to_bytes(4, "little") + payload


def hello(job):
    """The example, of this job, of a node of this process's own and without a key."""
    payload = frame("Hello")[6:]
    assert payload[4:9] == text("j") and payload.endswith(text("c")), "another example in PROTOCOL.md"
    rest = (payload[9:-5] + text("")).replace((0x1122334455667788).to_bytes(8, "little"), os.urandom(8), 1)
    return framed(1, payload[:4] + text(job) + rest)


def commands():
    """Drains the node of a guessed name and the whole job, and reports that a worker has failed."""
    payload, failed = frame("Command")[6:], frame("WorkersFailed")[6:]
    rest = payload[11:]
    assert rest.startswith(b"\x03") and failed[:8] == (7).to_bytes(8, "little"), "other examples in PROTOCOL.md"
    drain = framed(0x0C, payload[:4] + b"\x00" + text(os.uname().nodename) + rest)
    notify = framed(0x0C, payload[:4] + b"\x01" + text("") + rest)
    return drain + notify + framed(5, bytes(8) + failed[8:]) + drain


def resume(job, join=None):
    """Claims to run round 0, the first one, and then commands. `join` is the payload of an honest node's Join."""
    payload, example = frame("Resume")[6:], frame("Join")[6:]
    round_7 = (7).to_bytes(8, "little")
    assert payload.count(round_7) == 2 and payload.count(example) == 1, "other examples in PROTOCOL.md"
    return hello(job) + framed(3, payload.replace(round_7, bytes(8)).replace(example, join or example)) + commands()


def boast(job, join=None):
    """A Join that knows of round 2**62. The honest one knows of none, that of the example of round 6."""
    join, known = (join, b"\xff" * 8) if join else (frame("Join")[6:], (6).to_bytes(8, "little"))
    assert join.count(known) == 1, "the last round of a Join is not found"
    return hello(job) + framed(2, join.replace(known, (1 << 62).to_bytes(8, "little"))) + commands()


def greed():
    """Asks for 2 GiB of the store, in small requests, and reads nothing meanwhile."""
    key = (1).to_bytes(8, "little") + b"k"
    return VALIDATE + b"\x01" + key + (1 << 20).to_bytes(8, "little") + bytes(1 << 20) + (b"\x03" + key) * 2048


def client_hello():
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(incoming, outgoing, server_hostname="stranger")
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def identity_of(secret, job):
    """The name of the job's key in a TLS handshake (rendezvous/secret/control_key.h)."""
    key = hmac.digest(hmac.digest(b"muster job", secret.encode(), "sha256"), job.encode() + b"\x01", "sha256")
    return hmac.digest(key, b"control tls identity\x01", "sha256").hex()[:16] + job


def client_hello_with_wrong_key(identity):
    """RFC 8446, 4: names the key, and proves another one. Python's ssl has no pre-shared keys before 3.13."""
    def sized(count, body):
        return len(body).to_bytes(count, "big") + body

    def extension(kind, body):
        return kind.to_bytes(2, "big") + sized(2, body)
    share = b"\x00\x1d" + sized(2, os.urandom(32))  # X25519
    identities, binders = sized(2, identity.encode()) + bytes(4), sized(1, os.urandom(32))
    extensions = (extension(43, sized(1, b"\x03\x04")) + extension(10, sized(2, b"\x00\x1d")) + extension(51, sized(2, share)) +
                  extension(16, sized(2, sized(1, b"muster/1"))) + extension(45, sized(1, b"\x01")) +
                  extension(41, sized(2, identities) + sized(2, binders)))
    hello = b"\x03\x03" + os.urandom(32) + sized(1, b"") + sized(2, b"\x13\x01") + sized(1, b"\x00") + sized(2, extensions)
    return b"\x16\x03\x01" + sized(2, b"\x01" + sized(3, hello))


def page(path):
    return lambda: f"GET {path} HTTP/1.1\r\nHost: 10.1.0.1\r\nConnection: close\r\n\r\n".encode()


JOB = "job"
PROBES = {
    "c10d ping": lambda: VALIDATE + PING,
    "c10d set": lambda: VALIDATE + b"\x01" + (1).to_bytes(8, "little") + b"k" + (1).to_bytes(8, "little") + b"v" + PING,
    "agent join": lambda: frame("Hello") + frame("Join") + frame("Ping"),
    "agent question": lambda: frame("PeerAsk"),
    "agent resume and commands": lambda: resume(JOB),
    "agent join with a high round": lambda: boast(JOB),
    "slow reader": greed,
    "agent's slow reader": lambda: hello(JOB) + frame("Ping") * 20_000,
    "status": page("/status"),
    "metrics": page("/metrics"),
    "start page": page("/"),
    "page's script": page("/page/app.js"),
    "page's stream": page("/api/v1/stream"),
    "healthz": page("/healthz"),
    "key": page("/key?nonce=" + 64 * "0"),
    "tls": client_hello,
    "tls with a wrong key": lambda: client_hello_with_wrong_key(os.environ.get("IDENTITY", 16 * "0" + JOB)),
    "bytes": lambda: bytes(range(9, 19)) * 100,
    "silence": lambda: b"",
}


def ask(address, port, words):
    """The answer until the other end closes, or says nothing for a while: a silent port has answered nothing."""
    answer, until = b"", time.monotonic() + 10  # a stream goes on for ever
    try:
        with socket.create_connection((address, port), 5) as talk:
            talk.settimeout(1.5)
            talk.sendall(words)
            while len(answer) < ANSWER_MAX and time.monotonic() < until and (piece := talk.recv(4096)):
                answer += piece
    except OSError:
        pass
    return answer


def is_refusal(answer):
    """Nothing, a TLS alert, an HTTP error of the asker's, or frames of the daemon that say no or ask for the key."""
    if not answer or answer[0] == 0x15 or re.match(rb"HTTP/1\.\d 4\d\d ", answer):
        return True
    while answer:
        if answer[0] != 0xB5 or len(answer) < 6 or answer[1] not in (CHALLENGE, REFUSED, NOT_LEADER):
            return False
        answer = answer[6 + int.from_bytes(answer[2:6], "little"):]
    return True


def is_public(name, answer):
    """What a daemon gives to everybody: nothing of a job is in it. The page is an empty frame, which asks for the token."""
    body = {"start page": (RENDEZVOUS / "page/ui/index.html").read_bytes(), "page's script": (RENDEZVOUS / "page/ui/app.js").read_bytes(),
            "healthz": b"ok\n"}.get(name)
    return answer.startswith(b"HTTP/1.1 200 ") and answer.partition(b"\r\n\r\n")[2] == body


if __name__ == "__main__":
    JOB = sys.argv[1]
    for one in sys.argv[3:]:
        for name, words in PROBES.items():
            print(f"{one} {name}: {ask(sys.argv[2], int(one), words()).hex()}", flush=True)
