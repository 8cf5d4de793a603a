"""A name server: name_server.py ADDRESS [silent] [NAME=IPV4 ...]. Other names do not exist.

silent: it takes every question and answers none."""
import socket
import struct
import sys

ADDRESS, SILENT = sys.argv[1], "silent" in sys.argv[2:]
NAMES = dict(word.split("=") for word in sys.argv[2:] if "=" in word)
A, NXDOMAIN = 1, 3


def answer(question):
    labels, at = [], 12
    while question[at]:
        labels.append(question[at + 1:at + 1 + question[at]].decode().lower())
        at += 1 + question[at]
    asked, (kind,) = question[12:at + 5], struct.unpack(">H", question[at + 1:at + 3])
    known = NAMES.get(".".join(labels))
    record = b"\xc0\x0c" + struct.pack(">HHIH", A, 1, 60, 4) + socket.inet_aton(known) if known and kind == A else b""
    code = 0 if known else NXDOMAIN
    return question[:2] + struct.pack(">HHHHH", 0x8180 | code, 1, 1 if record else 0, 0, 0) + asked + record


with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
    server.bind((ADDRESS, 53))
    print("ready", flush=True)
    while True:
        question, sender = server.recvfrom(512)
        print("asked", question[12:].split(b"\0")[0], flush=True)
        if not SILENT:
            server.sendto(answer(question), sender)
