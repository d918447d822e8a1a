#!/usr/bin/env python3
"""What programs pay to compile the toolkit, header-only and against the compiled runtime.

Gated by --check, against budget.json. For each of ENTRIES, in both modes: (1) the lines of opkit's
own that one include of it puts before the compiler (comments and blanks not counted) grow by no
more than 10% (or 10 lines, for a small header); (2) no header in angle brackets is included, by it
or by what it includes, that the budget does not name. Neither depends on the compiler, so that the
gate holds on any machine. With the compiler of the budget (its major version) also: (3) all
preprocessed lines grow by no more than 10%; (4) so do the functions that the object of each of
PROGRAMS defines, at -O0 against the compiled runtime: the instantiations that it pays for.

  compile_time.py                        prints lines and functions
  compile_time.py --check | --update     compares with the budget | rewrites it
  compile_time.py --seconds [--json F] [--rounds N] [ROW...]
      user seconds of what GOALS lists, in both modes, and their ratios to a peer's header that is
      compiled beside each; programs of other libraries stand beside ours. Not a test: a shared
      machine's speed drifts too much for one. Some ten minutes. bench/summarize.py makes a table of
      F.
"""
import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench"))
from record import head, write  # noqa: E402

INCLUDE = ROOT / "include"
BUDGET = Path(__file__).resolve().with_name("budget.json")
MODES = {"compiled": ["-DOPKIT_COMPILED"], "header_only": []}
UMBRELLAS = ["opkit/opkit.hpp", "opkit/functions.hpp", "opkit/graph.hpp", "opkit/profile.hpp",
             "opkit/partition.hpp", "opkit/plugin.hpp", "opkit/all.hpp", "opkit/op.hpp"]
ENTRIES = [*UMBRELLAS, "opkit/core/tensor.hpp", "opkit/op/operator.hpp",
           "opkit/op/check.hpp", "opkit/engine/engine.hpp", "opkit/engine/task_graph.hpp",
           "opkit/graph/graph.hpp", "opkit/graph/executor.hpp", "opkit/plugin/library.hpp",
           "opkit/interop/onnx.hpp"]
PROGRAMS = ["examples/01_first_operator.cpp", "examples/02_operator_class.cpp",
            "examples/06_graph.cpp"]
GROWTH, SLACK = 0.10, 10

# What --seconds measures, and the goals: times the peer's. A row is a header, which is parsed, or a
# source with the compiler's option, -O2 where there is none. RUNTIME is the sources of the CMake
# target `opkit`, one after the other, with its options. MORE is one more typed operator in a file of them.
PEER = "nlohmann/json.hpp"
RUNTIME = "src/*.cpp"
MORE = "a typed operator more in a file"
PEERS = [f"bench/compile_time/peers/{name}.cpp"
         for name in ("fmt", "spdlog", "asio", "doctest", "nlohmann")]
GOALS = {**{header: {"compiled": None, "header_only": None} for header in UMBRELLAS},
         "opkit/opkit.hpp": {"compiled": "0.55x", "header_only": "1.3x"},
         "opkit/op.hpp": {"compiled": "0.45x", "header_only": "0.6x"},
         "opkit/op/operator.hpp": {"compiled": "0.45x", "header_only": "0.6x"},
         "examples/01_first_operator.cpp -fsyntax-only": {"header_only": "1.3x"},
         "examples/01_first_operator.cpp -O0": {"header_only": "2.8x"},
         "examples/01_first_operator.cpp": {"compiled": "0.95x", "header_only": "4.6x"},
         "examples/02_operator_class.cpp": {"compiled": None, "header_only": "5.5x"},
         "examples/06_graph.cpp -O1": {"header_only": "10x"},
         "examples/06_graph.cpp": {"compiled": "1.4x", "header_only": "14x"},
         "examples/08_onnx_model.cpp": {"compiled": "1.4x", "header_only": None},
         "examples/library/first.cc": {"header_only": "2x"},
         "bench/compile_time/typed_library.cc": {"header_only": "5x"},
         MORE: {"compiled": "0.25x", "header_only": "0.25x"},
         RUNTIME: {"compiled": "45x"},
         **{peer: {"header_only": None} for peer in PEERS}}


