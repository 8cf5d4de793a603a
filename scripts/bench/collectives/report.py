"""What scripts/bench/all_reduce makes of its entries: tables, the targets, and a drawing."""

import statistics

from drawing import LogScale, element, svg


def words_of(size):
    for suffix, unit in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {suffix}"
    return f"{size} B"


class Findings:
    """The entries by number of ranks, method and size."""

    def __init__(self, settings, entries):
        self.sizes = settings["sizes"]
        self.ranks = settings["ranks"]
        self.rows = {}
        for entry in entries:
            for row in entry["rows"]:
                self.rows.setdefault((entry["ranks"], entry["method"], row["bytes"]), {})[entry["block"]] = row

    def methods(self, ranks):
        return list(dict.fromkeys(method for count, method, _ in self.rows if count == ranks))

    def medians(self, ranks, method, size):
        """A median for each block."""
        return {block: row["median_us"] for block, row in self.rows.get((ranks, method, size), {}).items()}

    def middle(self, ranks, method, size):
        medians = self.medians(ranks, method, size)
        return statistics.median(medians.values()) if medians else None

    def ratios(self, ranks, over, under, size):
        """How often `under`'s time goes into `over`'s, in each block that has both."""
        a, b = self.medians(ranks, over, size), self.medians(ranks, under, size)
        return [a[block] / b[block] for block in a if block in b]

    def spread(self, ranks, method, size):
        """95th percentile over median, of the rounds of all blocks together."""
        pooled = sorted(value for row in self.rows.get((ranks, method, size), {}).values() for value in row["quantiles_us"])
        if not pooled:
            return None
        return pooled[round(0.95 * (len(pooled) - 1))] / statistics.median(pooled)


def print_tables(findings):
    width = 26
    for ranks in findings.ranks:
        print(f"\n{ranks} ranks: microseconds, median over blocks (least-most)")
        print(f"{'':<18}" + "".join(f"{words_of(size):>{width}}" for size in findings.sizes))
        for method in findings.methods(ranks):
            cells = []
            for size in findings.sizes:
                medians = findings.medians(ranks, method, size).values()
                cells.append(f"{statistics.median(medians):,.1f} ({min(medians):,.1f}-{max(medians):,.1f})" if medians else "-")
            print(f"{method:<18}" + "".join(f"{cell:>{width}}" for cell in cells))


def targets_of(findings):
    """(what, "<=" or ">=", wanted, measured values, of which the median counts)."""
    large, small = 25 << 20, 4 << 10
    ratios = findings.ratios
    yield "25 MiB f32, 2 ranks: of the roofline's time", "<=", 1.15, ratios(2, "muster shm", "roofline", large)
    for peer, name, wanted in (("gloo tcp", "gloo over TCP", 10), ("torch gloo", "torch's gloo", 3), ("open mpi", "Open MPI", 3)):
        yield f"25 MiB f32, 2 ranks: {name}'s time of ours", ">=", wanted, ratios(2, peer, "muster shm", large)
    yield "4 KiB, 2 ranks: us", "<=", 2, list(findings.medians(2, "muster shm", small).values())
    for ranks in findings.ranks:
        for size in findings.sizes:
            won = [ratio > 1 for ratio in ratios(ranks, "open mpi", "muster shm", size)]
            share = [sum(won) / len(won)] if won else []
            yield f"{words_of(size)}, {ranks} ranks: share of blocks ahead of Open MPI", ">=", 0.9, share
    for size in findings.sizes:
        if size >= 1 << 20:
            yield f"{words_of(size)}, 4 ranks: Open MPI's time of ours", ">=", 3, ratios(4, "open mpi", "muster shm", size)
    for size in findings.sizes:
        spread = findings.spread(4, "muster shm", size)
        yield f"{words_of(size)}, 4 ranks: p95 of p50", "<=", 3, [spread] if spread else []
    for element in ("bf16", "f16"):
        half = [2 * ratio for ratio in ratios(2, "muster shm", f"muster shm {element}", large)]
        yield f"25 MiB, 2 ranks: {element}'s rate in elements of f32's", ">=", 1.8, half
    yield "25 MiB over TCP, 2 ranks: of the raw socket's time", "<=", 1.15, ratios(2, "muster tcp", "raw socket", large)
    for ranks in findings.ranks:
        for size in findings.sizes:
            yield (f"{words_of(size)} over TCP, {ranks} ranks: gloo over TCP's time of ours", ">=", 1,
                   ratios(ranks, "gloo tcp", "muster tcp", size))


