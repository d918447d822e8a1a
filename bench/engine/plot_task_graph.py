#!/usr/bin/env python3
"""The result of task_graph_bench as a table (Markdown, to standard output) and a plot.

Usage: plot_task_graph.py RESULT.json PLOT.svg [--instructions PROGRAM]

With --instructions, counts the instructions of a walk by callgrind first (they repeat exactly, times
do not) and adds them to RESULT.json; PROGRAM is then one made with OPKIT_BENCH_NATIVE=OFF, since
valgrind does not know every instruction.
"""
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

SHAPES = ["chain", "independent", "grid", "random"]
SIZES = [1_000, 10_000, 100_000, 1_000_000]
PEERS = ["Serial", "Tbb", "Eigen", "EigenInline", "Mutex"]
NAMES = {"Ours": "opkit", "OursCounters": "opkit, counters", "Serial": "serial counter loop",
         "Tbb": "oneTBB flow graph", "Eigen": "Eigen pool + counters",
         "EigenInline": "Eigen pool, chains inlined", "Mutex": "mutex queue"}
COLORS = {"Ours": "#0b6e4f", "Serial": "#8a8a8a", "Tbb": "#2f6fb0", "Eigen": "#c0562b",
          "EigenInline": "#d9a066", "Mutex": "#7b4fa3"}
# Not in a package registry: as published for another machine (2-core 2.5 GHz Cascade Lake class).
QUOTED = {"Taskflow 4.1": {"chain": "38-71", "independent": "80-123", "grid": "107-192",
                           "random": "111-209", "build ns": "41-209", "build bytes": "240"}}


def count_instructions(program):
    """Instructions of a node in a walk: the difference between two numbers of runs."""
    def total(shape, nodes, runs):
        with tempfile.TemporaryDirectory() as folder:
            out = f"{folder}/out"
            subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", program,
                            "--walk", shape, str(nodes), str(runs)],
                           check=True, capture_output=True)
            return int(re.search(r"^(?:summary|totals): (\d+)", pathlib.Path(out).read_text(),
                                 re.M).group(1))
    nodes = 10_000  # a square, for the grid
    return {shape: round((total(shape, nodes, 30) - total(shape, nodes, 10)) / (20 * nodes), 2)
            for shape in SHAPES}


def read(report):
    """{(contender, shape, nodes, threads): {statistic: ns of a node}} and the labels."""
    times, labels, others = {}, {}, {}
    for row in report["benchmarks"]:
        contender, shape, nodes, threads = row["name"].split("/")[:4]
        key = (contender, shape, int(nodes), int(threads))
        statistic = row.get("aggregate_name", "median")
        times.setdefault(key, {})[statistic] = row["node"] * 1e9
        labels[key] = row.get("label", "")
        if "bytes" in row and statistic == "median":
            others[key] = row["bytes"]
    return times, labels, others


def human(nodes):
    return {1_000: "1k", 10_000: "10k", 100_000: "100k", 1_000_000: "1M"}[nodes]


def table(report, times, labels, nbytes):
    lines = ["| graph | threads | opkit, ns a node | mode | " +
             " | ".join(NAMES[peer] for peer in PEERS) + " | best library / opkit |",
             "| --- " * (5 + len(PEERS)) + "|"]
    for shape in SHAPES:
        for nodes in SIZES:
            for threads in (1, 2):
                key = ("Ours", shape, nodes, threads)
                if key not in times:
                    continue
                ours = times[key]["median"]
                cells, libraries = [], []
                for peer in PEERS:
                    found = times.get((peer, shape, nodes, threads))
                    cells.append(f"{found['median']:.1f}" if found else "")
                    if found and peer in ("Tbb", "Eigen"):
                        libraries.append(found["median"])
                ratio = f"{min(libraries) / ours:.0f}x" if libraries else ""
                lines.append(f"| {shape} {human(nodes)} | {threads} | {ours:.2f} | {labels[key]} | " +
                             " | ".join(cells) + f" | {ratio} |")
    lines += ["", "| tasks of | graph | serial | opkit, 2 threads | mode | speed-up | oneTBB | speed-up |",
              "| --- " * 8 + "|"]
    for length in ("150ns", "1us", "5us", "50us"):
        for shape in SHAPES:
            found = {c: next((v["median"] for k, v in times.items()
                              if k[:2] == (c + length, shape)), None)
                     for c in ("Serial", "Ours", "Tbb")}
            if None in found.values():
                continue
            mode = next(v for k, v in labels.items() if k[:2] == ("Ours" + length, shape))
            lines.append(f"| {length} | {shape} | {found['Serial']:.0f} | {found['Ours']:.0f} | {mode} "
                         f"| {found['Serial'] / found['Ours']:.2f} | {found['Tbb']:.0f} "
                         f"| {found['Serial'] / found['Tbb']:.2f} |")
    lines += ["", "| build | opkit, ns a node | bytes | oneTBB | bytes | ratio |",
              "| --- " * 6 + "|"]
    for shape in SHAPES:
        for nodes in SIZES:
            key, peer = ("BuildOurs", shape, nodes, 1), ("BuildTbb", shape, nodes, 1)
            if key in times and peer in times:
                lines.append(f"| {shape} {human(nodes)} | {times[key]['median']:.0f} | "
                             f"{nbytes[key]:.0f} | {times[peer]['median']:.0f} | {nbytes[peer]:.0f} | "
                             f"{times[peer]['median'] / times[key]['median']:.1f}x |")
    if "instructions" in report:
        lines += ["", "Instructions a node of a walk (callgrind): " +
                  ", ".join(f"{shape} {count}" for shape, count in report["instructions"].items())]
    for name, figures in QUOTED.items():
        lines += ["", f"Quoted, {name}, another machine, ns a node: " +
                  ", ".join(f"{what} {value}" for what, value in figures.items())]
    return "\n".join(lines)


def plot(times):
    """Four panels by shape: ns a node over nodes, both logarithmic; one thread, ours on two too."""
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
                       f'{human(nodes)}</text>')
        for contender, color in COLORS.items():
            for threads in (1, 2) if contender == "Ours" else (1,):
                points = [at(nodes, times[(contender, shape, nodes, threads)]["median"])
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


def compact(report):
    """The report with the median and its spread of each benchmark, a line each."""
    keep = ("name", "run_name", "aggregate_name", "repetitions", "real_time", "time_unit", "node",
            "bytes", "label")
    rows = [json.dumps({key: row[key] for key in keep if key in row})
            for row in report["benchmarks"] if row.get("aggregate_name") in ("median", "cv")]
    head = json.dumps({**report, "benchmarks": []}, indent=1)
    return head.replace('"benchmarks": []', '"benchmarks": [\n  ' + ",\n  ".join(rows) + "\n ]") + "\n"


def main():
    result, svg, *rest = sys.argv[1:]
    report = json.loads(pathlib.Path(result).read_text())
    if rest[:1] == ["--instructions"]:
        report["instructions"] = count_instructions(rest[1])
        pathlib.Path(result).write_text(compact(report))
    times, labels, nbytes = read(report)
    pathlib.Path(svg).write_text(plot(times))
    print(table(report, times, labels, nbytes))


if __name__ == "__main__":
    main()
