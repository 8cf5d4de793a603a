#!/usr/bin/env python3
"""Manual pages, and completions in a real bash, fish and zsh: all options, the words that one accepts, files, commands."""
import gzip
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts/package/pages"))
from help_text import read_help

BUILD = Path(os.environ["MUSTER_BUILD"])
PAGES = BUILD / "scripts/package/pages"
COMMANDS = {"checkpoint", "config", "doctor", "drain", "fault", "flight", "key", "logs", "status", "top", "torch-build"}


def help_of(*program):
    return subprocess.run([str(BUILD / "bin" / program[0]), *program[1:], "--help"], env={}, text=True, check=True,
                          capture_output=True).stdout


def options_of(*program):
    return set(re.findall(r"^  (?:-\w \[ )?(--[\w-]+)", help_of(*program), re.M))


class Pages(unittest.TestCase):
    def test_there_is_a_page_for_every_program_with_all_of_its_options(self):
        names = {path.name for path in (PAGES / "man1").iterdir()}
        self.assertLessEqual({"muster.1.gz", "musterd.1.gz", "muster-stacks.1.gz",
                              *(f"muster-{command}.1.gz" for command in COMMANDS)}, names)
        for program in (["muster"], ["musterd"], ["muster", "checkpoint"]):
            page = gzip.open(PAGES / "man1" / f"{'-'.join(program)}.1.gz", "rt").read().replace("\\-", "-")
            self.assertTrue(options_of(*program))
            for option in options_of(*program):
                self.assertRegex(page, rf"\\fB{option}\\fR")
        self.assertIn("every worker of the last round exited 0", gzip.open(PAGES / "man1/muster.1.gz", "rt").read())


    def test_an_item_may_be_too_long_for_its_column(self):
        text = "tool [options]\n\nOptions:\n  -p [ --port ] arg (=29400) the port\n" \
               "  --state arg (=memory, or a file that somebody names)\n                             where\n  --check                    look\n"
        found = {item.long: (item.name, item.text) for item in read_help("tool", text).options()}
        self.assertEqual(found, {"--port": ("-p, --port VALUE", "the port [29400]"),
                                 "--state": ("--state VALUE", "where [memory, or a file that somebody names]"),
                                 "--check": ("--check", "look")})


class Bash(unittest.TestCase):
    def complete(self, *words, program="muster"):
        """What Tab offers for the last of the words."""
        script = f"""source {PAGES}/bash/muster
            COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _muster {program}; printf '%s\\n' "${{COMPREPLY[@]}}" """
        done = subprocess.run(["bash", "--norc", "-c", script, "bash", program, *words], text=True, capture_output=True,
                              cwd=self.folder, check=True)
        return set(done.stdout.split())

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="muster-completion-")
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        (self.folder / "logs").mkdir()
        (self.folder / "train.py").touch()

    def test_options_values_files_and_commands(self):
        self.assertEqual(self.complete("--"), options_of("muster"))
        self.assertEqual(self.complete("--nno"), {"--nnodes"})
        self.assertEqual(self.complete("--nproc-per-node", ""), {"auto", "gpu", "cpu"})
        self.assertEqual(self.complete("--prefix", "=", "h"), {"host"})
        self.assertEqual(self.complete("--log_dir", ""), {"logs"})
        self.assertEqual(self.complete("--log-dir", "="), {"logs"})
        self.assertEqual(self.complete("--report", "t"), {"train.py"})
        self.assertEqual(self.complete("--rdzv-id", ""), set())
        self.assertEqual(self.complete("--nnodes", "2", "tr"), {"train.py"})
        self.assertLessEqual(COMMANDS | {"train.py", "logs"}, self.complete(""))
        # Behind the user's program everything is its own.
        self.assertEqual(self.complete("train.py", "--"), set())
        self.assertEqual(self.complete("checkpoint", "--v"), {"--verify"})
        self.assertEqual(self.complete("drain", "--"), {"--job", "--rdzv-endpoint"})
        self.assertEqual(self.complete("--", program="musterd"), options_of("musterd"))


class Fish(unittest.TestCase):
    def complete(self, line):
        script = "; ".join(f"source {PAGES}/fish/{name}.fish" for name in ("muster", "musterd"))
        done = subprocess.run(["fish", "--no-config", "-c", f"{script}; complete -C '{line}'"], text=True, check=True,
                              capture_output=True)
        return {row.split("\t")[0] for row in done.stdout.splitlines()}

    def test_options_values_and_commands(self):
        self.assertEqual({word for word in self.complete("muster --") if word.startswith("--")}, options_of("muster"))
        self.assertEqual(self.complete("muster --nproc-per-node "), {"auto", "gpu", "cpu"})
        self.assertLessEqual(COMMANDS, self.complete("muster "))
        self.assertEqual({word for word in self.complete("muster drain --")}, {"--job", "--rdzv-endpoint"})
        self.assertLessEqual(options_of("musterd"), self.complete("musterd --"))


class Zsh(unittest.TestCase):
    def complete(self, line):
        """What an interactive zsh shows when the list of completions is asked for (Control-D)."""
        process, terminal = pty.fork()
        if process == 0:
            os.execvpe("zsh", ["zsh", "-f", "-i"], {"PATH": os.defpath, "TERM": "dumb", "HOME": "/nonexistent", "COLUMNS": "200"})
        try:
            self.say(terminal, f"fpath=({PAGES}/zsh $fpath); autoload -Uz compinit; compinit -u -D; unsetopt beep; LISTMAX=9999; "
                               "PS1='<pro''mpt>'\n", "<prompt>")
            # Behind the list it shows the prompt again, and the line.
            return self.say(terminal, f"{line}\x04", f"<prompt>{line}")
        finally:
            os.kill(process, 9)
            os.waitpid(process, 0)
            os.close(terminal)

    def say(self, terminal, words, until):
        """What zsh answers, up to these words."""
        os.write(terminal, words.encode())
        seen, deadline = "", time.monotonic() + 60
        while until not in seen:
            ready = select.select([terminal], [], [], max(0, deadline - time.monotonic()))[0]
            self.assertTrue(ready, f"zsh does not answer: {seen}")
            seen += os.read(terminal, 65536).decode(errors="replace")
        return seen

    def test_options_values_and_commands(self):
        shown = self.complete("muster --")
        for option in options_of("muster"):
            self.assertIn(option, shown)
        self.assertRegex(self.complete("muster --nproc-per-node="), r"auto\s+cpu\s+gpu")
        shown = self.complete("muster drain --")
        self.assertIn("--rdzv-endpoint", shown)
        self.assertNotIn("--nnodes", shown)
        self.assertIn("checkpoint", self.complete("muster "))


if __name__ == "__main__":
    absent = [shell for shell in ("bash", "fish", "zsh") if shutil.which(shell) is None]
    if absent or not PAGES.exists():
        print(f"package_pages: skipped: {', '.join(absent) or 'pages'} not there (scripts/setup --tests)")
        sys.exit(1 if os.environ.get("CI") == "true" else 77)
    unittest.main()
