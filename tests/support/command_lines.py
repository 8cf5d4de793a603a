"""Looks at the command lines of all processes, as `ps` of any user can, for words that must not be there."""
import pathlib
import threading


class CommandLines:
    """Use as a context manager: looks without a pause until its end. `found` has the command lines with one of `words`, and
    `unseen` those of `programs` that did not run meanwhile. A process that lives for less than a look may be missed, so there is
    `told`: a file that exists from when all of them were seen, for what they run to wait for (`wait`, words of a shell)."""

    def __init__(self, *words, programs, told):
        self.words = [word.encode() for word in words]
        self.found, self.unseen = set(), set(programs)
        self.told = pathlib.Path(told)
        # Not for ever: after a minute `unseen` names the program.
        self.wait = f"until [ -e '{self.told}' ] || [ $((looks += 1)) -gt 1200 ]; do sleep 0.05; done"
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
            for process in pathlib.Path("/proc").glob("[0-9]*"):  # below one that is just going, glob() raises
                try:
                    line = (process / "cmdline").read_bytes()
                except OSError:
                    continue  # it has gone meanwhile
                self.unseen.discard(line.partition(b"\0")[0].rpartition(b"/")[2].decode(errors="replace"))
                if any(word in line for word in self.words):
                    self.found.add(line.replace(b"\0", b" ").decode(errors="replace"))
            if not self.unseen:
                self.told.touch()
