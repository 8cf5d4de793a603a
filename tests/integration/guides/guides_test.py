"""The guides: their code and commands are run, their links lead somewhere, and what they list is complete."""
import concurrent.futures
import functools
import itertools
import os
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import own_tmpdir  # noqa: E402, F401
from blocks import REPOSITORY, anchors_of, blocks_of, commands  # noqa: E402
from line_times import LINE_TIME  # noqa: E402
from scratch import BUILD, PYTHON, SCRIPTS, Scratch, lacking  # noqa: E402

GUIDES = [REPOSITORY / name for name in (
    "README.md", "launcher/GETTING_STARTED.md", "launcher/FROM_TORCHRUN.md", "launcher/ARCHITECTURE.md",
    "rendezvous/OPERATING.md", "worker_runtime/python/PYTORCH.md", "agent/TROUBLESHOOTING.md", "scripts/bench/MEASURED.md", "scripts/CONTRIBUTING.md")]
FOLDERS = ("launcher", "rendezvous", "agent", "worker_runtime", "tests", "scripts")
DOCUMENTS = sorted(path for folder in FOLDERS for path in (REPOSITORY / folder).rglob("*.md")) + [
    REPOSITORY / name for name in ("README.md", "SECURITY.md")]
# Their blocks have tests of their own.
ELSEWHERE = {REPOSITORY / page: REPOSITORY / test for page, test in (
    ("worker_runtime/RUNTIME.md", "tests/integration/runtime/context_test.py"),
    ("worker_runtime/capi/C_API.md", "tests/integration/capi/c_api_test.py"),
    ("worker_runtime/python/PYTHON.md", "tests/integration/capi/python_test.py"),
    ("worker_runtime/data/DATA_ORDER.md", "tests/integration/capi/sampler_test.py"))}
WITH_TORCH = {"PYTHON_EXEC": PYTHON, "PYTHONPATH": str(REPOSITORY / "worker_runtime/python")}
OURS = ("muster", "musterd", "muster-stacks")
COMMANDS = ("checkpoint", "config", "doctor", "drain", "fault", "flight", "key", "logs", "status")


