#!/usr/bin/env python3
"""Example 01 compiles for ARM64 by one line, header-only, and runs in qemu-user.

usage: arm64_test.py ROOT. `./dev test arm64` has the suite there.
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

COMPILER = "aarch64-linux-gnu-g++"
EXPECTED = """12 24 36 
Axpy has no argument 'alhpa' (did you mean 'alpha'? known: 'alpha'); in Axpy (x, y) -> (z)
"""
AARCH64 = 183  # value of e_machine

for tool in (COMPILER, "qemu-aarch64"):
    if not shutil.which(tool):
        print(f"skipped: no {tool}")
        sys.exit(77)
root = pathlib.Path(sys.argv[1])
with tempfile.TemporaryDirectory() as folder:
    program = pathlib.Path(folder) / "first"
    subprocess.run([COMPILER, "-std=c++20", "-O1", f"-I{root}/include", "-Wall", "-Wextra", "-Werror",
                    root / "examples/01_first_operator.cpp", "-o", program], check=True)
    machine = int.from_bytes(program.read_bytes()[18:20], "little")
    run = subprocess.run([root / "tests/support/qemu_aarch64.sh", program], capture_output=True,
                         text=True, timeout=300)
    print(run.stdout + run.stderr, end="")
    if machine != AARCH64:
        sys.exit(f"the program is for machine {machine}, not ARM64")
    if run.returncode != 0 or run.stdout != EXPECTED:
        sys.exit(f"exit status {run.returncode}; expected 0 and\n{EXPECTED}")
