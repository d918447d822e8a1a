"""Draws a graph as SVG: Graphviz's drawing if the program `dot` is there, else nodes in rows."""
import html
import shutil
import subprocess

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y = 150, 36, 24, 44


def graph_svg(graph):
    if shutil.which("dot"):
        drawn = subprocess.run(["dot", "-Tsvg"], input=graph.to_dot(), capture_output=True,
                               text=True, timeout=60, check=False)
        if drawn.returncode == 0:
            return drawn.stdout
    return rows_svg(graph)


def rows_svg(graph):
    """Each node below all nodes whose values it reads."""
    nodes = graph.nodes
    boxes = [("input", name, [], [name]) for name, _, _ in graph.inputs]
    boxes += [("node", n["op"] + (f" {n['name']}" if n["name"] else ""), n["inputs"], n["outputs"])
              for n in nodes]
    boxes += [("output", name, [name], []) for name in graph.outputs]
    producer = {value: i for i, box in enumerate(boxes) for value in box[3]}
    row = {}
    for _ in boxes:  # nodes may stand in any order
        changed = False
        for i, (_, _, inputs, _) in enumerate(boxes):
            before = [row.get(producer[v], 0) for v in inputs if v in producer and producer[v] != i]
            at = max(before, default=-1) + 1
            changed |= row.get(i) != at
            row[i] = at
        if not changed:
            break
    place, used = {}, {}
    for i in range(len(boxes)):
        column = used.get(row[i], 0)
        used[row[i]] = column + 1
        place[i] = (10 + column * (_WIDTH + _GAP_X), 10 + row[i] * (_HEIGHT + _GAP_Y))
    width = 20 + max(used.values(), default=0) * (_WIDTH + _GAP_X)
    height = 20 + (max(row.values(), default=-1) + 1) * (_HEIGHT + _GAP_Y)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           'font-family="sans-serif" font-size="11">']
    for i, (_, _, inputs, _) in enumerate(boxes):
        for value in inputs:
            if value not in producer:
                continue  # a constant
            x, y = place[producer[value]]
            to_x, to_y = place[i]
            out.append(f'<line x1="{x + _WIDTH / 2}" y1="{y + _HEIGHT}" x2="{to_x + _WIDTH / 2}" '
                       f'y2="{to_y}" stroke="#666"/>')
            out.append(f'<text x="{(x + to_x + _WIDTH) / 2 + 4}" y="{(y + _HEIGHT + to_y) / 2}" '
                       f'fill="#666">{html.escape(value)}</text>')
    colours = {"input": "#d6f0d6", "node": "#d6e4f5", "output": "#f5e6c8"}
    for i, (kind, text, _, _) in enumerate(boxes):
        x, y = place[i]
        shown = text if len(text) <= 22 else text[:21] + "…"
        out.append(f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" '
                   f'fill="{colours[kind]}" stroke="#888"><title>{html.escape(text)}</title></rect>')
        out.append(f'<text x="{x + _WIDTH / 2}" y="{y + _HEIGHT / 2 + 4}" text-anchor="middle">'
                   f'{html.escape(shown)}</text>')
    return "\n".join(out + ["</svg>"])
