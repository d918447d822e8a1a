#!/usr/bin/env python3
"""AllReduce as the node of a graph, beside MPI_Allreduce and MPI_Iallreduce that the program calls by hand, on 2 and 4
processes of this machine. The arguments of a row are the number of processes and the bytes of a block. Goals, where
there are no more processes than cores: at most 2 us over MPI_Allreduce below 64 KB, at most 1.03 times from there on.

Usage: all_reduce.py PROGRAM RESULT.json

Runs build/release/bench/cluster/all_reduce by mpirun. The contenders take turns in one program.
"""
import json
import os
import pathlib
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from record import ROOT, head, write  # noqa: E402


def mpirun():
    """The command with which MPI starts processes. Open MPI wants to be asked for root and for more processes than cores."""
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=True).stdout
    return ["mpirun", *(["--allow-run-as-root", "--oversubscribe"] if "Open MPI" in version else [])]


def main():
    program, path = sys.argv[1], pathlib.Path(sys.argv[2])
    command, rows = mpirun(), []
    for processes in (2, 4):
        run = subprocess.run([*command, "-n", str(processes), program], stdout=subprocess.PIPE, check=True)
        rows += json.loads(run.stdout)["benchmarks"]
    shown = " ".join([*command, "-n", "N", os.path.relpath(program, ROOT)])
    write(path, {"head": head(shown), "benchmarks": rows})


if __name__ == "__main__":
    main()
