"""page_block.py PAGE LANGUAGE FILE: writes the page's first block of that language into the file, for the compiler."""
import re
import sys
from pathlib import Path

page, language, file = sys.argv[1:]
Path(file).write_text(re.search(rf"^```{language}\n(.*?)^```$", Path(page).read_text(), re.M | re.S)[1])
