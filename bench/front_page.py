#!/usr/bin/env python3
"""The measured figures of the front page: one row for each table of bench/results, and the tuned models.

Usage: front_page.py --write | --check

--write makes bench/results/README.md, which ranks the tables by the ratio of their row, the table of five ratios and
that of tuned models in README.md, each between two comments that name this script, and the plot of tuned models. --check exits with 1 if either is not what --write makes, or if
a table has no row here. A ratio is ours divided by the peer's: below 1 is faster or smaller.
"""
import pathlib
import re
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
BEGIN, END = "<!-- bench/front_page.py -->\n", "<!-- bench/front_page.py: end -->\n"
TUNED_BEGIN, TUNED_END = "<!-- bench/front_page.py: tuned -->\n", "<!-- bench/front_page.py: end of tuned -->\n"
ONNX_RUNTIME = "ONNX Runtime"


# --- reading tables

def tables(text):
    """The tables of a page: lists of {column: cell}. A second column of a name is `name 2`."""
    found = []
    for block in re.findall(r"(?:^\|.*\|\n)+", text, re.M):
        lines = [[cell.strip() for cell in line.strip("|").split(" | ")]
                 for line in block.strip().splitlines()]
        seen, columns = {}, []
        for column in lines[0]:
            seen[column] = seen.get(column, 0) + 1
            columns.append(column if seen[column] == 1 else f"{column} {seen[column]}")
        found.append([dict(zip(columns, line)) for line in lines[2:]])
    return found


def value(cell):
    """The number that a cell begins with: "1,323", "0.84x" and "9.43 ns" have one."""
    return float(re.match(r"-?[\d,.]+(?:e[+-]?\d+)?", cell)[0].replace(",", ""))


def also(row):
    """The counters of a row's last column by name."""
    return {name: float(number) for name, number in
            (part.rsplit(" ", 1) for part in row["also"].split(", "))}


def number(ratio):
    return f"{ratio:.2g}" if ratio < 0.0995 else f"{ratio:.2f}" if ratio < 9.995 else f"{ratio:.1f}"


def pair(name, peer, number_of_table=0):
    """The row of a benchmark beside its peer, in a table of bench/summarize.py."""
    def find(found):
        row = next(row for row in found[number_of_table]
                   if row["row"] == name and row["peer"] == peer)
        return row["median"], row["median 2"], value(row["ratio"])
    return find


