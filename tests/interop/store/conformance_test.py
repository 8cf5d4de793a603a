"""Our store server answers raw bytes as PyTorch's own servers do, but for the differences that are listed.

conformance_libuv.txt and conformance_legacy.txt are what PyTorch's servers answered (and still do: checked here);
conformance_differences.md lists where ours answers otherwise than either, and why. `--record` writes the first two anew.
"""
import pathlib
import re
import subprocess
import sys
import unittest

import conformance
from servers import HERE, REPOSITORY, require_torch, running

require_torch("store conformance")
# A longer list of raw cases that may lie beside the checkout; its answers from PyTorch's libuv server are kept here.
GIVEN = REPOSITORY.parent / "shared" / "tools" / "tcpstore" / "raw_conformance.py"
SILENT_IN = {"libuv": ("handshake",), "legacy": ("limits",)}


def answers_of(kind):
    with running(kind) as port:
        return conformance.Suite(port, SILENT_IN.get(kind, ())).run()


def given_answers_of(kind):
    with running(kind) as port:
        output = subprocess.run([sys.executable, "-B", GIVEN, str(port), "new", "--barrier"], capture_output=True, text=True,
                                timeout=300, check=True).stdout
    # How a closed connection shows depends on who was faster; the name's padding is of no interest.
    output = re.sub(r"\"?(ConnectionResetError|BrokenPipeError)\([^)]*\)\"?", "CLOSED", output)
    return re.sub(r"  +", "  ", output.replace("'CLOSED'", "CLOSED"))


def golden(kind):
    return pathlib.Path(HERE, f"conformance_{kind}.txt")


def by_case(text):
    return dict(line.split(": ", 1) for line in text.splitlines())


def by_given_case(text):
    """{case: answer} of raw_conformance.py, whose answers begin with a bracket or with the last word."""
    return dict(re.fullmatch(r"(.*?) *(\[.*|\S+)", line).groups() for line in text.splitlines())


def listed_differences(kind):
    """{case: our answer} from the table of that server in conformance_differences.md."""
    text = pathlib.Path(HERE, "conformance_differences.md").read_text()
    section = text.split(f"## {kind}\n", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| ([^|]+) \| `(.+)` \| ([^|]+) \|$", section, re.MULTILINE)
    return {case: ours.replace("\\|", "|") for case, ours, why in rows}


class Conformance(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.ours = by_case(answers_of("ours"))

    def compare(self, kind):
        expected = by_case(golden(kind).read_text())
        self.assertEqual(list(self.ours), list(expected), "the cases changed: record the goldens anew")
        different = {case: answer for case, answer in self.ours.items() if answer != expected[case]}
        self.assertEqual(different, listed_differences(kind))

    def test_ours_answers_as_libuv_but_for_the_listed_differences(self):
        self.compare("libuv")

    def test_ours_answers_as_legacy_but_for_the_listed_differences(self):
        self.compare("legacy")

    def test_a_relay_to_ours_answers_as_ours(self):
        self.assertEqual(by_case(answers_of("relay")), self.ours)

    def test_the_golden_is_what_the_libuv_server_answers(self):
        self.assertEqual(by_case(answers_of("libuv")), by_case(golden("libuv").read_text()))

    def test_the_golden_is_what_the_legacy_server_answers(self):
        self.assertEqual(by_case(answers_of("legacy")), by_case(golden("legacy").read_text()))

    @unittest.skipUnless(GIVEN.exists(), "raw_conformance.py is not there")
    def test_the_given_list_has_the_answers_of_libuv_but_for_the_listed_differences(self):
        ours = by_given_case(given_answers_of("ours"))
        expected = by_given_case(golden("given").read_text())
        different = {case: answer for case, answer in ours.items() if answer != expected[case]}
        self.assertEqual(different, listed_differences("given"))


if __name__ == "__main__":
    if sys.argv[1:] == ["--record"]:
        for server in ("libuv", "legacy"):
            golden(server).write_text(answers_of(server))
        if GIVEN.exists():
            golden("given").write_text(given_answers_of("libuv"))
    else:
        unittest.main(verbosity=2, warnings="ignore")  # sockets are closed by going out of scope
