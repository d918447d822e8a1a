"""Draws compile_bench's result as an SVG; bench/summarize.py uses it."""
from panel import Panel, document, key

COLORS = {"chain": "#0b6e4f", "outputs": "#2f6fb0", "random": "#c0562b"}


def plot(panels):
    """A panel for each of `panels`, {title: {(graph, nodes): value}}: values over nodes, both
    logarithmic, from 100 to 100,000."""
    width, height, left, top = 300, 220, 58, 40
    out = []
    for index, (title, values) in enumerate(panels.items()):
        panel = Panel(left + index * (width + left), top, width, height, 2, 5)
        out.append(panel.title(title, above=12))
        out += map("".join, panel.rows({10 ** e: f"{10 ** e:,}" for e in range(2, 6)}))
        out += (text for _, text in panel.columns())
        for graph, color in COLORS.items():
            out += panel.curve({n: value for (g, n), value in values.items() if g == graph}, color)
    for index, (graph, color) in enumerate(COLORS.items()):
        out.append("".join(key(left + 110 * index, height + 80, height + 84, color, graph)))
    return document(left + len(panels) * (width + left), height + 100, out)
