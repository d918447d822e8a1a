#!/usr/bin/env python3
"""Makes tables of recorded results: writes bench/results/NAME.md for build/bench/NAME.json, and prints it.
Then it writes the index of the tables and README's figures anew (front_page.py).

Usage: summarize.py RESULT.json...

The JSON comes from bench/record.py (a Google Benchmark program), tools/dev/gpu.py, bench/models/models.py,
bench/models/half.py, bench/models/operators.py, bench/tuning/tuning.py, bench/hosts/hosts.py,
bench/compile_time/compile_time.py, bench/cluster/all_reduce.py or bench/cluster/namespaces.py. Figures
are medians. A spread is the coefficient of variation of the repetitions, or the least and the largest. A ratio is ours
divided by the peer's: below 1 is faster or smaller. Quoted figures were published for peers that no package registry
has, on another machine (2-core 2.5 GHz Cascade Lake class).
"""
import ast
import json
import pathlib
import statistics
import sys
import textwrap

BENCH = pathlib.Path(__file__).resolve().parent
sys.path += [str(BENCH), str(BENCH / "engine"), str(BENCH / "graph")]
import front_page  # noqa: E402
from panel import SIZES  # noqa: E402
from plot_compile import plot as plot_compile  # noqa: E402
from plot_task_graph import NAMES, PEERS, SHAPES, plot  # noqa: E402

# Benchmark: our rows and the peer's rows of the same arguments, or of those after the peer's name.
PAIRS = {
    "dynamic": [("EngineChain", "TbbChain"), ("EngineChain", "MutexPoolChain"),
                ("EngineIndependent", "TbbIndependent"),
                ("EngineIndependent", "MutexPoolIndependent")],
    "compile": [("Compile", "Build")],
    "replay_mode": [("Auto", "Walk"), ("Auto", "Levels"), ("Auto", "Counters")],
    "executor": [("Executor", "TaskGraph"), ("Executor", "VirtualCalls"),
                 ("Executor", "SimpleNet")],
    "operator": [("RunEmpty", "PlainVirtualCall"),
                 ("InvokeHandleIntoOutputs", "BenchAxpy/cpu/reference/float32/[16]")],
    "profiler": [("OperatorOn", "ClocksUnderMutex"), ("SubOperatorsOn", "ClocksUnderMutex"),
                 ("ScopeOn", "ClocksUnderMutex"), ("ScopeOn", "TicksIntoRing")],
    "cuda": [("Run", "LaunchAndWait"), ("RunAsyncAndFinish", "LaunchAndWait"),
             ("RunAsyncWithoutEvent", "LaunchOnly"), ("ChainOfThousand", "LaunchThousand"),
             ("ChainOfThousand", "LaunchThousandAsCudaGraph"),
             ("CapturedChainOfThousand", "LaunchThousandAsCudaGraph"),
             ("CapturedChainOfThousandWithCopies", "LaunchThousandAsCudaGraph"),
             ("CapturedEightChainsOf125", "LaunchThousandAsCudaGraph"),
             ("EightChainsOf125", "LaunchThousand"),
             ("AllocateStorageInARun", "AllocateAsyncByHand"),
             ("AllocateStorageOnDevice", "AllocateAsyncByHand"),
             ("KernelByParallelFor", "KernelByHand")],
    "cuda_host": [("RunAsyncOfOneOperator", "Launch"), ("RunAsyncOfThousandOperators", "Launch"),
                  ("RunChainOfThousand", "LaunchThousandAndWait")],
    "cuda_operators": [(op, peer + op) for peer, ops in {
        "CublasLt": ["MatMul"], "Cudnn": ["Conv", "Softmax", "MaxPool"], "Cub": ["ReduceSum", "CumSum"],
        "Memcpy": ["Relu", "Sigmoid", "Tanh", "Erf", "Gelu", "Exp", "Add", "Mul", "Cast", "Transpose", "Concat",
                   "LayerNormalization", "Gather"]}.items() for op in ops],
    "cuda_models": [("Cuda", "Cpu")],
    "all_reduce": [("AllReduce", "MpiAllreduce"), ("AllReduce", "MpiIallreduce")],
    "one_process": [("Compile", "CompileWithout"), ("Run", "RunWithout")],
    "library": [("LoadedOp", "DirectCall"), ("LoadedOp", "ProgramOp"),
                ("LoadedOpOfVectors", "DirectCall")],
    "thread_pool": [("SubmitAndWait", "SubmitAndWaitTbb"), ("SubmitParked", "SubmitParkedTbb"),
                    ("SubmitParked", "FutexWakeAndRun"),
                    ("SubmitParkedAndWait", "SubmitParkedAndWaitTbb"),
                    ("SubmitParkedAndWait", "FutexWake"), ("TaskGroup", "TaskGroupTbb"),
                    ("LoopParallelForAuto", "LoopPlain"), ("LoopParallelForAuto", "LoopTbb"),
                    ("LoopParallelForGrain10000", "LoopPlain")],
}
QUOTED = {
    "dynamic": "an operation of MXNet's engine: chain 1,180-2,630 ns, independent 1,830-2,820 ns; "
               "of Taskflow's dependent async: 261-382 ns",
    "executor": "an operator of Caffe2's async nets: 205-850 ns",
    "operator": "an operator of Caffe2's nets: 205-850 ns async, 820-2,255 ns simple; PyTorch's "
                "dispatcher: 34-107 ns typed, 107 ns boxed",
    "library": "PyTorch's boxed call: 107 ns, its operators defined in Python: 1,400-10,700 ns; an "
               "operator loaded by MXNet: 9,000-24,000 ns over a built-in one",
    "profiler": "a span of Tracy: 29-48 ns",
    "task_graph": "Taskflow 4.1, a node: chain 38-71 ns, independent 80-123 ns, grid 107-192 ns, "
                  "random 111-209 ns; to build: 41-209 ns and 240 bytes",
    "memory_plan": "MiniMalloc as built from its sources, 62 s for A to K together, and greedy by "
                   "size",
}
UNITS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}


