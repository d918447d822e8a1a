#!/usr/bin/env python3
"""Runs a Google Benchmark program and writes its JSON with a head that says where it was measured.

Usage: record.py PROGRAM RESULT.json [ARGUMENT...]
"""
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def first_line(*command):
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    return run.stdout.splitlines()[0] if run.returncode == 0 else "unknown"


def head(command):
    """The head of a result: machine, compiler, command and commit."""
    cpu = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return {"machine": f"{os.cpu_count()} cores of {cpu[1] if cpu else os.uname().machine}",
            "compiler": first_line("g++", "--version"), "command": command,
            "commit": first_line("git", "describe", "--always", "--dirty= and changes")}


def write(path, result):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")


def main():
    program, path, *arguments = sys.argv[1:]
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [os.path.relpath(program, ROOT), "--benchmark_repetitions=5", *arguments]
    subprocess.run([program, *command[1:], "--benchmark_report_aggregates_only=true",
                    f"--benchmark_out={path}", "--benchmark_out_format=json"], check=True)
    write(path, {"head": head(" ".join(command)), **json.loads(path.read_text())})


if __name__ == "__main__":
    main()
