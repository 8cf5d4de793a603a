"""What a c10d server answers to raw bytes, case by case, as text to compare: one line a case.

No waiting for silence: after each message a PING with a number of its own is sent on the same connection, and all that
comes before its echo is the answer ("-" for nothing). A server that closed instead is "closed".
"""
import argparse
import concurrent.futures
import socket
import struct

OPS = dict(SET=1, CAS=2, GET=3, ADD=4, CHECK=5, WAIT=6, NUM=7, DEL=8, APP=9, MGET=10, MSET=11, CAN=12, PING=13, QPUSH=14,
           QPOP=15, QLEN=16, LIST=17, BAR=18)
VALIDATE = b"\x00" + struct.pack("<I", 0x3C85F7CE)
# PyTorch's servers ask DNS for the name of every client, on the thread that serves: 5 s now and then.
DEADLINE = 60
# For the parts of the list in which a server is known to stay silent for ever. Elsewhere a slow server would pass for a silent one.
SHORT_DEADLINE = 7


def u64(value):
    return struct.pack("<Q", value)


def i64(value):
    return struct.pack("<q", value)


def blob(data):
    data = data if isinstance(data, bytes) else data.encode()
    return u64(len(data)) + data


def op(name, *parts):
    return bytes([OPS[name]]) + b"".join(blob(part) if isinstance(part, str) else part for part in parts)


def keys(name, *names):
    return op(name, u64(len(names)), *names)


def pairs(*items):
    return op("MSET", u64(len(items)), *(part for item in items for part in item))


class Connection:
    nonce = 0x6d75

    def __init__(self, port, validate=True, deadline=DEADLINE):
        self.socket = socket.create_connection(("127.0.0.1", port), deadline)
        self.greeting = VALIDATE if validate else b""

    def ask(self, message):
        """The answer to `message` as text."""
        Connection.nonce += 1
        marker = struct.pack("<I", Connection.nonce)
        answer = b""
        try:
            self.socket.sendall(self.greeting + message + op("PING", marker))
            self.greeting = b""
            while not answer.endswith(marker):
                chunk = self.socket.recv(1 << 20)
                if not chunk:
                    return self.text(answer, "closed")
                answer += chunk
        except ConnectionError:
            return self.text(answer, "closed")
        except socket.timeout:
            return self.text(answer, "no echo")
        return self.text(answer[:-4]) or "-"

    @staticmethod
    def text(data, end=""):
        shown = data.hex() if len(data) <= 64 else f"{len(data)} bytes"
        return " ".join(filter(None, [shown, end]))