# --- text

def duration(ns):
    if ns is None:
        return ""
    unit, size = next(((u, s) for u, s in reversed(UNITS.items()) if ns >= s), ("ns", 1))
    return f"{number(ns / size)} {unit}"


def number(value):
    """The number with three significant digits."""
    return f"{value:,.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f}"


def ratio(ours, peer):
    value = ours / peer
    return number(value) if value >= 0.0995 else f"{value:.2g}"


def share(fraction):
    return "" if fraction is None else f"{fraction:.0%}"


def table(columns, rows):
    """Columns whose name ends in `<` are text, the others figures; empty columns are left out."""
    rows = [[str(cell) for cell in row] for row in rows]
    kept = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    if not rows:
        return ""
    lines = [[columns[i].rstrip("<") for i in kept], *([row[i] for i in kept] for row in rows)]
    left = [columns[i].endswith("<") for i in kept]
    widths = [max(3, *map(len, column)) for column in zip(*lines)]

    def line(cells):
        return "| " + " | ".join(cell.ljust(width) if text else cell.rjust(width)
                                 for cell, width, text in zip(cells, widths, left)) + " |"
    ruler = "| " + " | ".join("-" * width if text else "-" * (width - 1) + ":"
                              for width, text in zip(widths, left)) + " |"
    return "\n".join([line(lines[0]), ruler, *map(line, lines[1:])])


def about(name):
    """The first paragraph of the comment that the benchmark's source opens with."""
    for source in sorted(BENCH.glob(f"*/{name}_bench.c*")):
        lines = []
        for line in source.read_text().splitlines():
            if not line.startswith("// "):
                break
            lines.append(line[3:])
        return "\n".join(lines)
    if name == "cuda_checks":
        return ("The stages of `./dev gpu` on this device: tests of the backend \"cuda\", the node corpus and the known "
                "models on its kernels, and compute-sanitizer.")
    if name == "models_eigen":
        return about("models") + "\nWith Eigen's kernels, without oneDNN's."
    for source in sorted(BENCH.glob(f"*/{name}.py")):
        return ast.get_docstring(ast.parse(source.read_text())).partition("\n\n")[0]
    return ""


# --- Google Benchmark's results