def middle(column, peer, ratio, unit=""):
    """The model of the median ratio, of those run on one thread. `unit` is for cells without one."""
    def find(found):
        rows = sorted((row for row in found[0] if row["threads"] == "1" and row.get(ratio)),
                      key=lambda row: value(row[ratio]))
        row = rows[(len(rows) - 1) // 2]
        return f"{row[column]} {unit}".rstrip(), f"{row[peer]} {unit}".rstrip(), value(row[ratio])
    return find


def cell(table, key, ours, peer, ratio):
    """A row that `key` (column, text) names, and the columns of its figures."""
    def find(found):
        row = next(row for row in found[table] if row[key[0]] == key[1] and row[ratio])
        return row[ours], row[peer], value(row[ratio])
    return find


def frozen_graph(found):
    row = next(row for row in found[0] if row["graph"] == "grid 10k" and row["threads"] == "2")
    peer = min((row[name] for name in ("oneTBB flow graph", "Eigen pool + counters",
                                       "Eigen pool, chains inlined")), key=value)
    return row["opkit"], peer, value(row["opkit"]) / value(peer)


def placed(found):
    rows = [row for row in found[0] if row["planned"] == "until it fits the capacity"]
    ours = statistics.median(value(row["arena"]) for row in rows)
    peer = statistics.median(value(row["greedy by size, quoted"]) for row in rows)
    return f"{ours:.2f}", f"{peer:.2f}", ours / peer


def called_directly(found):
    rows = [row for row in found[0] if "direct_ns" in row["also"] and
            not row["row"].startswith(("Least", "InBlocks"))]
    ratio = statistics.median_high([also(row)["ratio"] for row in rows])
    row = next(row for row in rows if also(row)["ratio"] == ratio)
    return row["median"], f"{also(row)['direct_ns'] / 1e3:,.0f} us", ratio


def bodies(found):
    counters = also(next(row for row in found[0] if row["row"] == "BodyOverFlat/1/10"))
    flat, more = counters["flat_ns"], counters["ns_a_call"]
    return f"{flat + more:.0f} ns", f"{flat:.0f} ns", (flat + more) / flat


def counters(row, ours, peer, unit):
    """Two counters of a row."""
    def find(found):
        of = also(next(line for line in found[0] if line["row"] == row))
        return f"{of[ours]:.3g} {unit}", f"{of[peer]:.3g} {unit}", of[ours] / of[peer]
    return find


def fixed_modes(found):
    rows = [row for row in found[0] if row["row"] == "Auto/taken"]
    best = min(rows, key=lambda row: value(row["median 2"]))
    return best["median"], best["median 2"], value(best["ratio"])


def compiled(found):
    row = next(row for row in found[0] if row["row"] == "opkit/opkit.hpp")
    ratio = value(row["compiled, ratio"])  # to the peer beside it, whose seconds have no column
    return row["compiled"], f"about {value(row['compiled']) / ratio:.1f} s", ratio


def unlike(name, other):
    """Two rows of one table without peers."""
    def find(found):
        ours, theirs = (next(row["median"] for row in found[0] if row["row"] == wanted)
                        for wanted in (name, other))
        return ours, theirs, value(ours) / value(theirs)
    return find


def median_of_peers(found):
    """The row of the median ratio, of those beside a peer."""
    rows = sorted((row for row in found[0] if row.get("ratio")), key=lambda row: value(row["ratio"]))
    row = rows[(len(rows) - 1) // 2]
    return row["median"], row["median 2"], value(row["ratio"])


def goal(name, limit):
    """A figure without a peer: its goal takes the peer's place."""
    def find(found):
        row = next(row for row in found[0] if name in (row.get("row"), row.get("spans")))
        figure = row.get("p99") or row["median"]
        return figure, f"{limit:g} ms", value(figure) / limit
    return find


# Table; what its row measures; the peer; where the row stands.
ENTRIES = [
    ("models", "a run of a real model, median of the models, one thread", ONNX_RUNTIME,
     middle("ms", "ONNX Runtime", "ratio", "ms")),
    ("models", "memory of a program that runs a real model, median of the models", ONNX_RUNTIME,
     middle("MiB", "ONNX Runtime 3", "ratio 3", "MiB")),
    ("models", "the start of a program and a real model's first result, median of the models", ONNX_RUNTIME,
     middle("first", "ONNX Runtime 2", "ratio 2", "ms")),
    ("models_eigen", "a run of a real model with Eigen's kernels only, median of the models, one thread", ONNX_RUNTIME,
     middle("ms", "ONNX Runtime", "ratio", "ms")),
    ("half", "a run of a model in float16, median of the models, one thread", "the same model in float32",
     middle("float16", "float32", "ratio", "ms")),
    ("operators", "a run of an operator or a quantised model, median of them, one thread", ONNX_RUNTIME,
     middle("opkit", "ONNX Runtime", "ratio")),
    ("operators", "1,000 iterations of a Loop over three small operators", ONNX_RUNTIME,
     cell(0, ("operator or model", "Loop, 1,000 iterations of three operators"), "opkit", "ONNX Runtime", "ratio")),
    ("loop", "a filter on denormal numbers, which `flush_denormals` makes 0", "the same filter on them",
     unlike("Filter/denormal_flushed", "Filter/denormal")),
    ("task_graph", "a node of a graph of 10,000 empty tasks, two threads",
     "the best of oneTBB and Eigen's pool", frozen_graph),
    ("profiler", "recording an operator in a profile",
     "two clock reads into a vector under a mutex", pair("OperatorOn", "ClocksUnderMutex")),
    ("compile_time", "compiling `#include <opkit/opkit.hpp>`, compiled mode",
     "nlohmann/json.hpp", compiled),
    ("kernels", "a matrix product, a convolution or an LSTM, median of the rows",
     "Eigen or oneDNN called directly", called_directly),
    ("memory_plan", "the arena of a public planning problem, median; 1 is its capacity",
     "greedy by size, quoted", placed),
    ("executor", "a node of a graph of empty operators", "a plain function in a `TaskGraph`",
     pair("Executor/chain/10000/1", "TaskGraph/chain/10000/1")),
    ("dynamic", "an operation of the `Engine`, two threads", "oneTBB's task_group",
     pair("EngineIndependent/2/10000", "TbbIndependent/2/10000")),
    ("thread_pool", "submitting a task and waiting for it, two threads", "oneTBB",
     pair("SubmitAndWait/2", "SubmitAndWaitTbb/2")),
    ("replay_mode", "a frozen graph while another program takes a core", "the best fixed mode",
     fixed_modes),
    ("operator", "a run of an empty operator", "a virtual call",
     pair("RunEmpty", "PlainVirtualCall")),
    ("library", "a call into a loaded library's operator", "the same operator in the program",
     pair("LoadedOp/2", "ProgramOp/2")),
    ("cuda", "launching a small kernel and waiting for it, on an H200", "the CUDA runtime by hand",
     pair("Run", "LaunchAndWait")),
    ("body", "a run of a graph of ten nodes in the body of one node", "the same nodes without a body", bodies),
    ("profile_overhead", "a run of the model magika with a profile", "a run without a profile",
     cell(0, ("model", "magika"), "profiled", "plain", "ratio")),
    ("onednn_blocks", "a run of a detector of text in blocks of 16 channels, one thread",
     "blocks of 8", cell(0, ("model", "ocr detection"), "now", "before", "ratio")),
    ("compile", "`Compile` of a graph of 10,000 nodes, for each node", "building the graph",
     pair("Compile/chain/10000", "Build/chain/10000")),
    ("recompute", "a run of a transformer's training step in half the arena, by recomputation",
     "the same in the whole arena", unlike("Run/transformer/4/50", "Run/transformer/4/100")),
    ("selection", "choosing the kernels of a thousand nodes", "", goal("SelectThousand", 5)),
    ("partition", "partitioning a graph of a thousand nodes", "",
     goal("Partition/skips/1000", 10)),
    ("tuning", "a run of a tuned model, median of the models, one thread", ONNX_RUNTIME,
     middle("tuned", "ONNX Runtime", "tuned / ONNX Runtime", "ms")),
    ("hosts", "a call by tvm-ffi on NumPy arrays of three elements", "NumPy's `2.0 * x + y`",
     cell(0, ("call", "into a NumPy array"), "time", "its time", "ratio")),
    ("report", "a zoom in the report of 200,000 spans, 99th percentile", "",
     goal("200,384", 100)),
    ("cuda_host", "issuing a small operator on CUDA, host's time on a runtime without a device",
     "the same launch by hand", pair("RunAsyncOfOneOperator", "Launch")),
    ("pipeline", "a run of resnet50 on a pipeline of two processes with a thread each",
     "one process with two threads", counters("Resnet50", "two_ms", "one_ms", "ms")),
    ("pipeline", "a data-parallel step that communicates during the backward graph",
     "the same communication after it", counters("DataParallelStep", "on_ms", "off_ms", "ms")),
    ("all_reduce", "a run of an AllReduce of 64 KB on two processes of a machine", "MPI_Allreduce by hand",
     pair("AllReduce/2/65536", "MpiAllreduce/2/65536")),
    ("namespaces", "a data-parallel step on 2 processes, 100 Mbit/s between them, as the simulator predicts it",
     "the measured step", cell(0, ("step", "data parallel, 2 replicas"), "SimulateStep", "measured", "ratio")),
    ("one_process", "a run of an empty graph on one process of a cluster", "the same without a cluster",
     pair("Run", "RunWithout")),
    ("cuda_operators", "an operator on a CUDA device, median of the rows",
     "cuBLASLt, cuDNN, CUB, or a copy of the bytes", median_of_peers),
    ("cuda_models", "a run of a known model on a CUDA device, median of the rows",
     "Eigen's kernels on all cores", median_of_peers),
]
# Tables of ./dev gpu, which may not have been recorded yet.
OPTIONAL = {"cuda_operators", "cuda_models"}
WITHOUT_ENTRY = {"cuda_checks"}
FRONT = [0, 1, 8, 9, 10]  # those of ENTRIES that README.md shows


# --- writing

def link(name, folder=""):
    return f"[{name}]({folder}{name}.md)"


def table(header, rows):
    return "\n".join(f"| {' | '.join(row)} |" for row in
                     [header, ["---" if i == 0 or column in ("compared with", "table") else "---:"
                               for i, column in enumerate(header)], *rows]) + "\n"


def measured():
    """(table, what, peer, our figure, the peer's, ratio) of each entry, and the pages' texts."""
    pages = {path.stem: path.read_text() for path in sorted(RESULTS.glob("*.md"))
             if path.name != "README.md"}
    missing = set(pages) - {name for name, *_ in ENTRIES} - WITHOUT_ENTRY
    if missing:
        sys.exit(f"bench/front_page.py has no entry for bench/results/{min(missing)}.md")
    rows = []
    for name, what, peer, find in ENTRIES:
        if name in OPTIONAL and name not in pages:
            continue
        try:
            rows.append((name, what, peer, *find(tables(pages[name]))))
        except (LookupError, StopIteration, TypeError) as error:
            sys.exit(f"bench/results/{name}.md has no row for '{what}': {error!r}")
    return rows


def front(rows):
    shown = [[what, peer, ours, theirs, number(ratio), link(name, "bench/results/")]
             for name, what, peer, ours, theirs, ratio in (rows[i] for i in FRONT)]
    slower = next(row for row in rows if row[0] == "thread_pool")
    return table(["measured", "compared with", "opkit", "peer", "ratio", "table"], shown) + (
        "\nA ratio is ours divided by the peer's: below 1 is faster or smaller. Rows of a median show the model of the\n"
        f"median ratio. Some peers are faster: {slower[1]}, takes {number(slower[5])} times\n"
        f"as long as with {slower[2]}. [The ranked tables](bench/results/README.md) name the machine, the command and the\n"
        "spread.\n")


def index(rows):
    beside = sorted((row for row in rows if row[2]), key=lambda row: row[5])
    goals = sorted((row for row in rows if not row[2]), key=lambda row: row[5])

    def lines(chosen):
        return [[what, *([peer] if peer else []), ours, theirs, number(ratio), link(name)]
                for name, what, peer, ours, theirs, ratio in chosen]
    return (
        "# How fast is it\n\n"
        "One row for each table of this folder, best ratio first. A ratio is ours divided by the peer's: below 1 is\n"
        "faster or smaller. The tables have all rows, the spread, the machine and the command. `./dev bench NAME`\n"
        "records a table again. `bench/front_page.py --write` makes this page.\n\n"
        + table(["measured", "compared with", "opkit", "peer", "ratio", "table"], lines(beside))
        + "\nFigures without a peer, compared with their goals:\n\n"
        + table(["measured", "opkit", "goal", "ratio", "table"], lines(goals)))


def tuned_models():
    """The rows of bench/results/tuning.md, and its medians: {(ratio, threads): cell}."""
    models, medians = tables((RESULTS / "tuning.md").read_text())[:2]
    return models, {(row["ratio"], row["threads"]): row["median"] for row in medians}


def tuned_table():
    models, medians = tuned_models()
    rows = [[f"{threads} thread{'s' if threads != '1' else ''}",
             *(medians[f"{name} / ONNX Runtime", threads] for name in ("default", "best", "tuned")),
             medians["tuned / best", threads]]
            for threads in sorted({row["threads"] for row in models})]
    return table(["median of the models, divided by ONNX Runtime's time", "default", "best backend", "tuned",
                  "tuned / best backend"], rows) + (
        "\n![Real models, tuned and untuned, beside ONNX Runtime](bench/results/tuning.svg)\n\n"
        "`best backend` is the fastest of the default, Eigen alone and oneDNN alone, chosen anew for each model. "
        "[All models](bench/results/tuning.md).\n")


def tuned_plot():
    """Two bars a model, its time divided by ONNX Runtime's: default and tuned, on one thread."""
    models = [row for row in tuned_models()[0] if row["threads"] == "1" and row["tuned / ONNX Runtime"]]
    left, scale, step, top = 130, 300, 34, 50
    height = top + step * len(models) + 24
    most = max(value(row["default / ONNX Runtime"]) for row in models)
    width = left + round(scale * most) + 60
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
             f'height="{height}" font-family="sans-serif" font-size="12">',
             f'<rect width="{width}" height="{height}" fill="white"/>',
             '<text x="10" y="18" font-weight="bold">A run divided by ONNX Runtime\'s, one thread: '
             'shorter is faster</text>']
    for x, color, text in ((left, "#9db4c8", "default"), (left + 90, "#1f6f8b", "tuned")):
        parts += [f'<rect x="{x}" y="28" width="12" height="10" fill="{color}"/>',
                  f'<text x="{x + 17}" y="37">{text}</text>']
    for number_of_row, row in enumerate(models):
        y = top + step * number_of_row
        parts.append(f'<text x="{left - 8}" y="{y + 16}" text-anchor="end">{row["model"]}</text>')
        for offset, color, key in ((2, "#9db4c8", "default / ONNX Runtime"), (14, "#1f6f8b", "tuned / ONNX Runtime")):
            length = scale * value(row[key])
            parts += [f'<rect x="{left}" y="{y + offset}" width="{length:.1f}" height="11" fill="{color}"/>',
                      f'<text x="{left + length + 4:.1f}" y="{y + offset + 10}" font-size="10">{row[key]}</text>']
    parts += [f'<line x1="{left + scale}" y1="{top - 4}" x2="{left + scale}" y2="{height - 20}" stroke="#c0392b" '
              'stroke-dasharray="4 3"/>',
              f'<text x="{left + scale}" y="{height - 6}" text-anchor="middle" fill="#c0392b">ONNX Runtime</text>',
              "</svg>", ""]
    return "\n".join(parts)


def pages():
    """{path: what it is to hold}."""
    rows = measured()
    readme = (ROOT / "README.md").read_text()
    before, rest = readme.split(BEGIN)
    after = rest.split(END)[1]
    readme = before + BEGIN + front(rows) + END + after
    before, rest = readme.split(TUNED_BEGIN)
    after = rest.split(TUNED_END)[1]
    return {RESULTS / "README.md": index(rows), RESULTS / "tuning.svg": tuned_plot(),
            ROOT / "README.md": before + TUNED_BEGIN + tuned_table() + TUNED_END + after}


def write():
    for path, text in pages().items():
        path.write_text(text)


def main():
    if sys.argv[1:] == ["--write"]:
        write()
    elif sys.argv[1:] == ["--check"]:
        stale = [path.relative_to(ROOT).as_posix() for path, text in pages().items()
                 if not path.exists() or path.read_text() != text]
        if stale:
            sys.exit(f"stale: {', '.join(stale)}; run bench/front_page.py --write")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
