"""Panels of curves over the nodes of a graph, in SVG; the benchmarks' pictures are made of them."""
import math

SIZES = {1_000: "1k", 10_000: "10k", 100_000: "100k", 1_000_000: "1M"}


def document(width, height, parts):
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
            f'<rect width="{width}" height="{height}" fill="white"/>']
    return "\n".join([*head, *parts, "</svg>", ""])


def key(x, y, text_y, color, text, dash=""):
    """A line of a color, and its name."""
    return [f'<line x1="{x}" y1="{y}" x2="{x + 24}" y2="{y}" stroke="{color}" '
            f'stroke-width="2"{dash}/>', f'<text x="{x + 30}" y="{text_y}">{text}</text>']


class Panel:
    """Both axes are logarithmic: 1k to 1M nodes across, 10^low to 10^high up."""

    def __init__(self, x, y, width, height, low, high):
        self.x, self.y, self.width, self.height = x, y, width, height
        self.low, self.high = low, high

    def at(self, nodes, value):
        return (self.x + (math.log10(nodes) - 3) / 3 * self.width,
                self.y + self.height -
                (math.log10(value) - self.low) / (self.high - self.low) * self.height)

    def title(self, text, above):
        return f'<text x="{self.x}" y="{self.y - above}" font-weight="bold">{text}</text>'

    def rows(self, ticks):
        """For each of {value: text} a line across, and the text."""
        for value, text in ticks.items():
            y = self.at(1000, value)[1]
            yield [f'<line x1="{self.x}" y1="{y:.1f}" x2="{self.x + self.width}" y2="{y:.1f}" '
                   'stroke="#ddd"/>',
                   f'<text x="{self.x - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>']

    def columns(self):
        """For each of SIZES a line up, and the text."""
        bottom = self.y + self.height
        for nodes, text in SIZES.items():
            x = self.at(nodes, 1)[0]
            yield [f'<line x1="{x:.1f}" y1="{self.y}" x2="{x:.1f}" y2="{bottom}" stroke="#eee"/>',
                   f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{text}</text>']

    def curve(self, values, color, dash="", dots=False):
        """A curve through {nodes: value}; with `dots`, where it has values."""
        points = [self.at(nodes, values[nodes]) for nodes in SIZES if nodes in values]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        return [f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"{dash}/>',
                *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>'
                  for x, y in points if dots)]
