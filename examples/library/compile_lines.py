#!/usr/bin/env python3
"""The lines that the libraries' sources say they are compiled with: compile_lines.py OUT.

The sources are those of this folder and of examples/partition. All lines must be there and alike.
Those of COMPILED, and nvcc's where this machine has it, are run from the repository, at -O0, with
their results in the folder OUT.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

here = pathlib.Path(__file__).resolve().parent
out = pathlib.Path(sys.argv[1]).resolve()
out.mkdir(parents=True, exist_ok=True)

if "CUDACXX" in os.environ:  # the nvcc that ./dev has found
    os.environ["PATH"] += os.pathsep + str(pathlib.Path(os.environ["CUDACXX"]).parent)

OPTIONS = {
    "g++": "g++ -std=c++20 -O2 -shared -fPIC -fno-gnu-unique -Iinclude",
    "gcc": "gcc -std=c99 -O2 -shared -fPIC -Iinclude",
    "nvcc": "nvcc -x cu -std=c++20 -O2 -shared -Xcompiler -fPIC,-fno-gnu-unique -Iinclude",
}
COMPILED = ("gemm.cc", "plain_c.c", "exp_log.cc", "in_c.c")
folders = (here, here.parent / "partition")
sources = [path for folder in folders for path in [*folder.glob("*.cc"), *folder.glob("*.c")]]
for source in sorted(sources):
    lines = re.findall(r"(?m)^(?://| \*) +((g\+\+|gcc|nvcc) .*)$", source.read_text())
    if not lines:
        sys.exit(f"{source.name} does not say how to compile it")
    for line, compiler in lines:
        result = f"lib{source.stem}.so"
        expected = f"{OPTIONS[compiler]} examples/{source.parent.name}/{source.name} -o {result}"
        if source.name == "first.cc":
            expected = expected.replace("-Iinclude", "-Isingle_include")
        if line != expected:
            sys.exit(f"{source.name} says\n  {line}\ninstead of\n  {expected}")
        if source.name not in COMPILED and compiler != "nvcc":
            continue
        if not shutil.which(compiler):
            print(f"left out, there is no {compiler}: {line}")
            continue
        print(line, flush=True)
        quick = line.replace(" -O2 ", " -O0 ").removesuffix(result) + str(out / result)
        subprocess.run(quick, shell=True, check=True, cwd=here.parents[1])
