#!/usr/bin/env python3
"""What it costs to include each public header: lines after preprocessing, and seconds.

Gated by --check, against budget.json: for every header, (1) the lines of opkit's own that one
include of it puts before the compiler (comments and blanks not counted) grow by no more than 10%
(or 10 lines, for a small header), and (2) no standard header is included, by it or by what it
includes, that the budget does not name. Neither depends on the compiler, so that the gate holds on
any machine; (3) all preprocessed lines grow by no more than 10%, where the compiler's major version
is the budget's. A header without a budget fails.

  compile_time.py                        prints the lines
  compile_time.py --check | --update     compares with the budget | rewrites it
  compile_time.py --seconds [--json F] [HEADER...]
      user seconds of g++ -fsyntax-only of each header, and of -O2 of a program, and the ratio to
      nlohmann/json.hpp included beside it. Not a test: a shared machine's speed drifts too much for
      one. About a minute and a half.
"""
import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "include"
BUDGET = Path(__file__).resolve().with_name("budget.json")
PEER = "nlohmann/json.hpp"
# Programs with what the targets they link define. One that defines and runs an operator: 4 s on the
# machine where the peer's include takes 2.3; one that runs a model, with opkit::onnx: 15 s.
PROGRAMS = {"examples/01_first_operator.cpp": (),
            "examples/08_onnx_model.cpp": ("-DOPKIT_EXTERN_ONNX",)}
TARGETS = {"opkit/opkit.hpp": 0.75, "opkit/op/operator.hpp": 0.5, "opkit/plugin/author.hpp": 0.5,
           "examples/01_first_operator.cpp": 1.7, "examples/08_onnx_model.cpp": 6.5}
GROWTH, SLACK = 0.10, 10


def public_headers():
    """All but those of third-party glue, whose cost is the third party's, and those of operators,
    which are compiled once, as objects."""
    found = (p.relative_to(INCLUDE).as_posix() for p in sorted((INCLUDE / "opkit").rglob("*.h*")))
    others = ("opkit/interop/", "opkit/backends/", "opkit/ops/")
    return [header for header in found if not header.startswith(others)]


def compiler_command(cxx, *flags):
    return [*cxx.split(), "-std=c++20", f"-I{INCLUDE}", *flags, "-x", "c++", "-"]


def compiler_version(cxx):
    macros = subprocess.run([*cxx.split(), "-dM", "-E", "-x", "c++", os.devnull],
                            capture_output=True, text=True, check=True).stdout
    value = dict(re.findall(r"#define (__clang_major__|__GNUC__) (\d+)", macros))
    clang = value.get("__clang_major__")
    return f"clang {clang}" if clang else f"gcc {value['__GNUC__']}"


