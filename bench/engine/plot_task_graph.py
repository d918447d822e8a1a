"""Draws task_graph_bench's result as an SVG; bench/summarize.py uses it."""
import math
from itertools import chain

from panel import SIZES, Panel, document, key

SHAPES = ["chain", "independent", "grid", "random"]
PEERS = {"Serial": "serial counter loop", "Tbb": "oneTBB flow graph",
         "Eigen": "Eigen pool + counters", "EigenInline": "Eigen pool, chains inlined",
         "Mutex": "mutex queue"}
NAMES = {"Ours": "opkit", **PEERS}
COLORS = {"Ours": "#0b6e4f", "Serial": "#8a8a8a", "Tbb": "#2f6fb0", "Eigen": "#c0562b",
          "EigenInline": "#d9a066", "Mutex": "#7b4fa3"}


def plot(times):
    """Four panels by shape: ns a node over nodes, both logarithmic; one thread, ours on two too.
    `times` is {(contender, shape, nodes, threads): ns a node}."""
    width, height, left, top, right, gap = 300, 240, 58, 56, 20, 46
    total_width, total_height = left + 2 * width + gap + right, top + 2 * (height + gap) + 64
    two = ' stroke-dasharray="5 3"'
    out = [f'<text x="{left}" y="24" font-size="16">Frozen task graph of empty tasks: ns a node</text>']
    for index, shape in enumerate(SHAPES):
        panel = Panel(left + (index % 2) * (width + gap), top + (index // 2) * (height + gap),
                      width, height, math.log10(0.4), 4.0)
        out.append(panel.title(shape, above=8))
        out += chain(*panel.rows({10 ** e: 10 ** e for e in range(0, 5)}), *panel.columns())
        for contender, color in COLORS.items():
            for threads in (1, 2) if contender == "Ours" else (1,):
                values = {nodes: times[contender, shape, nodes, threads] for nodes in SIZES
                          if (contender, shape, nodes, threads) in times}
                if values:
                    out += panel.curve(values, color, two if threads == 2 else "", dots=True)
    x, y = left, total_height - 46
    for label, color, dash in [*((NAMES[contender], color, "") for contender, color in COLORS.items()),
                               ("opkit, 2 threads", COLORS["Ours"], two)]:
        if x + 40 + 7 * len(label) > total_width:
            x, y = left, y + 20
        out += key(x, y - 4, y, color, label, dash)
        x += 48 + 7 * len(label)
    return document(total_width, total_height, out)
