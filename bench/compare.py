#!/usr/bin/env python3
"""Our figures beside their peers' in recorded results: a line for each pair of rows, with the ratio.

Usage: compare.py RESULT.json...

Figures are nanoseconds an item (or a call), medians. The ratio is ours over the peer's: below 1 is
faster. Peers that no package registry has are quoted, as published for another machine (2-core
2.5 GHz Cascade Lake class); bench/engine/plot_task_graph.py is this for task_graph.json.
"""
import json
import pathlib
import sys

# Result: (our rows, the peer's rows with the same arguments); the peer's arguments where they differ.
PAIRS = {
    "dynamic": [("EngineChain", "TbbChain"), ("EngineChain", "MutexPoolChain"),
                ("EngineIndependent", "TbbIndependent"),
                ("EngineIndependent", "MutexPoolIndependent")],
    "executor": [("Executor", "TaskGraph"), ("Executor", "VirtualCalls"),
                 ("Executor", "SimpleNet")],
    "operator": [("RunEmpty", "PlainVirtualCall"),
                 ("InvokeHandleIntoOutputs", "BenchAxpy/cpu/reference/float32/[16]")],
    "library": [("LoadedOp", "DirectCall"), ("LoadedOp", "ProgramOp"),
                ("LoadedOpOfVectors", "DirectCall")],
    "thread_pool": [("SubmitAndWait", "SubmitAndWaitTbb"), ("SubmitParked", "SubmitParkedTbb"),
                    ("SubmitParked", "FutexWakeAndRun"),
                    ("SubmitParkedAndWait", "SubmitParkedAndWaitTbb"),
                    ("SubmitParkedAndWait", "FutexWake"), ("TaskGroup", "TaskGroupTbb"),
                    ("LoopParallelForAuto", "LoopPlain"), ("LoopParallelForAuto", "LoopTbb")],
}
QUOTED = {
    "dynamic": "an operation of MXNet's engine: chain 1,180-2,630 ns, independent 1,830-2,820 ns; "
               "of Taskflow's dependent async: 261-382 ns",
    "executor": "an operator of Caffe2's async nets: 205-850 ns",
    "operator": "an operator of Caffe2's nets: 205-850 ns async, 820-2,255 ns simple; PyTorch's "
                "dispatcher: 34-107 ns typed, 107 ns boxed",
    "library": "PyTorch's boxed call: 107 ns, its operators defined in Python: 1,400-10,700 ns; an "
               "operator loaded by MXNet: 9,000-24,000 ns over a built-in one",
    "memory_plan": "MiniMalloc on A to K: 1.1-10.5 s each, 62 s together",
}
UNITS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}


def read(report):
    """{(name, arguments): ns}, arguments without the notes of Google Benchmark."""
    rows = {}
    for row in report["benchmarks"]:
        if row.get("aggregate_name", "median") != "median":
            continue
        name, _, arguments = row["run_name"].partition("/")
        kept = [part for part in arguments.split("/")
                if part not in ("real_time", "manual_time") and
                not part.startswith(("min_time:", "iterations:"))]
        if "per_op" in row:
            ns = row["per_op"] * 1e9
        elif "items_per_second" in row:
            ns = 1e9 / row["items_per_second"]
        else:
            ns = row.get("ns_per_node", row["real_time"] * UNITS[row["time_unit"]])
        rows[name, "/".join(kept)] = ns
    return rows


def compare(name, rows):
    for ours, peer in PAIRS.get(name, []):
        peer, _, fixed = peer.partition("/")
        for (row, arguments), ns in rows.items():
            theirs = rows.get((peer, fixed or arguments))
            if row == ours and theirs:
                yield f"{ours}/{arguments}".rstrip("/"), ns, peer, theirs


def main():
    for path in map(pathlib.Path, sys.argv[1:]):
        lines = list(compare(path.stem, read(json.loads(path.read_text()))))
        if lines:
            print(f"{'ns':>48}{'peer':>34}{'ns':>10}{'ratio':>8}")
        for label, ns, peer, theirs in lines:
            print(f"{label:36}{ns:12,.1f}{peer:>34}{theirs:10,.1f}{ns / theirs:8.2f}")
        if path.stem in QUOTED:
            print(f"quoted: {QUOTED[path.stem]}")


if __name__ == "__main__":
    main()
