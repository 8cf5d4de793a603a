"""The fenced blocks of a guide, and how each is to be tested. A fence names it behind the language:

    sh run                 the block runs in a scratch folder (scratch.py), and must exit with 0
    sh run exit=1          ... and must exit with 1
    sh run nodes=2         ... on two nodes at once
    sh run daemon=29400    ... beside a musterd on this port
    sh run serves=29400    ... until its last background job accepts connections at this port
    sh options             nothing runs: programs must exist, and their options must be in their --help
    sh options see=PATH    ... and the test or script PATH runs it for real
    sh run=torch           ... with PyTorch and GETTING_STARTED's train.py; left out where there is no PyTorch
    python run             a program that two workers run under muster
    python run=torch       ... with PyTorch; left out where there is none
    python file=NAME       a script of GETTING_STARTED that blocks of all guides run by this name
    ini check              muster config check accepts it as a job's file
    ini check=musterd      ... musterd --check as the daemon's
    text output            lines that the block before it prints, in this order; ... stands for anything
    text, mermaid          a diagram or a layout: nothing to test
    LANGUAGE from=PATH     an excerpt: each of its lines stands in the file PATH
"""
import dataclasses
import pathlib
import re

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
FENCE = re.compile(r"^ {0,3}```(.*)$")


@dataclasses.dataclass
class Block:
    guide: pathlib.Path
    line: int
    language: str
    marks: dict
    text: str

    def __str__(self):
        return f"{self.guide.relative_to(REPOSITORY)}:{self.line}"


def blocks_of(guide):
    """All fenced blocks of one guide, in order."""
    found, begin, lines = [], None, []
    for number, line in enumerate(guide.read_text().splitlines(), 1):
        fence = FENCE.match(line)
        if not fence:
            lines.append(line)
        elif begin is None:
            begin, words, lines = number, fence[1].split(), []
        else:
            marks = dict(word.partition("=")[::2] for word in words[1:])
            found.append(Block(guide, begin, words[0] if words else "", marks, "\n".join(lines) + "\n"))
            begin = None
    if begin is not None:
        raise ValueError(f"{guide}:{begin}: a fence is not closed")
    return found


def commands(text):
    """The commands of a shell block as lists of words: continued lines are joined, comments left out, pipelines split."""
    for line in text.replace("\\\n", " ").splitlines():
        for part in re.split(r"\|\||&&|[|;&]", re.sub(r"(^|\s)#.*", "", line)):
            words = [word.strip("'\"()") for word in part.split()]
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                words.pop(0)
            if words:
                yield words


def anchors_of(guide):
    """The anchors of a guide's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", guide.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
