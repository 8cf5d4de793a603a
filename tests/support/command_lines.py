"""Looks at the command lines of all processes, as `ps` of any user can, for words that must not be there."""
import pathlib
import threading


class CommandLines:
    """Use as a context manager: looks without a pause until its end. `found` has the command lines with one of `words`, and
    `seen` the names of all programs that ran meanwhile. A process that lives for less than a look may be missed."""

    def __init__(self, *words):
        self.words = [word.encode() for word in words]
        self.found, self.seen = set(), set()
        self.over = threading.Event()
        self.looking = threading.Thread(target=self.look, daemon=True)

    def __enter__(self):
        self.looking.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.looking.join()

    def look(self):
        while not self.over.wait(0.002):
            for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    line = path.read_bytes()
                except OSError:
                    continue  # it has gone meanwhile
                self.seen.add(line.partition(b"\0")[0].rpartition(b"/")[2].decode(errors="replace"))
                if any(word in line for word in self.words):
                    self.found.add(line.replace(b"\0", b" ").decode(errors="replace"))
