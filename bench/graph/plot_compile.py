"""Draws compile_bench's result as an SVG; bench/summarize.py uses it."""
import math

COLORS = {"chain": "#0b6e4f", "outputs": "#2f6fb0", "random": "#c0562b"}
SIZES = {1_000: "1k", 10_000: "10k", 100_000: "100k", 1_000_000: "1M"}


def plot(panels):
    """A panel for each of `panels`, {title: {(graph, nodes): value}}: values over nodes, both
    logarithmic, from 100 to 100,000."""
    width, height, left, top = 300, 220, 58, 40
    total = left + len(panels) * (width + left)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {height + 100}" '
           f'width="{total}" height="{height + 100}" font-family="sans-serif" font-size="12">',
           f'<rect width="{total}" height="{height + 100}" fill="white"/>']
    for index, (title, values) in enumerate(panels.items()):
        x0 = left + index * (width + left)

        def at(nodes, value):
            return (x0 + (math.log10(nodes) - 3) / 3 * width,
                    top + height - (math.log10(value) - 2) / 3 * height)

        out.append(f'<text x="{x0}" y="{top - 12}" font-weight="bold">{title}</text>')
        for exponent in range(2, 6):
            y = at(1000, 10 ** exponent)[1]
            out.append(f'<line x1="{x0}" y1="{y:.1f}" x2="{x0 + width}" y2="{y:.1f}" stroke="#ddd"/>'
                       f'<text x="{x0 - 6}" y="{y + 4:.1f}" text-anchor="end">{10 ** exponent:,}</text>')
        for nodes, label in SIZES.items():
            out.append(f'<text x="{at(nodes, 100)[0]:.1f}" y="{top + height + 16}" '
                       f'text-anchor="middle">{label}</text>')
        for graph, color in COLORS.items():
            points = [at(nodes, values[graph, nodes]) for nodes in SIZES if (graph, nodes) in values]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            out.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
    for index, (graph, color) in enumerate(COLORS.items()):
        x = left + 110 * index
        out.append(f'<line x1="{x}" y1="{height + 80}" x2="{x + 24}" y2="{height + 80}" '
                   f'stroke="{color}" stroke-width="2"/>'
                   f'<text x="{x + 30}" y="{height + 84}">{graph}</text>')
    return "\n".join([*out, "</svg>", ""])
