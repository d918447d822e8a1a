#!/usr/bin/env python3
"""How much slower real models run while they are profiled: overhead_bench.py OPKIT MODEL... [--shape
S]... [--input NAME=FILE.npy]... [--rounds N] [--repeat N]. OPKIT is the command-line program. A
round runs the model without a profile and with one, in processes that take turns; a figure is the
median of the rounds' medians."""
import argparse
import os
import pathlib
import re
import statistics
import subprocess
import tempfile

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument("program")
arguments.add_argument("models", nargs="+")
arguments.add_argument("--shape", action="append", default=[])
arguments.add_argument("--input", action="append", default=[])
arguments.add_argument("--rounds", type=int, default=9)
arguments.add_argument("--repeat", type=int, default=300)
arguments.add_argument("--threads", type=int, default=1)
options = arguments.parse_args()


def median_ms(model, **environment):
    inputs = [word for shape in options.shape for word in ("--shape", shape)]
    inputs += [word for file in options.input for word in ("--input", file)]
    run = subprocess.run([options.program, "run", model, "--random", "--repeat", str(options.repeat),
                          "--threads", str(options.threads), *inputs],
                         env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    return float(re.search(r"median ([0-9.]+) ms", run.stderr)[1])


with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
    for model in options.models:
        plain, profiled = [], []
        for _ in range(options.rounds):
            plain.append(median_ms(model))
            profiled.append(median_ms(model, OPKIT_PROFILE=f"{folder}/trace.json"))
        ratio = statistics.median(b / a for a, b in zip(plain, profiled))
        print(f"{pathlib.Path(model).name}: {statistics.median(plain):.3f} ms, profiled "
              f"{statistics.median(profiled):.3f} ms, ratio {ratio:.3f} "
              f"({min(b / a for a, b in zip(plain, profiled)):.3f} to "
              f"{max(b / a for a, b in zip(plain, profiled)):.3f})")