class Suite:
    def __init__(self, port, silent_in=()):
        """`silent_in`: names of the parts in which this server is known to stay silent."""
        self.port = port
        self.silent_in = silent_in
        self.lines = []

    def deadline(self, part):
        return SHORT_DEADLINE if part in self.silent_in else DEADLINE

    def open(self, **options):
        return Connection(self.port, **options)

    def line(self, name, *answers):
        self.lines.append(f"{name}: " + " | ".join(answers))

    def case(self, name, *messages, **options):
        """Each message in turn on one new connection."""
        connection = self.open(**options)
        self.line(name, *[connection.ask(message) for message in messages])

    def handshake(self):
        self.case("VALIDATE twice", VALIDATE)
        greetings = {"HTTP": b"GET / HTTP/1.0\r\n\r\n", "wrong magic number": b"\x00\x01\x02\x03\x04",
                     "no handshake, first request WAIT": keys("WAIT")}
        connections = [self.open(validate=False, deadline=self.deadline("handshake")) for _ in greetings]
        with concurrent.futures.ThreadPoolExecutor() as pool:
            answers = list(pool.map(Connection.ask, connections, greetings.values()))
        for name, answer in zip(greetings, answers):
            self.line(name, answer)
        self.case("PING", op("PING", b"\7\0\0\0"))
        self.case("unknown operation 99", b"\x63")
        self.case("three requests in one write", op("NUM") * 3)

    def values(self):
        self.case("SET and GET", op("SET", "/x", "abc"), op("GET", "/x"))
        self.case("SET empty and GET", op("SET", "/e", "") + op("GET", "/e") + keys("CHECK", "/e"))
        self.case("GET missing", op("GET", "/missing"))
        self.case("MULTI_GET", op("SET", "/x", "abc") + keys("MGET", "/x", "/e"))
        self.case("MULTI_GET with a missing key", keys("MGET", "/x", "/missing"))
        self.case("MULTI_GET of nothing", keys("MGET"))
        self.case("MULTI_SET and MULTI_GET", pairs(("/m1", "x"), ("/m2", "yy")), keys("MGET", "/m1", "/m2"))
        self.case("MULTI_SET of nothing", pairs())
        self.case("APPEND new and old", op("APP", "/a", "1") + op("APP", "/a", "23") + op("GET", "/a"))
        self.case("DELETE missing", op("DEL", "/nope"))
        self.case("DELETE existing", op("SET", "/d", "v") + op("DEL", "/d"), keys("CHECK", "/d"))
        self.case("CAS missing, expected something", op("CAS", "/c1", "e", "n"), keys("CHECK", "/c1"))
        self.case("CAS missing, expected nothing", op("CAS", "/c2", "", ""), keys("CHECK", "/c2"))
        self.case("CAS empty value, expected nothing", op("CAS", "/c2", "", "nn"))
        self.case("CAS equal", op("CAS", "/c2", "nn", "mm"), op("GET", "/c2"))
        self.case("CAS different", op("CAS", "/c2", "nn", "oo"), op("GET", "/c2"))
        self.case("CHECK of nothing", keys("CHECK"))
        self.case("CHECK one of two", keys("CHECK", "/x", "/missing"))
        every_byte = blob(bytes(range(256)))
        self.case("a key with every byte", op("SET", every_byte, "v") + op("GET", every_byte))

    def numbers(self):
        self.case("ADD to nothing", op("ADD", "/n", i64(5)) + op("ADD", "/n", i64(-7)) + op("GET", "/n"))
        self.case("ADD to what was SET", op("SET", "/n2", "41") + op("ADD", "/n2", i64(1)))
        self.case("ADD to ' 12abc'", op("SET", "/y", " 12abc") + op("ADD", "/y", i64(1)))
        self.case("ADD to an empty value", op("SET", "/z", "") + op("ADD", "/z", i64(1)))
        self.case("ADD to a word", op("SET", "/w", "word") + op("ADD", "/w", i64(1)))
        self.case("ADD to a number too large", op("SET", "/l", "9" * 20) + op("ADD", "/l", i64(1)))

    def waits(self):
        self.case("WAIT for nothing", keys("WAIT"))
        self.case("WAIT for what exists", keys("WAIT", "/x", "/e"))
        creators = {"SET": op("SET", "/k0", "v"), "ADD": op("ADD", "/k1", i64(1)), "APPEND": op("APP", "/k2", "v"),
                    "CAS": op("CAS", "/k3", "", "v"), "MULTI_SET": pairs(("/k4", "v"))}
        for number, (name, creator) in enumerate(creators.items()):
            waiter, other = self.open(), self.open()
            before = waiter.ask(keys("WAIT", f"/k{number}"))
            self.line(f"WAIT, then {name}", before, other.ask(creator), waiter.ask(b""))
        waiter, other = self.open(), self.open()
        waiter.ask(keys("WAIT", "/u1", "/u2"))
        other.ask(op("SET", "/u1", "v") + op("DEL", "/u1"))
        before = waiter.ask(b"")
        other.ask(op("SET", "/u2", "v"))
        self.line("WAIT for two, the first deleted again", before, waiter.ask(b""))
        waiter, other = self.open(), self.open()
        waiter.ask(keys("WAIT", "/dup", "/dup"))
        other.ask(op("SET", "/dup", "v"))
        self.line("WAIT for one key twice", waiter.ask(b""))
        waiter = self.open()
        waiter.ask(keys("WAIT", "/v1"))
        cancelled = waiter.ask(op("CAN"))
        self.open().ask(op("SET", "/v1", "v"))
        self.line("WAIT, CANCEL_WAIT, then SET", cancelled, waiter.ask(b""))
        self.case("CANCEL_WAIT without a wait", op("CAN"))
        self.case("WAIT pending, other requests", keys("WAIT", "/v2"), op("GET", "/x"), op("SET", "/v2", "v"))
        waiter, other = self.open(), self.open()
        waiter.ask(keys("WAIT", "/v4"))
        waiter.ask(keys("WAIT", "/v5"))
        other.ask(op("SET", "/v5", "v"))
        self.line("WAIT while another WAIT is pending", waiter.ask(b""))
        gone = self.open()
        gone.ask(keys("WAIT", "/v3"))
        gone.socket.close()
        self.case("SET what a gone connection waited for", op("SET", "/v3", "v") + op("GET", "/v3"))

    def barriers(self):
        def arrive(key, world):
            return op("BAR", key, i64(world))

        first, second, third = self.open(), self.open(), self.open()
        arrivals = [first.ask(arrive("/b", 3)), second.ask(arrive("/b", 3)), third.ask(arrive("/b", 3))]
        self.line("BARRIER of three", *arrivals, first.ask(b""), second.ask(b""))
        self.line("BARRIER, a fourth arrival", third.ask(arrive("/b", 3)), third.ask(op("GET", "/b")))
        self.case("BARRIER of nobody", arrive("/b0", 0))
        cancelled = self.open()
        cancelled.ask(arrive("/bc", 2))
        self.line("BARRIER cancelled keeps its count", cancelled.ask(op("CAN")), cancelled.ask(op("GET", "/bc")))
        waiter = self.open()
        waiter.ask(keys("WAIT", "/bw"))
        self.open().ask(arrive("/bw", 2))
        before = waiter.ask(b"")
        self.open().ask(arrive("/bw", 2))
        self.line("WAIT on a barrier's key", before, waiter.ask(b""))
        parked, other = self.open(), self.open()
        parked.ask(arrive("/bf", 2))
        self.line("BARRIER pending, a CAS that fails", other.ask(op("CAS", "/bf", "x", "y")), parked.ask(b""))
        self.case("BARRIER on a word", op("SET", "/bx", "word") + arrive("/bx", 1))

    def queues(self):
        self.case("QUEUE_POP of nothing", op("QPOP", "/q0"))
        self.case("QUEUE_LEN of nothing", op("QLEN", "/q0"))
        self.case("QUEUE_PUSH twice, POP thrice", op("QPUSH", "/q", "1") + op("QPUSH", "/q", "2"), op("QLEN", "/q"),
                  op("QPOP", "/q"), op("QPOP", "/q"), op("QPOP", "/q"))
        self.case("CHECK of a queue", op("QPUSH", "/q1", "1"), keys("CHECK", "/q1"), op("QLEN", "/q1"))
        self.case("GET of a queue", op("GET", "/q1"))
        self.case("DELETE of a queue", op("DEL", "/q1"), op("QLEN", "/q1"))
        first, second, other = self.open(), self.open(), self.open()
        first.ask(keys("WAIT", "/q2"))
        second.ask(keys("WAIT", "/q2"))
        other.ask(op("QPUSH", "/q2", "v"))
        woken = sorted([first.ask(b""), second.ask(b"")])
        self.line("QUEUE_PUSH wakes one of two", *woken)
        other.ask(op("QPUSH", "/q2", "v"))
        self.line("QUEUE_PUSH again wakes the other", *sorted([first.ask(b""), second.ask(b"")]))

    def limits(self):
        self.case("key of 8 KiB", op("SET", "k" * 8192, "v"), keys("CHECK", "k" * 8192))
        self.case("key above 8 KiB", op("SET", "k" * 8193, "v"))
        self.case("value of 8 MiB", op("SET", "/big", "v" * (8 << 20)), op("GET", "/big"))
        deadline = self.deadline("limits")
        self.case("value above 8 MiB", op("SET", "/big2", u64((8 << 20) + 1)) + b"v" * 100, deadline=deadline)
        self.case("131,073 keys in a CHECK", op("CHECK", u64((128 << 10) + 1)), deadline=deadline)
        self.case("131,072 keys in a CHECK", keys("CHECK", *["/x"] * (128 << 10)))

    def run(self):
        self.handshake()
        self.values()
        self.numbers()
        self.waits()
        self.barriers()
        self.queues()
        self.limits()
        listing = self.open().ask(op("LIST"))
        self.line("LIST_KEYS and GETNUMKEYS", listing, self.open().ask(op("NUM")))
        return "\n".join(self.lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int, help="port of a fresh server on 127.0.0.1 (keys are not removed)")
    print(Suite(parser.parse_args().port).run(), end="")
