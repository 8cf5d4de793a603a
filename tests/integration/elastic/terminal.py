"""A muster command on a terminal of its own, and what a person would see there."""
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

from job import BIN, wait_for

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?25h\x1b[?1049l"
SEQUENCE = re.compile(rb"\x1b\[(\??)([0-9;]*)([A-Za-z])")


class Cells:
    """The cells of a terminal that knows what muster writes: cursor, erase, colors. Anything else is an error."""

    def __init__(self, rows, columns):
        self.row = self.column = self.rows = self.columns = 0
        self.resize(rows, columns)

    def resize(self, rows, columns):
        self.most = (max(rows, self.rows), max(columns, self.columns))  # until the command has seen the new size, and erases all
        self.row = min(self.row, rows - 1)
        self.rows, self.columns = rows, columns
        self.cells = [[" "] * columns for _ in range(rows)]

    def feed(self, text):
        """Returns what is only the beginning of a sequence or of a character."""
        at = 0
        while at < len(text):
            if text[at:at + 1] == b"\x1b":
                found = SEQUENCE.match(text, at)
                if not found:
                    assert len(text) - at < 16, text[at:at + 40]
                    return text[at:]
                self.obey(found[1] == b"?", found[2].decode(), found[3].decode())
                at = found.end()
                continue
            size = 1 if text[at] < 0xC0 else 2 if text[at] < 0xE0 else 3 if text[at] < 0xF0 else 4
            if at + size > len(text):
                return text[at:]
            self.cells[self.row][min(self.column, self.columns - 1)] = text[at:at + size].decode()
            self.column += 1
            at += size
        return b""

    def obey(self, private, words, command):
        if command == "H":
            row, column = (int(word) for word in words.split(";"))
            assert 1 <= row <= self.most[0] and 1 <= column <= self.most[1], (row, column)
            self.row, self.column = min(row, self.rows) - 1, column - 1
        elif command == "K":
            self.cells[self.row][self.column:] = [" "] * (self.columns - self.column)
        elif command == "J":
            self.most = (self.rows, self.columns)
            self.cells = [[" "] * self.columns for _ in range(self.rows)]
        else:
            assert command == "m" or (private and command in "hl"), command

    def text(self):
        return "\n".join("".join(row).rstrip() for row in self.cells)


class Screen:
    """`muster WORDS`, perhaps by another program that gets it as its words, with the terminal as its standard streams."""

    def __init__(self, job, *words, rows=24, columns=80, by=(), **extra):
        self.master, self.slave = pty.openpty()
        self.cells = Cells(rows, columns)
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        self.bytes = self.rest = b""

        def own_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        self.process = subprocess.Popen([*by, BIN / "muster", *words, "--rdzv-endpoint", f"127.0.0.1:{job.port}"],
                                        stdin=self.slave, stdout=self.slave, stderr=self.slave, preexec_fn=own_terminal,
                                        cwd=job.directory, env=job.environment(**{"TERM": "xterm", **extra}))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)

    def read(self):
        while select.select([self.master], [], [], 0)[0]:
            got = os.read(self.master, 65536)
            self.bytes += got
            if LEAVE not in self.bytes:
                self.rest = self.cells.feed(self.rest + got)
        return self.bytes

    def text(self):
        self.read()
        return self.cells.text()

    def wait(self, what, condition):
        try:
            wait_for(what, condition)
        except AssertionError as late:
            raise AssertionError(f"{late} on this screen:\n{self.text()}") from None

    def expect(self, text):
        """Text that a person sees now."""
        self.wait(repr(text), lambda: text in self.text())

    def expect_match(self, pattern):
        self.wait(pattern, lambda: re.search(pattern, self.text()))

    def expect_gone(self, text):
        self.wait(f"screen without {text!r}", lambda: text not in self.text())

    def press(self, keys):
        os.write(self.master, keys)

    def resize(self, rows, columns):
        self.read()
        self.cells.resize(rows, columns)
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def draw_again_after(self, act):
        """What was drawn before is forgotten, e.g. because the process was stopped."""
        self.read()
        self.bytes = self.rest = b""
        self.cells.resize(self.cells.rows, self.cells.columns)
        act()

    def expect_whole(self, *codes, seconds=60):
        deadline = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < deadline:
            self.read()
            time.sleep(0.005)  # between two looks
        assert self.process.poll() in codes, self.process.poll()
        assert LEAVE in self.read(), self.bytes[-200:]
        assert termios.tcgetattr(self.slave) == self.before
        return self.bytes.rpartition(LEAVE)[2]