def parse(report):
    """{(contender, arguments): {"ns": of an item or a call, "cv", "label", "counters"}}, arguments
    without the notes of Google Benchmark; and the messages of those that did not run."""
    rows, errors = {}, {}
    for row in report["benchmarks"]:
        name, *arguments = row["run_name"].split("/")
        arguments = [part for part in arguments if part not in ("real_time", "manual_time") and
                     not part.startswith(("min_time:", "iterations:"))]
        if row.get("error_occurred"):
            errors.setdefault(row["error_message"], []).append("/".join([name, *arguments]))
            continue
        into = rows.setdefault((name, "/".join(arguments)), {"ns": None, "cv": None})
        if row.get("aggregate_name") == "cv":
            into["cv"] = row["real_time"]
        elif row.get("aggregate_name", "median") == "median":
            known = {"per_op": 1e9, "node": 1e9, "ns_per_node": 1}
            scale = next((key for key in known if key in row), None)
            if scale:
                into["ns"] = row[scale] * known[scale]
            elif "items_per_second" in row:
                into["ns"] = 1e9 / row["items_per_second"]
            else:
                into["ns"] = row["real_time"] * UNITS[row["time_unit"]]
            into["label"] = row.get("label", "")
            times = ("real_time", "cpu_time", "items_per_second", *known)
            into["counters"] = {key: value for key, value in row.items()
                                if isinstance(value, float) and key not in times}
    return rows, errors


def label(key):
    return "/".join(filter(None, key))


def pairs_table(name, rows):
    lines, peers = [], set()
    for (ours, arguments), row in rows.items():
        found = []
        for peer in (peer for left, peer in PAIRS.get(name, []) if left == ours):
            peer, _, fixed = peer.partition("/")
            found += [key for key in ((peer, fixed or arguments), (peer, "")) if key in rows][:1]
        counters = ", ".join(f"{key} {value:.3g}" for key, value in row["counters"].items())
        cells = [label((ours, arguments)), duration(row["ns"]), share(row["cv"])]
        for peer in found:
            of = rows[peer]
            theirs = [label(peer), duration(of["ns"]), share(of["cv"]), ratio(row["ns"], of["ns"])]
            lines.append((ours, arguments, [*cells, *theirs, counters]))
            peers.add(peer)
        if not found:
            lines.append((ours, arguments, [*cells, "", "", "", "", counters]))
    # A peer has no line but beside ours, unless it has something else to say.
    shown = [cells for ours, arguments, cells in lines
             if cells[3] or cells[7] or (ours, arguments) not in peers]
    return table(["row<", "median", "spread", "peer<", "median", "spread", "ratio", "also<"], shown)


def task_graph_tables(report, rows):
    times, labels, spreads = {}, {}, {}
    for (contender, arguments), row in rows.items():
        shape, nodes, threads = arguments.split("/")
        key = (contender, shape, int(nodes), int(threads))
        times[key], labels[key], spreads[key] = row["ns"], row["label"], row["cv"]

    def cells(contender, key):
        full = (contender, *key)
        return [duration(times.get(full)), share(spreads.get(full))]

    lines = []
    for key in [(shape, nodes, threads) for shape in SHAPES for nodes in SIZES
                for threads in (1, 2)]:
        if ("Ours", *key) in times:
            libraries = [times[peer, *key] for peer in ("Tbb", "Eigen") if (peer, *key) in times]
            lines.append([f"{key[0]} {SIZES[key[1]]}", key[2], *cells("Ours", key),
                          labels["Ours", *key], cells("OursCounters", key)[0],
                          *(cells(peer, key)[0] for peer in PEERS),
                          ratio(times["Ours", *key], min(libraries)) if libraries else ""])
    yield "Empty tasks, a node; the ratio is to the better of oneTBB and Eigen."
    yield table(["graph<", "threads", "opkit", "spread", "mode<", "opkit, counters",
                 *PEERS.values(), "ratio"], lines)

    lines = []
    for length in ("150ns", "1us", "5us", "50us"):
        for _, shape, nodes, _ in (key for key in times if key[0] == "Serial" + length):
            serial = times["Serial" + length, shape, nodes, 1]
            ours, peer = (contender + length for contender in ("Ours", "Tbb"))
            key = (shape, nodes, 2)
            lines.append([length, shape, duration(serial), *cells(ours, key), labels[ours, *key],
                          number(serial / times[ours, *key]), *cells(peer, key),
                          number(serial / times[peer, *key]),
                          ratio(times[ours, *key], times[peer, *key])])
    order = {shape: index for index, shape in enumerate(SHAPES)}
    lines.sort(key=lambda line: order[line[1]])
    lines.sort(key=lambda line: UNITS[line[0].lstrip("0123456789")] * int(line[0].rstrip("nus")))
    yield "Tasks that take time, a node, on 2 threads."
    yield table(["task<", "graph<", "serial", "opkit", "spread", "mode<", "speed-up", NAMES["Tbb"],
                 "spread", "speed-up", "ratio"], lines)

    lines = []
    for key in [(shape, nodes, 1) for shape in SHAPES for nodes in SIZES]:
        if ("BuildOurs", *key) in times and ("BuildTbb", *key) in times:
            ours, peer = ((name, "/".join(map(str, key))) for name in ("BuildOurs", "BuildTbb"))
            lines.append([f"{key[0]} {SIZES[key[1]]}", *cells("BuildOurs", key),
                          number(rows[ours]["counters"]["bytes"]), *cells("BuildTbb", key),
                          number(rows[peer]["counters"]["bytes"]),
                          ratio(times["BuildOurs", *key], times["BuildTbb", *key])])
    yield "Building the graph, a node."
    yield table(["graph<", "opkit", "spread", "bytes", NAMES["Tbb"], "spread", "bytes", "ratio"],
                lines)
    if "instructions" in report:
        yield "Instructions a node of a walk (callgrind): " + ", ".join(
            f"{shape} {count}" for shape, count in report["instructions"].items()) + "."
    yield "![ns a node over nodes](task_graph.svg)"