@functools.cache
def help_of(program, *command):
    """What a program, a path of it, or one of its commands prints for --help; None where it cannot be run."""
    if not os.access(program, os.X_OK):
        return None
    done = subprocess.run([program, *command, "--help"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200,
                          env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    return done.stdout + done.stderr


@functools.cache
def sources():
    """The text of all C++ files but the tests'."""
    return "\n".join(path.read_text() for folder in FOLDERS[:4] for pattern in ("*.cpp", "*.h")
                     for path in (REPOSITORY / folder).rglob(pattern))


def program_of(word):
    """The path of a program of this repository that a guide names, else None."""
    name = word.removeprefix("./")
    if name.removeprefix("build/release/bin/") in OURS or name.startswith("build/release/bin/"):
        return BUILD / "bin" / name.split("/")[-1]
    return REPOSITORY / name if name.startswith("scripts/") else None


def option_faults(text):
    """What is wrong with the programs and options of a shell block."""
    for words in commands(text):
        at = next((i for i, word in enumerate(words) if program_of(word)), None)
        if at is None:
            continue
        program = program_of(words[at])
        if not program.exists():
            yield f"{words[at]} does not exist"
            continue
        own = itertools.takewhile(lambda word: not word.endswith(".py"), words[at + 1:])
        options = [word.partition("=")[0] for word in own if word.startswith("--")]
        known = help_of(str(program), *[word for word in words[at + 1:at + 2] if word in COMMANDS]) if options else ""
        yield from (f"{words[at]} has no option {option}" for option in options
                    if known is not None and not re.search(re.escape(option) + r"\b", known))


def see_faults(block):
    """Commands of which the test that is said to run them, and its parts beside it, know nothing."""
    if "see" not in block.marks:
        return []
    path = REPOSITORY / block.marks["see"]
    if not path.exists():
        return [f"{block.marks['see']} does not exist"]
    known = path.read_text() + "".join(part.read_text() for part in path.parent.glob("*.py"))
    return [f"{block.marks['see']} runs nothing like '{' '.join(words)}'" for words in commands(block.text)
            if not any(word.split("/")[-1] in known for word in words if not word.startswith("-"))]


def output_faults(expected, output):
    """The first line of a `text output` block that the output lacks."""
    # Before the time there may be words of a worker that was stopped in its print(), which writes the line's end apart.
    rest = iter(re.sub(f"^.*?{LINE_TIME}", "", line) for line in output.splitlines())
    for wanted in filter(str.strip, expected.splitlines()):
        pattern = re.compile(".*".join(map(re.escape, wanted.strip().split("..."))))
        if not any(pattern.fullmatch(line.strip()) for line in rest):
            return [f"prints no line '{wanted.strip()}' here; it prints:\n{output}"]
    return []


def run_faults(block, expected):
    """Runs one block. `expected` is the text of the `text output` block behind it, or empty."""
    variables = WITH_TORCH if block.marks["run"] == "torch" else {}
    with Scratch() as scratch:
        if block.language == "python":
            scratch.write("train.py", block.text)
            code, output = scratch.run("muster --nproc-per-node=2 train.py", **variables)
        else:
            if variables:
                scratch.write("train.py", SCRIPTS["train.py"])
            code, output = scratch.run(block.text, int(block.marks.get("nodes", 1)), block.marks.get("daemon"),
                                       block.marks.get("serves"), **variables)
    if code != int(block.marks.get("exit", 0)):
        return [f"exits with {code}; it prints:\n{output}"]
    return output_faults(expected, output)


def check_faults(block):
    """What muster config check, or musterd --check, finds in a file of options."""
    command = "musterd --check --config" if block.marks["check"] == "musterd" else "muster config check"
    with Scratch() as scratch:
        scratch.write("train.conf", block.text.replace("/opt/train", str(scratch.folder)))
        code, output = scratch.run(f"{command} train.conf")
    return [f"{command}: {output}"] if code else []


def excerpt_faults(block):
    """The lines of an excerpt that its file lacks."""
    source = {line.strip() for line in (REPOSITORY / block.marks["from"]).read_text().splitlines()}
    return [f"{block.marks['from']} has no line '{line.strip()}'" for line in block.text.splitlines()
            if line.strip() not in source | {"", "..."}]


def faults_of(block, following):
    """What is wrong with one block, as a list of sentences."""
    marks = block.marks
    if "from" in marks:
        return excerpt_faults(block)
    if block.language in ("text", "mermaid") or (block.language == "python" and "file" in marks and "run" not in marks):
        return []
    if block.language == "ini" and "check" in marks:
        return check_faults(block)
    if block.language == "sh" and "options" in marks:
        return list(option_faults(block.text)) + see_faults(block)
    if block.language in ("sh", "python") and "run" in marks:
        if marks["run"] == "torch" and not os.access(PYTHON, os.X_OK):
            return ["needs PyTorch"] if os.environ.get("CI") == "true" else []
        return run_faults(block, following.text if following and "output" in following.marks else "")
    return ["the fence does not say how the block is tested: see tests/integration/guides/blocks.py"]


class Blocks(unittest.TestCase):
    def test_every_block(self):
        work = []
        for document in [path for path in DOCUMENTS if path not in ELSEWHERE]:
            blocks = blocks_of(document)
            work += [(block, following) for block, following in zip(blocks, [*blocks[1:], None])
                     if block.language or document in GUIDES]  # elsewhere a fence without a language holds no code
        with concurrent.futures.ThreadPoolExecutor(max_workers=3) as pool:
            results = list(pool.map(lambda pair: faults_of(*pair), work))
        wrong = [f"{block}: {fault}" for (block, _), faults in zip(work, results) for fault in faults]
        self.assertFalse(wrong, "\n" + "\n".join(wrong))


    def test_other_pages_have_their_own_tests(self):
        for page, test in ELSEWHERE.items():
            self.assertIn(str(page.relative_to(REPOSITORY)), test.read_text(), test)


class Texts(unittest.TestCase):
    def test_links_lead_somewhere(self):
        wrong = []
        for document in DOCUMENTS:
            text = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
            for target in re.findall(r"\]\(([^)\s]+)\)", text):
                if re.match(r"[a-z]+:", target):
                    continue
                name, _, anchor = target.partition("#")
                there = (document.parent / name) if name else document
                if not there.exists() or (anchor and anchor not in anchors_of(there)):
                    wrong.append(f"{document.relative_to(REPOSITORY)}: nothing is at {target}")
        self.assertFalse(wrong, "\n".join(wrong))

    def test_paths_that_guides_name_exist(self):
        named = re.compile(r"`((?:" + "|".join(FOLDERS) + r")/[\w./@-]*[\w/])`")
        wrong = [f"{guide.relative_to(REPOSITORY)}: {name}" for guide in GUIDES for name in named.findall(guide.read_text())
                 if not (REPOSITORY / name).exists()]
        self.assertFalse(wrong, "these do not exist:\n" + "\n".join(wrong))

    def test_the_front_page_is_short(self):
        self.assertLessEqual(len((REPOSITORY / "README.md").read_text().splitlines()), 150)

    def test_tables_of_options_are_those_of_help(self):
        for program, guide, title in (("muster", "launcher/FROM_TORCHRUN.md", "All options"),
                                      ("musterd", "rendezvous/OPERATING.md", "All options of musterd")):
            section = (REPOSITORY / guide).read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]
            listed = set(re.findall(r"^\| `(?:-\w`, `)?(--[\w-]+)", section, flags=re.MULTILINE))
            text = help_of(str(BUILD / "bin" / program)).split("\nCommands")[0]
            known = set(re.findall(r"^  (?:-\w \[ )?(--[\w-]+)", text, flags=re.MULTILINE))
            self.assertEqual(listed, known, guide)

    def test_no_variable_of_the_sources_or_of_a_table_is_unknown_to_muster(self):
        """muster warns of a MUSTER_* variable that nothing reads, so never of one that it gives to workers."""
        rows = "\n".join(re.findall(r"^\| (`MUSTER_[^|]*)\|", "\n".join(path.read_text() for path in DOCUMENTS), re.MULTILINE))
        names = set(re.findall(r'"(MUSTER_[A-Z_]+)[="]', sources())) | set(re.findall(r"`(MUSTER_[A-Z_]+)", rows))
        options = {option[2:].upper().replace("-", "_") for option in re.findall(r"--[a-z-]+", help_of(str(BUILD / "bin/muster")))}
        given = {name for name in names if name.removeprefix("MUSTER_") not in options} | {"MUSTER_QQQQQQQQ"}
        with Scratch() as scratch:
            scratch.write("train.conf", "no-python = yes\nprogram = /bin/true\n")
            _, output = scratch.run("muster config check train.conf", **dict.fromkeys(given, "1"))
        self.assertEqual(re.findall(r"(MUSTER_\w+) is set, but", output), ["MUSTER_QQQQQQQQ"], output)

    def test_functions_that_guides_name_exist(self):
        code = sources()
        wrong = [f"{guide.relative_to(REPOSITORY)}: {name}()" for guide in GUIDES if guide.parent.name in FOLDERS
                 for name in re.findall(r"`(\w+)\(\)`", guide.read_text())
                 if not re.search(rf"\b{name}\(", code) and name not in ("destroy_process_group",)]
        self.assertFalse(wrong, "these do not exist:\n" + "\n".join(wrong))

    def test_messages_are_those_of_the_code(self):
        joined = re.sub(r'"\s*"', "", sources()).replace('\\"', '"')
        wrong = []
        for message in re.findall(r"^\*\*`(.*)`\*\*$", (REPOSITORY / "agent/TROUBLESHOOTING.md").read_text(), re.MULTILINE):
            for words in filter(None, (part.strip() for part in message.split("..."))):
                if words not in joined:
                    wrong.append(f"{message}: no message has '{words}'")
        self.assertFalse(wrong, "\n".join(wrong))


if __name__ == "__main__":
    if reason := lacking():
        print(f"guides: skipped: {reason}")
        sys.exit(77)
    unittest.main(verbosity=2)
