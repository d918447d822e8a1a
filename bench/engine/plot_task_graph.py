"""Draws task_graph_bench's result as an SVG; bench/summarize.py uses it."""
import math

SHAPES = ["chain", "independent", "grid", "random"]
SIZES = {1_000: "1k", 10_000: "10k", 100_000: "100k", 1_000_000: "1M"}
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
    low, high = math.log10(0.4), 4.0
    total_width, total_height = left + 2 * width + gap + right, top + 2 * (height + gap) + 64
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total_width} {total_height}" '
           f'width="{total_width}" height="{total_height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{total_width}" height="{total_height}" fill="white"/>',
           f'<text x="{left}" y="24" font-size="16">Frozen task graph of empty tasks: ns a node</text>']
    for index, shape in enumerate(SHAPES):
        x0, y0 = left + (index % 2) * (width + gap), top + (index // 2) * (height + gap)

        def at(nodes, ns):
            x = x0 + (math.log10(nodes) - 3) / 3 * width
            return x, y0 + height - (math.log10(ns) - low) / (high - low) * height

        out.append(f'<text x="{x0}" y="{y0 - 8}" font-weight="bold">{shape}</text>')
        for exponent in range(0, 5):
            y = at(1000, 10 ** exponent)[1]
            out.append(f'<line x1="{x0}" y1="{y:.1f}" x2="{x0 + width}" y2="{y:.1f}" stroke="#ddd"/>')
            out.append(f'<text x="{x0 - 6}" y="{y + 4:.1f}" text-anchor="end">{10 ** exponent}</text>')
        for nodes in SIZES:
            x = at(nodes, 1)[0]
            out.append(f'<line x1="{x:.1f}" y1="{y0}" x2="{x:.1f}" y2="{y0 + height}" stroke="#eee"/>')
            out.append(f'<text x="{x:.1f}" y="{y0 + height + 16}" text-anchor="middle">'
                       f'{SIZES[nodes]}</text>')
        for contender, color in COLORS.items():
            for threads in (1, 2) if contender == "Ours" else (1,):
                points = [at(nodes, times[(contender, shape, nodes, threads)])
                          for nodes in SIZES if (contender, shape, nodes, threads) in times]
                if not points:
                    continue
                path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
                dash = ' stroke-dasharray="5 3"' if threads == 2 else ""
                out.append(f'<polyline points="{path}" fill="none" stroke="{color}" '
                           f'stroke-width="2"{dash}/>')
                out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>'
                        for x, y in points]
    x, y = left, total_height - 46
    for contender, color in [*COLORS.items(), ("two", COLORS["Ours"])]:
        label = "opkit, 2 threads" if contender == "two" else NAMES[contender]
        if x + 40 + 7 * len(label) > total_width:
            x, y = left, y + 20
        dash = ' stroke-dasharray="5 3"' if contender == "two" else ""
        out.append(f'<line x1="{x}" y1="{y - 4}" x2="{x + 24}" y2="{y - 4}" stroke="{color}" '
                   f'stroke-width="2"{dash}/>')
        out.append(f'<text x="{x + 30}" y="{y}">{label}</text>')
        x += 48 + 7 * len(label)
    return "\n".join([*out, "</svg>", ""])