def memory_plan_tables(rows):
    names = {"WithinCapacity": "until it fits the capacity", "Portfolio": "greedy portfolio",
             "LowestInTwoSeconds": "lowest in 2 s", "PerfectPackingPortfolio": "greedy portfolio",
             "Portfolio100k": "greedy portfolio"}
    quoted, others = [], []
    for (kind, instance), row in rows.items():
        of = row["counters"]
        instance, _, search = instance.partition("/")
        cells = [instance, f"{of['buffers']:,.0f}", search or names[kind], duration(row["ns"]),
                 share(row["cv"]), f"{of['arena']:.3f}", f"{of['bound']:.3f}",
                 f"{of['arena'] / of['bound']:.3f}", number(of["naive"])]
        if "minimalloc_s_quoted" in of:
            quoted.append([*cells, number(of["greedy_by_size_quoted"]),
                           f"{of['minimalloc_s_quoted']:.1f} s"])
        else:
            others.append(cells)
    columns = ["instance<", "buffers", "planned<", "time", "spread", "arena", "bound",
               "arena/bound", "naive"]
    if quoted:
        yield "Public instances; bytes are shares of the capacity."
        yield table([*columns, "greedy by size, quoted", "MiniMalloc, quoted"], quoted)
    yield ("Rectangles cut into buffers, which pack perfectly, and 100,000 buffers by the length "
           "of their lives; bytes are shares of the cut rectangle or of the lower bound.")
    yield table(columns, others)
    yield "![a plan: time across, addresses up](memory_plan.svg)"


# --- the other results

def of_peak(op, seconds, peak):
    """The share of the ceiling that limits the nodes of an operator, as MachineRates::ShareOf: the rate of arithmetic, or
    of the smallest level of memory that holds the bytes of a node."""
    if not peak:
        return ""
    held = op["bytes"] / max(op["count"], 1)
    levels = [*peak.get("caches", []),
              {"name": "memory", "capacity": float("inf"), "bytes_per_second": peak["bytes_per_second"]}]
    level = next(level for level in levels if held <= level["capacity"])
    least, name = max((op["flops"] / peak["flops"], "FMA"),
                      (op["bytes"] / level["bytes_per_second"], level["name"]))
    return f"{share(least / seconds)} of {name}"


