#!/usr/bin/env python3
"""Makes the manual pages and the shells' completions from the programs' own --help, so that no option stands twice.

    pages.py --bin BUILD/bin --written scripts/package/man --version 0.1.0 OUT

`written` has PROGRAM.man for each page: its first line is what NAME says, the rest follows what --help says. The page of
"muster drain" is muster-drain.man. OUT gets man1/*.1.gz, bash/, zsh/ and fish/. Equal programs give equal bytes.
"""
import argparse
import gzip
import re
import subprocess
from pathlib import Path

import completions
from help_text import read_help
from man_page import man_page


def help_of(folder, program):
    """With an empty environment: --help shows the defaults in force."""
    name, *command = program.split()
    done = subprocess.run([str(folder / name), *command, "--help"], env={}, text=True, capture_output=True)
    if done.returncode != 0 or not done.stdout:
        raise SystemExit(f"pages: {program} --help: exit code {done.returncode}: {done.stderr.strip()}")
    return read_help(program, done.stdout)


def read_written(folder, program):
    """(words for NAME, roff that follows)."""
    path = folder / f"{program.replace(' ', '-')}.man"
    if not path.exists():
        raise SystemExit(f"pages: {program} has no written part: {path}")
    about, _, rest = path.read_text().partition("\n")
    return about, rest


def programs_of(folder):
    """muster and its commands, which its --help lists, and the other programs."""
    text = help_of(folder, "muster")
    commands = next((section.items for section in text.sections if section.heading.startswith("Commands")), [])
    names = [re.match(r"[\w-]*", item.name)[0] for item in commands]
    return ["muster", *(f"muster {name}" for name in names), "musterd", "muster-stacks"]


def write_gzip(path, text):
    with open(path, "wb") as file, gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=9, mtime=0) as packed:
        packed.write(text.encode())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--written", type=Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    helps = []
    for folder in ("man1", "bash", "zsh", "fish"):
        (options.out / folder).mkdir(parents=True, exist_ok=True)
    for program in programs_of(options.bin):
        text = help_of(options.bin, program)
        text.about, written = read_written(options.written, program)
        helps.append(text)
        page = man_page(text, about=text.about, version=options.version, written=written)
        write_gzip(options.out / "man1" / f"{program.replace(' ', '-')}.1.gz", page)
    helps = [text for text in helps if text.options() or " " in text.program]
    (options.out / "bash" / "muster").write_text(completions.bash(helps))
    (options.out / "zsh" / "_muster").write_text(completions.zsh(helps))
    for program in ("muster", "musterd"):
        (options.out / "fish" / f"{program}.fish").write_text(completions.fish(helps, program))


if __name__ == "__main__":
    main()