def measure(header, cxx):
    """{"own": lines from include/opkit, "total": all lines, "std": names of <...> included}."""
    run = subprocess.run(compiler_command(cxx, "-E"), input=f'#include "{header}"\n',
                         capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{header} does not preprocess:\n{run.stderr[:1000]}")
    own = total = 0
    entered, inside = set(), False
    for line in run.stdout.splitlines():
        marker = re.match(r'# \d+ "([^"]+)"', line)
        if marker:
            inside = marker.group(1).startswith(f"{INCLUDE}/")
            if inside:
                entered.add(marker.group(1))
        elif line.strip():
            total += 1
            own += inside
    # Read from the headers entered: a compiler's output does not say who asked for a standard
    # header that another one has already included.
    include = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<([^>]+)>", re.MULTILINE)
    std = {name for path in entered for name in include.findall(Path(path).read_text())}
    return {"own": own, "total": total, "std": sorted(std)}


def violations(measured, budget, same_compiler):
    """The sentences of --check, none when all is well."""
    for header, now in measured.items():
        allowed = budget.get(header)
        if not allowed:
            yield f"{header} has no budget: run compile_time.py --update and commit budget.json"
            continue
        for kind, words in (("own", "lines of opkit"), ("total", "preprocessed lines")):
            limit = allowed[kind] + max(allowed[kind] * GROWTH, SLACK)
            if now[kind] > limit and (kind == "own" or same_compiler):
                yield (f"{header}: {now[kind]} {words}, more than 10% over its budget of "
                       f"{allowed[kind]}. Make it lighter, or accept it with --update")
        for name in sorted(set(now["std"]) - set(allowed["std"])):
            yield f"{header} now includes <{name}>. Do without, or accept it with --update"
    for header in sorted(set(budget) - set(measured)):
        yield f"{header} has a budget and does not exist: run compile_time.py --update"


def seconds_of(name, cxx):
    """User seconds of one include, or of one of PROGRAMS: less disturbed than the clock by what
    else the machine does."""
    flags = ["-fsyntax-only"]
    if name in PROGRAMS:
        flags = ["-O2", "-c", "-o", os.devnull, *PROGRAMS[name]]
    text = (ROOT / name).read_text() if name in PROGRAMS else f"#include <{name}>\n"
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    run = subprocess.run(compiler_command(cxx, *flags), input=text, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{name} does not compile:\n{run.stderr[:1000]}")
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def time_headers(names, cxx, rounds):
    """{name: {"seconds", "ratio", ...}}. What has a target is compiled in every round, each time
    beside the peer, since a shared machine's speed drifts; the median of the ratios withstands a
    disturbed run. The others are compiled once, for orientation."""
    aimed = [n for n in names if n in TARGETS]
    seconds = {n: [] for n in [PEER, *names]}
    ratios = {n: [] for n in names}
    for round_ in range(rounds):
        for index, name in enumerate(names if round_ == 0 else aimed):
            if name in TARGETS or index % 8 == 0:
                seconds[PEER].append(seconds_of(PEER, cxx))
            seconds[name].append(seconds_of(name, cxx))
            ratios[name].append(seconds[name][-1] / seconds[PEER][-1])
    result = {}
    for name, runs in seconds.items():
        result[name] = {"seconds": round(statistics.median(runs), 3),
                        "seconds_min": round(min(runs), 3), "seconds_max": round(max(runs), 3)}
        if name in ratios:
            result[name]["ratio"] = round(statistics.median(ratios[name]), 3)
        if name in TARGETS:
            result[name]["target"] = TARGETS[name]
    return result


def machine_kind():
    model = "unknown processor"
    if os.path.exists("/proc/cpuinfo"):
        found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
        model = found.group(1) if found else os.uname().machine
    return f"{os.cpu_count()} cores, {model}"


def report_seconds(options):
    headers = options.headers or [*PROGRAMS, *public_headers()]
    results = time_headers(headers, options.cxx, options.rounds)
    for header, of in results.items():
        ratio = f"{of['ratio']:6.2f}x" if "ratio" in of else "  peer "
        target = of.get("target")
        verdict = target and f"  target {target}x: {'met' if of['ratio'] <= target else 'missed'}"
        spread = f"[{of['seconds_min']:.2f}, {of['seconds_max']:.2f}]"
        print(f"{of['seconds']:7.2f} s  {spread} {ratio}  {header}{verdict or ''}")
    if options.json:
        flags = "".join(f" {h}" for h in options.headers)
        report = {"command": "bench/compile_time/compile_time.py --seconds "
                             f"--rounds {options.rounds}{flags}",
                  "compiler": compiler_version(options.cxx), "machine": machine_kind(),
                  "statistic": f"user seconds; with a target, median of {options.rounds} runs beside "
                               f"{PEER} and of their ratios to it; others once",
                  "results": results}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("headers", nargs="*", help="opkit/... (default: every public header)")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--seconds", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cxx", default=os.environ.get("CXX", "g++"))
    options = parser.parse_args()
    if options.seconds:
        report_seconds(options)
        return
    compiler = compiler_version(options.cxx)
    measured = {h: measure(h, options.cxx) for h in options.headers or public_headers()}
    if options.update:
        lines = ",\n".join(f"  {json.dumps(h)}: {json.dumps(m)}" for h, m in measured.items())
        BUDGET.write_text(f'{{"compiler": "{compiler}", "headers": {{\n{lines}\n}}}}\n')
    elif options.check:
        budget = json.loads(BUDGET.read_text())
        found = list(violations(measured, budget["headers"], compiler == budget["compiler"]))
        print("\n".join(found) if found else f"ok: {len(measured)} headers are within budget.json")
        sys.exit(bool(found))
    else:
        for header, of in sorted(measured.items(), key=lambda item: -item[1]["total"]):
            print(f"{of['total']:7} lines  {of['own']:6} own  {header}")


if __name__ == "__main__":
    main()