def models_tables(report):
    lines, costly = [], []
    for row in report["models"]:
        ours, theirs = row["opkit"], row["onnxruntime"]
        spread = ["-".join(map(number, side.get("median_ms_range", []))) for side in (ours, theirs)]

        def both(key, scale=1):
            return [number(ours[key] / scale), number(theirs[key] / scale),
                    ratio(ours[key], theirs[key])]
        ms = both("median_ms")
        error = number(row["outputs"]["error"]) + ("" if row["outputs"]["same_argmax"] else
                                                   ", other argmax")
        lines.append([row["model"], row["threads"], ms[0], spread[0], ms[1], spread[1], ms[2],
                      *both("first_result_ms"), *both("peak_memory_bytes", 2**20),
                      *both("memory_growth_bytes", 2**20)[2:], error])
        peak = report["machine_peak"].get(str(row["threads"]))
        for op in (op for op in row["operators"] if op["share"] >= 0.1):
            seconds = max(op["ms"], 1e-6) * 1e-3
            rates = [*(number(op[key] / seconds * 1e-9) for key in ("flops", "bytes")),
                     of_peak(op, seconds, peak)]
            costly.append([row["model"], row["threads"], f"{op['op']} x{op['count']}",
                           ", ".join(op["backends"]), number(op["ms"]), share(op["share"]), *rates])
    yield ("Milliseconds of a run and until the first result, MiB at the peak; `growth` is the "
           "ratio of the memory taken since the start; `error` is in units of what is allowed.")
    yield table(["model<", "threads", "ms", "spread", "ONNX Runtime", "spread", "ratio", "first",
                 "ONNX Runtime", "ratio", "MiB", "ONNX Runtime", "ratio", "growth", "error"], lines)
    yield "Operators that take a tenth of a run or more, beside what the machine can do."
    yield table(["model<", "threads", "operator<", "backend<", "ms", "share", "GFLOP/s", "GB/s",
                 "of peak"], costly)
    for failure in report.get("failures", []):
        yield f"Failed: {failure}"


def half_tables(report):
    lines = []
    for row in report["models"]:
        found = {name: entry["median_ms"] for name, entry in row["runs"].items()}
        peer = found.get("ONNX Runtime")
        lines.append([row["model"], row["threads"], number(found["float32"]), number(found["float16"]),
                      "-".join(map(number, row["runs"]["float16"]["range"])),
                      ratio(found["float16"], found["float32"]), number(found["bfloat16"]),
                      ratio(found["bfloat16"], found["float32"]), number(peer) if peer else "",
                      ratio(found["float16"], peer) if peer else "", f"{row['error']:.1e}"])
    yield ("Milliseconds of a run. The first two ratios are those to float32; ONNX Runtime runs the float16 twin, and "
           "the last ratio is ours to its.")
    yield table(["model<", "threads", "float32", "float16", "spread", "ratio", "bfloat16", "ratio", "ONNX Runtime",
                 "ratio", "error"], lines)


def operators_tables(report):
    lines = []
    for row in report["operators"]:
        sides = [row[side] for side in ("opkit", "onnxruntime")]
        cells = [cell for side in sides for cell in (
            duration(side["median_ms"] * 1e6), "-".join(duration(ms * 1e6) for ms in side["median_ms_range"]))]
        lines.append([row["operator"], row["threads"], *cells, ratio(*(side["median_ms"] for side in sides)),
                      f"{row['error']:.1e}"])
    yield ("The time of a run. `error` is the mean difference of an output to ONNX Runtime's, in units of its largest "
           "element.")
    yield table(["operator or model<", "threads", "opkit", "spread", "ONNX Runtime", "spread", "ratio", "error"], lines)
    for failure in report["failures"]:
        yield f"Failed: {failure}"


