#!/usr/bin/env python3
"""Runs a Google Benchmark program and writes its JSON with the machine's kind and the command.

Usage: record.py PROGRAM RESULT.json [ARGUMENT...]
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile


def machine():
    cpu = "unknown processor"
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    compiler = subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True)
    return f"{os.cpu_count()} cores of {cpu}, {compiler.stdout.splitlines()[0]}"


def main():
    program, result, *arguments = sys.argv[1:]
    arguments = ["--benchmark_repetitions=5", *arguments]
    with tempfile.NamedTemporaryFile(suffix=".json") as raw:
        subprocess.run([program, *arguments, "--benchmark_report_aggregates_only=true",
                        f"--benchmark_out={raw.name}", "--benchmark_out_format=json"], check=True)
        report = json.loads(pathlib.Path(raw.name).read_text())
    context = report["context"]
    for private in ("host_name", "executable"):
        context.pop(private, None)
    context["machine"] = machine()
    context["command"] = " ".join([os.path.relpath(program), *arguments])
    pathlib.Path(result).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(result).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