def compiler(cxx, text, *flags):
    """What the compiler prints for a unit of that text, and the user seconds it took, which what
    else the machine does disturbs less than the clock."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    run = subprocess.run([*cxx.split(), "-std=c++20", f"-I{INCLUDE}", *flags, "-x", "c++", "-"],
                         input=text, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"this does not compile ({' '.join(flags)}):\n{text[:300]}\n{run.stderr[:1000]}")
    return run.stdout, resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def compiler_version(cxx):
    value = dict(re.findall(r"#define (__clang_major__|__GNUC__) (\d+)",
                            compiler(cxx, "", "-dM", "-E")[0]))
    clang = value.get("__clang_major__")
    return f"clang {clang}" if clang else f"gcc {value['__GNUC__']}"


# --- lines and functions

def measure_header(header, mode, cxx):
    """{"own": lines from include/opkit, "total": all lines, "std": the names of <...> included}."""
    own = total = 0
    entered, inside = set(), False
    for line in compiler(cxx, f'#include "{header}"\n', "-E", *MODES[mode])[0].splitlines():
        marker = re.match(r'# \d+ "([^"]+)"', line)
        if marker:
            inside = marker[1].startswith(f"{INCLUDE}/")
            if inside:
                entered.add(marker[1])
        elif line.strip():
            total += 1
            own += inside
    # Read from the headers entered: a compiler's output does not say who asked for a standard
    # header that another one has already included.
    include = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<([^>]+)>", re.MULTILINE)
    std = {name for path in entered for name in include.findall(Path(path).read_text())}
    return {"own": own, "total": total, "std": " ".join(sorted(std))}


def count_functions(program, cxx):
    with tempfile.TemporaryDirectory() as folder:
        target = f"{folder}/program.o"
        compiler(cxx, (ROOT / program).read_text(), "-O0", "-c", "-o", target, *MODES["compiled"])
        symbols = subprocess.run(["nm", "--defined-only", "--format=posix", target],
                                 capture_output=True, text=True, check=True).stdout
    return sum(line.split()[1] in "TtWu" for line in symbols.splitlines())


def measure(entries, programs, cxx):
    return {"compiler": compiler_version(cxx),
            "headers": {header: {mode: measure_header(header, mode, cxx) for mode in MODES}
                        for header in entries},
            "functions": {program: count_functions(program, cxx) for program in programs}}


def violations(measured, budget):
    """The sentences of --check, none when all is well."""
    same_compiler = measured["compiler"] == budget["compiler"]

    def grown(what, now, allowed, words):
        if now > allowed + max(allowed * GROWTH, SLACK):
            yield (f"{what}: {now} {words}, more than 10% over its budget of {allowed}. Make it "
                   "lighter, or accept it with --update")

    for kind in ("headers", "functions"):
        for name in measured[kind]:
            if name not in budget[kind]:
                yield f"{name} has no budget: run compile_time.py --update and commit budget.json"
        for name in budget[kind]:
            if name not in measured[kind]:
                yield f"{name} has a budget and is not measured: run compile_time.py --update"
    for header in (h for h in measured["headers"] if h in budget["headers"]):
        for mode, now in measured["headers"][header].items():
            allowed, what = budget["headers"][header][mode], f"{header}, {mode}"
            yield from grown(what, now["own"], allowed["own"], "lines of opkit")
            if same_compiler:
                yield from grown(what, now["total"], allowed["total"], "preprocessed lines")
            for name in sorted(set(now["std"].split()) - set(allowed["std"].split())):
                yield f"{what} now includes <{name}>. Do without, or accept it with --update"
    for program in (p for p in measured["functions"] if p in budget["functions"] and same_compiler):
        yield from grown(program, measured["functions"][program], budget["functions"][program],
                         "functions in its object")


def budget_text(measured):
    """JSON, each header's modes on a line of their own."""
    functions = [f' "{program}": {count}' for program, count in measured["functions"].items()]
    headers = [f' "{header}": {{\n' + ",\n".join(f'  "{mode}": {json.dumps(of)}'
                                                 for mode, of in modes.items()) + "}"
               for header, modes in measured["headers"].items()]
    return (f'{{"compiler": "{measured["compiler"]}",\n"functions": {{\n' + ",\n".join(functions) +
            '},\n"headers": {\n' + ",\n".join(headers) + "}}\n")


# --- seconds