def tuning_tables(report):
    def shown(value, form=number):
        return "" if value is None else form(value)

    def part(found, key):
        return found and found[key]
    variants = {"default": "default", "eigen": "eigen", "onednn": "onednn", "tuned": "tuned",
                "onnxruntime": "ONNX Runtime"}
    ratios = {"tuned_over_best": "tuned / best", "tuned_over_onnxruntime": "tuned / ONNX Runtime",
              "best_over_onnxruntime": "best / ONNX Runtime", "default_over_onnxruntime": "default / ONNX Runtime"}
    lines = []
    for row in report["models"]:
        spread = part(row["tuned_over_best"], "middle_half")
        cells = [shown(part(row[key], "median")) for key in ratios]
        lines.append([row["model"], row["threads"],
                      *(shown(row["median_ms"].get(variant)) for variant in variants), cells[0],
                      "-".join(map(number, spread or [])), *cells[1:], shown(row["tuning_seconds"])])
    columns = ["model<", "threads", *variants.values(), "tuned / best", "spread", *list(ratios.values())[1:],
               "tuning, s"]
    yield ("Milliseconds of a run. `eigen` and `onednn` are those backends alone, with the plain kernels for the nodes "
           "that they lack; `best` is the fastest of `default`, `eigen` and `onednn`.")
    yield table(columns, lines)
    yield "Medians of the models, and the slowest and fastest of them."
    summary = []
    for threads in sorted({row["threads"] for row in report["models"]}):
        for key, name in ratios.items():
            found = [row[key]["median"] for row in report["models"] if row["threads"] == threads and row[key]]
            if found:
                summary.append([name, threads, len(found), number(statistics.median(found)), number(max(found)),
                                number(min(found))])
    yield table(["ratio<", "threads", "models", "median", "slowest", "fastest"], summary)
    chosen = []
    for row in (row for row in report["models"] if len(row.get("choices", {})) > 1):
        first, other = row["choices"].values()
        for key in sorted(first.keys() | other.keys()):
            if first.get(key, 0) != other.get(key, 0):
                chosen.append([row["model"], row["threads"], key, first.get(key, 0), other.get(key, 0)])
        isa = list(row["choices"])[1]
    if chosen:
        yield ("Nodes by backend and layout of the output, where the tuned plans for all instructions of this CPU and "
               f"for {isa} differ.")
        yield table(["model<", "threads", "backend and layout<", "this CPU", isa], chosen)
    for failure in report.get("failures", []):
        yield f"Failed: {failure}"


def checks_tables(report):
    yield table(["stage<", "result<", "seconds", "last line<"],
                [[stage["name"], stage["result"], number(stage["seconds"]) if stage["seconds"] else "",
                  stage["said"].replace("|", "/")] for stage in report["stages"]])


def hosts_tables(report):
    def verdict(of, goal):
        low, high = of["middle_half"]
        return "unsteady" if high - low > 0.1 * of["median"] else "met" if of["median"] <= goal else "missed"

    def lines(is_small):
        for row in (row for row in report["rows"] if (row["threads"] == 0) == is_small):
            ratio_of, goal = row["ratio"], row["goal"]
            number_of = number if is_small else "{:.3f}".format
            yield [row["host"], row["call"], *([] if is_small else [row["threads"]]), duration(row["ns"]["median"]),
                   row["peer"], duration(row["peer_ns"]["median"]), number_of(ratio_of["median"]),
                   "-".join(map(number_of, ratio_of["middle_half"])),
                   goal and f"{goal:.2f}, {verdict(ratio_of, goal)}" or ""]
        for host in report["not_measured"] if is_small else ():
            yield [host, "not measured", *[""] * 6]
    columns = ["time", "peer<", "its time", "ratio", "spread", "goal<"]
    yield ("A call on 3 elements of float32. C++ is `ResolvedOperator::Run` of the same library in the same process, on "
           "tensors that are ready.")
    yield table(["host<", "call<", *columns], list(lines(True)))
    yield ("A call on 1,000,000 elements, with as many threads for the host's loops as for those of C++. "
           "Both read the same memory. They write to the same memory too, or each makes a new output. tvm-ffi, the "
           "Python package and C run the loop on opkit's threads, which poll between calls; ONNX Runtime and JAX on "
           "their own, which have to be woken. So with 2 threads the ratio of these two is that of the pools too, and "
           "it depends on what else the machine does. `unsteady`: the spread is more than a tenth of the ratio.")
    yield table(["host<", "call<", "threads", *columns], list(lines(False)))
    for host, why in report["not_measured"].items():
        yield f"{host} is not measured: {why}."
    for failure in report["failures"]:
        yield f"Failed: {failure}"


