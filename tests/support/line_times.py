"""Lines of muster's own begin with the time where no terminal shows them: tests compare what follows it."""
import re

LINE_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d "


def without_times(text):
    """`text` without the time that begins a line."""
    return re.sub(f"^{LINE_TIME}", "", text, flags=re.MULTILINE)
