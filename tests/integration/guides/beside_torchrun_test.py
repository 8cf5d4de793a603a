"""The picture of the front page is what its script draws, from figures that stand in the tables of MEASURED.md."""
import json
import pathlib
import re
import subprocess
import sys
import unittest
import xml.dom.minidom

BENCH = pathlib.Path(__file__).resolve().parents[3] / "scripts/bench"
FIGURES = json.loads((BENCH / "beside_torchrun.json").read_text())


def rows_of(text, columns):
    """The rows of the tables whose heads are `columns`: first cell -> the other cells."""
    rows, inside = {}, False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[:len(columns)] == columns:
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside:
            rows[cells[0]] = cells[1:]
    return rows


def figure(cell):
    """The figure at a cell's beginning as a number, or its words."""
    number = re.match(r"[\d,.]*\d", cell)
    return float(number[0].replace(",", "")) if number else cell


class BesideTorchrun(unittest.TestCase):
    def test_the_picture_is_what_the_script_draws(self):
        drawn = subprocess.run([sys.executable, BENCH / "beside_torchrun", "--print"], capture_output=True, text=True, check=True)
        self.assertEqual(drawn.stdout, (BENCH / "beside_torchrun.svg").read_text(), "run scripts/bench/beside_torchrun")
        xml.dom.minidom.parseString(drawn.stdout)

    def test_its_figures_stand_in_the_tables(self):
        rows = rows_of((BENCH / "MEASURED.md").read_text(), ["what", "muster", "torchrun", "target"])
        for bar in (bar for group in FIGURES["groups"] for bar in group["bars"]):
            with self.subTest(bar["row"]):
                self.assertEqual([bar["muster"], bar["torchrun"]], [figure(cell) for cell in rows[bar["row"]][:2]])

    def test_the_front_page_has_the_same_figures(self):
        shown = {value for bar in (bar for group in FIGURES["groups"] for bar in group["bars"])
                 for value in (bar["muster"], bar["torchrun"])}
        for what, cells in rows_of((BENCH.parents[1] / "README.md").read_text(), ["what", "muster", "torchrun"]).items():
            if not what.startswith("---"):
                self.assertLessEqual({figure(cell) for cell in cells}, shown, what)


if __name__ == "__main__":
    unittest.main()