def namespaces_tables(report):
    lines = []
    for network in report["networks"]:
        for row in network["rows"]:
            measured = row["measured_ms"]
            lines.append([row["step"], f"{network['megabits']} Mbit/s", f"{network['latency_us']:.0f} us",
                          f"{1e3 * network['gigabytes_per_s']:.1f} MB/s", duration(row["by_graph_ms"] * 1e6),
                          duration(measured * 1e6), share(row["variation"]), ratio(row["by_graph_ms"], measured),
                          duration(row["by_layers_ms"] * 1e6), ratio(row["by_layers_ms"], measured)])
    yield table(["step<", "limit", "latency", "rate", "SimulateStep", "measured", "spread", "ratio", "SimulateTraining",
                 "ratio"], lines)


def compile_time_tables(report):
    lines = []
    for name, modes in report["rows"].items():
        cells = [name]
        for of in (modes.get("compiled"), modes.get("header_only")):
            cells += ["", "", "", ""] if not of else [
                f"{of['seconds']:.2f} s", f"{of['min']:.2f}-{of['max']:.2f}", f"{of['ratio']:.2f}x",
                f"{of['goal']}, {'met' if of['met'] else 'missed'}" if "goal" in of else ""]
        lines.append(cells)
    peer = report["peer"]
    yield ("User seconds, and the ratio to the peer compiled beside it: "
           f"`#include <{peer['name']}>`, {peer['seconds']:.2f} s "
           f"({peer['min']:.2f}-{peer['max']:.2f}). Headers are parsed (`-fsyntax-only`), sources "
           "compiled to objects, at `-O2` where the row names no option; several one after the "
           "other. Those of `peers/` are programs of other libraries, header-only.")
    yield table(["row<"] + [mode + column for mode in ("compiled", "header-only")
                            for column in ("", ", spread", ", ratio", ", goal<")], lines)
    yield report.get("note")


# --- a result's page

def page(name, report):
    """(the text of NAME.md, {name: text} of pictures)"""
    parts, pictures = [f"# {name}", about(name)], {}
    parts.append("\n".join(f"- {key}: " + (f"`{value}`" if key == "command" else value)
                           for key, value in report["head"].items()))
    if name.startswith("models"):
        parts += models_tables(report)
    elif name == "half":
        parts += half_tables(report)
    elif name == "operators":
        parts += operators_tables(report)
    elif name == "tuning":
        parts += tuning_tables(report)
    elif name == "hosts":
        parts += hosts_tables(report)
    elif name == "cuda_checks":
        parts += checks_tables(report)
    elif name == "compile_time":
        parts += compile_time_tables(report)
    elif name == "namespaces":
        parts += namespaces_tables(report)
    else:
        rows, errors = parse(report)
        if name == "task_graph":
            parts += task_graph_tables(report, rows)
            pictures["task_graph.svg"] = plot({
                (contender, shape, int(nodes), int(threads)): row["ns"]
                for (contender, arguments), row in rows.items()
                for shape, nodes, threads in [arguments.split("/")]})
        elif name == "memory_plan":
            parts += memory_plan_tables(rows)
        else:
            parts.append(pairs_table(name, rows))
        if name == "compile":
            parts.append("![ns and bytes of a node over nodes](compile.svg)")
            by_graph = [(graph, int(nodes), row) for (contender, arguments), row in rows.items()
                        if contender == "Compile" for graph, nodes in [arguments.split("/")]]
            pictures["compile.svg"] = plot_compile({
                "Compile, ns a node": {(g, n): row["ns"] for g, n, row in by_graph},
                "Peak bytes a node": {(g, n): row["counters"]["peak_bytes"]
                                      for g, n, row in by_graph}})
        parts += [f"Not run: {', '.join(names)}: {error}." for error, names in errors.items()]
    if name in QUOTED:
        parts.append(f"Quoted, as published for another machine: {QUOTED[name]}.")
    wrapped = (part if part[0] in "#-|!" else textwrap.fill(part, 100, break_on_hyphens=False)
               for part in parts if part)
    return "\n\n".join(wrapped) + "\n", pictures


def main():
    for path in map(pathlib.Path, sys.argv[1:]):
        text, pictures = page(path.stem, json.loads(path.read_text()))
        for name, content in {f"{path.stem}.md": text, **pictures}.items():
            (BENCH / "results" / name).write_text(content)
        print(text)
    front_page.write()


if __name__ == "__main__":
    main()
