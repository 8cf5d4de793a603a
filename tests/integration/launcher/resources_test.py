"""Files, directories and limits that are full, missing, forbidden, slow or hang: each is named, with what to do, in time."""
import concurrent.futures
import os
import pathlib
import re
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "elastic"))
from job import Job, without_times  # noqa: E402
import resource_cases  # noqa: E402

SLACK = 60.0  # seconds, for a machine that others use as well
AT_ONCE = 4

CELL = r"[a-z_]+\.(?:full|missing|forbidden|slow)\b"
# What a cell of the table must have: a test, a column or program that it is like, or why there is none of them.
READABLE = re.compile(rf"^-$|^does not apply|^(as|the same)\b|`{CELL}`|`[\w/]+_test\.\w+`|[Nn]ot tried: \w")
BARE = re.compile(r"[Nn]ot tried(?!: \w)")


def rows(table):
    """The rows of every table there, without their headings."""
    lines = [line for line in table.splitlines() if line.startswith("| ") and not line.startswith("| resource |")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def run(case):
    """What is wrong with it; empty: nothing."""
    try:
        return look(case)
    except AssertionError as failure:
        return f"{case.name}: {failure}"


def look(case):
    with Job() as job:
        place = str(job.directory)
        case.plant(place)
        named = {name: value.format(place=place) for name, value in case.environment.items()}
        fill = lambda word: word.replace("{place}", place).replace("{port}", str(job.port))  # noqa: E731
        words, before = ([fill(word) for word in all_words] for all_words in (case.words, case.before))
        started = time.monotonic()
        process = job.spawn(fill(case.program), *words, before=before, **named)
        code = job.exit_code(process, case.within + SLACK)
        took = time.monotonic() - started
        said = without_times(process.out.read_text(errors="replace") + process.err.read_text(errors="replace"))
        wrong = [f"does not say {words!r}" for words in case.says if words not in said]
        if code != case.code:
            wrong.append(f"exit code {code}, expected {case.code}")
        if took < case.at_least:
            wrong.append(f"ended after {took:.1f} s already")
        job.expect_gone()
        return "\n".join([f"{case.name}: {'; '.join(wrong)}", said]) if wrong else ""


class Table(unittest.TestCase):
    def test_every_case_is_a_cell_and_every_cell_names_tests_that_there_are(self):
        tests = pathlib.Path(__file__).resolve().parents[2]
        table = (tests.parent / "agent" / "RESOURCES.md").read_text()
        peers = pathlib.Path(__file__).with_name("resource_peers_test.py").read_text()
        told = {name for words in re.findall(r'"""(.*?)"""', peers, re.DOTALL) for name in re.findall(CELL, words)}
        known = told | {case.name for case in resource_cases.all_cases()} | ({"proc.forbidden"} if not resource_cases.ROOT else set())
        self.assertEqual(known, set(re.findall(f"`({CELL})`", table)))
        bare = [(row, cell) for row, *cells in rows(table) for cell in cells if not READABLE.search(cell) or BARE.search(cell)]
        self.assertEqual(bare, [], "these cells name neither a test nor a reason")
        files = {path.name for path in tests.rglob("*_test.*")}
        self.assertEqual(set(re.findall(r"`(\w+_test\.\w+)`", table)) - files, set())


class Resources(unittest.TestCase):
    def test_each_is_named_in_time(self):
        cases = list(resource_cases.all_cases())
        self.assertEqual(len({case.name for case in cases}), len(cases))
        mounts = resource_cases.can_mount()
        self.assertTrue(mounts or not os.environ.get("CI"), "CI has mount namespaces")
        chosen = [case for case in cases if (mounts or "unshare" not in case.before) and (not sys.argv[1:] or case.name in sys.argv[1:])]
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            for case, wrong in zip(chosen, pool.map(run, chosen)):
                with self.subTest(case.name):
                    self.assertFalse(wrong, wrong)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