def seconds_of(row, mode, cxx):
    """User seconds to parse a header, or to compile sources to objects."""
    if row == MORE:
        few, many = (compiler(cxx, typed_operators(count), "-O2", "-c", "-o", os.devnull,
                              *MODES[mode])[1] for count in (1, 33))
        return (many - few) / 32
    if row.endswith(".hpp"):
        return compiler(cxx, f"#include <{row}>\n", "-fsyntax-only", *MODES[mode])[1]
    name, *options = row.split(" ")
    cold = cold_sources() if row == RUNTIME else set()
    return sum(compiler(cxx, path.read_text(),
                        *(options or ["-O1" if path.name in cold else "-O2"]), "-c", "-o",
                        os.devnull, *MODES[mode])[1] for path in sorted(ROOT.glob(name)))


def cold_sources():
    """Names of the runtime's sources that CMakeLists.txt compiles at -O1."""
    listed = re.search(r"set\(cold_sources ([^)]*)\)", (ROOT / "CMakeLists.txt").read_text())
    return {Path(name).name for name in listed[1].split()}


def typed_operators(count):
    """A unit of so many typed operators, each with a signature of its own."""
    operators = (f"""
template <class Context>
void Axpy{i}(Context& ctx, In<"x", float> x, In<"y{i}", float> y, Out<"z", float> z,
             Attr<"alpha{i}", float> alpha) {{
  ParallelFor(ctx, z.size(), [=] OPKIT_DEVICE(int64_t j) {{ z[j] = alpha * x[j] + {i} * y[j]; }});
}}
OPKIT_OP(Axpy{i}).SameShape<"x", "y{i}", "z">().Default<"alpha{i}">({i}.f).Kernel<CPUContext>();
""" for i in range(count))
    return "#include <opkit/opkit.hpp>\nusing namespace opkit;\n" + "".join(operators)


def times(runs):
    return {"seconds": round(statistics.median(runs), 3), "min": round(min(runs), 3),
            "max": round(max(runs), 3)}


def time_rows(rows, cxx, rounds):
    """Every round compiles all rows, each beside the peer, since a shared machine's speed drifts;
    the median of the ratios withstands a disturbed run. The runtime, which takes longest, has one
    round, and is compared with the median of the peer."""
    peer = []
    runs = {(row, mode): [] for row in rows for mode in GOALS[row]}
    for round_ in range(rounds):
        for (row, mode), found in runs.items():
            if round_ == 0 or row != RUNTIME:
                peer.append(seconds_of(PEER, "header_only", cxx))
                found.append((seconds_of(row, mode, cxx), peer[-1]))
    result = {row: {} for row in rows}
    for (row, mode), found in runs.items():
        if row == RUNTIME:
            found = [(ours, statistics.median(peer)) for ours, _ in found]
        of = times([ours for ours, _ in found])
        of["ratio"] = round(statistics.median(ours / theirs for ours, theirs in found), 3)
        if GOALS[row][mode]:
            of |= {"goal": GOALS[row][mode], "met": of["ratio"] <= float(GOALS[row][mode][:-1])}
        result[row][mode] = of
        print(f"{of['seconds']:7.2f} s {of['ratio']:6.2f}x  {row}, {mode}" +
              (f": goal {of['goal']}, {'met' if of['met'] else 'missed'}" if "goal" in of else ""))
    return {"peer": {"name": PEER, **times(peer)}, "rows": result}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--seconds", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cxx", default=os.environ.get("CXX", "g++"))
    options = parser.parse_args()
    for row in options.rows:
        if row not in GOALS or not options.seconds:
            parser.error(f"ROW is for --seconds, one of: {', '.join(GOALS)}")
    if options.seconds:
        report = time_rows(options.rows or list(GOALS), options.cxx, options.rounds)
        if options.json:
            command = f"bench/compile_time/compile_time.py --seconds --rounds {options.rounds}"
            write(options.json, {"head": head(" ".join([command, *options.rows])), **report})
        return
    measured = measure(ENTRIES, PROGRAMS, options.cxx)
    if options.update:
        BUDGET.write_text(budget_text(measured))
    elif options.check:
        found = list(violations(measured, json.loads(BUDGET.read_text())))
        print("\n".join(found) or
              f"{len(ENTRIES)} headers and {len(PROGRAMS)} programs are within their budgets")
        sys.exit(bool(found))
    else:
        for header, modes in measured["headers"].items():
            for mode, of in modes.items():
                print(f"{of['total']:7} lines  {of['own']:6} own  {header}, {mode}")
        for program, count in measured["functions"].items():
            print(f"{count:7} functions  {program}")


if __name__ == "__main__":
    main()
