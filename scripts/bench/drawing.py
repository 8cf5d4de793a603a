"""The parts of an SVG drawing that the benchmarks share: elements, a logarithmic scale, and the document around them."""
import html
import math


def element(name, words=None, **attributes):
    """One SVG element. An underscore in an attribute's name becomes a dash."""
    fields = "".join(f' {key.replace("_", "-")}="{value}"' for key, value in attributes.items())
    return f"<{name}{fields}/>" if words is None else f"<{name}{fields}>{html.escape(words, quote=False)}</{name}>"


class LogScale:
    """Maps values from `least` to `most` onto the coordinates from `start` to `end`."""

    def __init__(self, least, most, start, end, base=10):
        self.base, self.start, self.end = base, start, end
        self.least, self.most = math.log(least, base), math.log(most, base)

    def __call__(self, value):
        share = (math.log(value, self.base) - self.least) / max(self.most - self.least, 1e-9)
        return self.start + share * (self.end - self.start)

    def decades(self):
        """The powers of ten within the scale."""
        return [10.0 ** power for power in range(math.ceil(self.least - 1e-9), math.floor(self.most + 1e-9) + 1)]


def svg(width, height, parts):
    """The document. Its own white ground keeps it readable on dark pages."""
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" rx="6" fill="white"/>\n'
            + "\n".join(parts) + "\n</svg>\n")