def print_targets(findings):
    print(f"\n{'target':<58}{'wanted':>9}{'measured':>11}{'':>8}  blocks (least-most)")
    for what, bound, wanted, values in targets_of(findings):
        if not values:
            print(f"{what:<58}{bound + f' {wanted:g}':>9}{'-':>11}  not measured")
            continue
        value = statistics.median(values)
        met = value <= wanted if bound == "<=" else value >= wanted
        blocks = f"{len(values)} ({min(values):.2f}-{max(values):.2f})" if len(values) > 1 else ""
        print(f"{what:<58}{bound + f' {wanted:g}':>9}{value:>11.2f}  {'met' if met else 'MISSED':<6}  {blocks}")


COLOURS = ["#888888", "#c0392b", "#e67e22", "#f1c40f", "#8e44ad", "#5d4037", "#bbbbbb", "#2980b9", "#16a085", "#2c3e50"]
WIDTH, HEIGHT, GAP = 420, 320, 60


def panel(findings, ranks, number, colours):
    """The parts of one panel: time over size, both logarithmic."""
    lines = {method: [(size, findings.middle(ranks, method, size)) for size in findings.sizes
                      if findings.middle(ranks, method, size)] for method in findings.methods(ranks)}
    sizes = [size for line in lines.values() for size, _ in line]
    if not sizes:
        return []
    every = [findings.middle(count, method, size) for count, method, size in findings.rows]
    times = [value for value in every if value]  # of all panels: they can be compared by eye
    left = GAP + number * (WIDTH + GAP)
    x = LogScale(min(sizes), max(sizes), left, left + WIDTH)
    y = LogScale(min(times), max(times), GAP + HEIGHT, GAP)

    parts = [element("rect", x=left, y=GAP, width=WIDTH, height=HEIGHT, fill="none", stroke="#ccc"),
             element("text", f"{ranks} ranks", x=left, y=GAP - 12, font_weight="bold")]
    for value in y.decades():
        parts += [element("line", x1=left, x2=left + WIDTH, y1=f"{y(value):.1f}", y2=f"{y(value):.1f}", stroke="#eee"),
                  element("text", f"{value:g} us" if value < 1000 else f"{value / 1000:g} ms", x=left - 6, y=f"{y(value) + 4:.1f}",
                          text_anchor="end", fill="#666")]
    for size in findings.sizes:
        parts.append(element("text", words_of(size), x=f"{x(size):.1f}", y=GAP + HEIGHT + 16, text_anchor="middle", fill="#666"))
    for method, line in lines.items():
        path = " ".join(f"{'M' if i == 0 else 'L'}{x(size):.1f},{y(value):.1f}" for i, (size, value) in enumerate(line))
        parts.append(element("path", d=path, fill="none", stroke=colours[method], stroke_width=2))
        parts += [element("circle", cx=f"{x(size):.1f}", cy=f"{y(value):.1f}", r=3, fill=colours[method]) for size, value in line]
    return parts


def draw(findings, path):
    """An SVG with one panel a number of ranks, and a legend."""
    methods = list(dict.fromkeys(method for ranks in findings.ranks for method in findings.methods(ranks)))
    colours = {method: COLOURS[index % len(COLOURS)] for index, method in enumerate(methods)}
    parts = [part for number, ranks in enumerate(findings.ranks) for part in panel(findings, ranks, number, colours)]
    parts += [element("text", method, x=GAP + index * 125, y=GAP + HEIGHT + 44, fill=colours[method])
              for index, method in enumerate(methods)]
    path.write_text(svg(max(GAP + len(findings.ranks) * (WIDTH + GAP), GAP + 125 * len(methods)), HEIGHT + 2 * GAP, parts))
