#!/usr/bin/env python3
"""Adds the instructions that a walk of a task graph takes to task_graph_bench's result: they repeat
exactly, times do not.

Usage: count_instructions.py PROGRAM RESULT.json. PROGRAM is task_graph_bench made with
OPKIT_BENCH_NATIVE=OFF, since valgrind does not know every instruction.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

SHAPES = ["chain", "independent", "grid", "random"]
NODES = 10_000  # a square, for the grid


def total(program, shape, runs):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out"
        subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", program,
                        "--walk", shape, str(NODES), str(runs)], check=True, capture_output=True)
        return int(re.search(r"^(?:summary|totals): (\d+)", out.read_text(), re.M)[1])


def main():
    program, path = sys.argv[1], pathlib.Path(sys.argv[2])
    result = json.loads(path.read_text())
    # The difference between two numbers of runs: what comes before the first one drops out.
    result["instructions"] = {
        shape: round((total(program, shape, 30) - total(program, shape, 10)) / (20 * NODES), 2)
        for shape in SHAPES}
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
