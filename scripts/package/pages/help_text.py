"""Reads what a program of ours prints for --help.

The text has paragraphs, headings and items. An item begins with two blanks; its words begin further to the right, and lines
that are indented deeper go on with them. A heading is a line of its own in front of items.
"""
import re
from dataclasses import dataclass, field


@dataclass
class Item:
    name: str  # "-m, --module", "--step N", "kill"
    text: str
    long: str = ""  # "--module"; empty for what is no option
    short: str = ""
    metavar: str = ""  # empty for flags

    def choices(self):
        """The words that its value may be, as far as the metavar lists them."""
        words = self.metavar.split("|")
        return [word for word in words if re.fullmatch(r"[a-z][a-z0-9-]*", word)] if len(words) > 1 else []

    def summary(self):
        """The first sentence, without the default behind it."""
        text = re.sub(r" \[[^\]]*\]$", "", self.text)
        return re.split(r"(?<=[a-z)0-9])[.;:] (?=[A-Z0-9])", text)[0].rstrip(".")


@dataclass
class Section:
    heading: str = ""
    paragraphs: list = field(default_factory=list)
    items: list = field(default_factory=list)


@dataclass
class Help:
    program: str  # "muster checkpoint"
    synopsis: list
    sections: list

    def options(self):
        """Those that are described, and those that the synopsis alone names."""
        found = [item for section in self.sections for item in section.items if item.long]
        for name, metavar in re.findall(r"\[(--[\w-]+)(?: ([^\s\[\]]+(?:\[[^\]]*\][^\s\[\]]*)?))?\]", " ".join(self.synopsis)):
            if all(item.long != name for item in found):
                found.append(Item(f"{name} {metavar}".strip(), "", name, "", metavar))
        return found


# "-m [ --module ]", "--step N", "--port arg (=29400)"
OPTION = re.compile(r"(?:(-\w) \[ )?(--[\w-]+)(?: \])?(?: (\S+)(?: \(=(.*)\))?)?")


def make_item(names, text):
    """`names` is the left column: an option, or a word like "kill"."""
    match = OPTION.fullmatch(names)
    if not match:
        return Item(names, text)
    short, long, metavar, default = (group or "" for group in match.groups())
    if default:
        text = f"{text} [{default}]"
    metavar = "VALUE" if metavar == "arg" else metavar
    name = ", ".join(filter(None, (short, long))) + (f" {metavar}" if metavar else "")
    return Item(name, text, long, short, metavar)


def column_of(lines):
    """Where the words of these items begin: at their continuations, else behind the first gap."""
    deeper = [len(line) - len(line.lstrip()) for line in lines if line.startswith("   ")]
    if deeper:
        return min(deeper)
    gaps = [re.match(r"  \S+(?: \S+)*  +", line) for line in lines]
    return min((gap.end() for gap in gaps if gap), default=len(lines[0]))


def read_items(lines):
    column = column_of(lines)
    items = []
    for line in lines:
        if line.startswith("   "):
            items[-1][1].append(line.strip())
        elif line[:column].endswith(" ") and (line[2] != "-" or OPTION.fullmatch(line[:column].strip())):
            items.append((line[:column].strip(), [line[column:].strip()]))
        else:  # too long for its column: the words begin on the next line
            items.append((line.strip(), []))
    return [make_item(names, " ".join(filter(None, text))) for names, text in items]


def read_help(program, text):
    lines = text.splitlines()
    synopsis = []
    # "usage: muster drain NODE", more forms of it below, or the command line alone on the first line.
    if lines and (lines[0].startswith("usage: ") or re.match(rf"{program} \[", lines[0])):
        synopsis.append(lines.pop(0).removeprefix("usage: "))
        while lines and lines[0].startswith("       "):
            synopsis.append(lines.pop(0).strip())
    sections = [Section()]
    block = []
    for line in [*lines, ""]:
        if line.strip():
            block.append(line.rstrip())
            continue
        add_block(sections, block)
        block = []
    return Help(program, synopsis or [f"{program} [options]"], sections)


def add_block(sections, block):
    """Lines without an empty one between them: words, and items behind them. One line in front of items is their heading."""
    first_item = next((at for at, line in enumerate(block) if line.startswith("  ")), len(block))
    words, items = block[:first_item], block[first_item:]
    if items and len(words) == 1:
        sections.append(Section(words[0].rstrip(":")))
    elif items and words:
        sections.append(Section(paragraphs=[" ".join(words)]))
    elif words and len(words) == 1 and words[0].isupper():
        sections.append(Section(words[0]))
    elif words:
        if sections[-1].items:
            sections.append(Section())
        sections[-1].paragraphs.append(" ".join(words))
    if items:
        sections[-1].items += read_items(items)
